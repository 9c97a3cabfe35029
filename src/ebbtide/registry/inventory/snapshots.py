"""
Snapshots of registries: the two tables of a scan in a folder of their own, whole or not there at all.

The note is written last, and says how many rows the tables have; without it a folder is no snapshot. Which
snapshot is the current one is recorded elsewhere, in the database.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ebbtide.engine.layout import make_durable, write_durably
from ebbtide.errors import EbbtideError, MetadataError
from ebbtide.registry.tables import IMAGES, TAGS
from ebbtide.rules.instant import from_micros, to_micros
from ebbtide.tables.failures import own_errors

IMAGES_FOLDER, TAGS_FOLDER = "images", "tags"
_NOTE = "snapshot.json"
_FORMAT = 1


@dataclass(frozen=True)
class Snapshot:
    """What was known of a registry after a scan."""

    images: DataFrame
    tags: DataFrame
    scanned: Mapping[str, datetime]
    """When each repository was last scanned; one that is not here never was."""
    image_count: int
    tag_count: int


def snapshot_folder(root: Path, uid: str, name: str) -> Path:
    """Name the folder of a snapshot."""
    return root / "registries" / uid / name


def snapshot_name(at: datetime) -> str:
    """Name a snapshot after its time, so that names are in the order of time."""
    return f"{at:%Y%m%dT%H%M%S%fZ}"


def write_snapshot(
    spark: SparkSession, folder: Path, images: DataFrame, tags: DataFrame, scanned: Mapping[str, datetime]
) -> Snapshot:
    """Write both tables, then the note, each forced to disk; give the snapshot as it can be read back."""
    with own_errors():
        IMAGES.write(images, folder / IMAGES_FOLDER)
        TAGS.write(tags, folder / TAGS_FOLDER)
        written = IMAGES.read(spark, folder / IMAGES_FOLDER), TAGS.read(spark, folder / TAGS_FOLDER)
        rows = [table.count() for table in written]
    make_durable(folder / IMAGES_FOLDER)
    make_durable(folder / TAGS_FOLDER)
    note = {
        "format": _FORMAT,
        "images": rows[0],
        "tags": rows[1],
        "scanned": {name: to_micros(at) for name, at in sorted(scanned.items())},
    }
    write_durably(folder / _NOTE, json.dumps(note))
    return Snapshot(*written, dict(scanned), *rows)


def read_snapshot(spark: SparkSession, folder: Path) -> Snapshot:
    """Read a snapshot that should be there; MetadataError if it is not, or not what was written."""
    note = _read_note(folder)
    tables = []
    for contract, name in ((IMAGES, IMAGES_FOLDER), (TAGS, TAGS_FOLDER)):
        try:
            table = contract.read(spark, folder / name)
            rows = table.count()
        except PySparkException:
            raise _damaged(folder, f"its table {name} cannot be read") from None
        if rows != note[name]:
            raise _damaged(folder, f"its table {name} has {rows} rows, and {note[name]} were written")
        tables.append(table)
    scanned = {name: from_micros(at) for name, at in note["scanned"].items()}
    return Snapshot(tables[0], tables[1], scanned, note["images"], note["tags"])


def remove_older(root: Path, uid: str, current: str, keep: int = 2) -> list[str]:
    """
    Remove all but the newest snapshots and the current one; give the names of those that are gone.

    A folder that is newer than the current one may be a scan at work, so it is left alone.
    """
    place = root / "registries" / uid
    names = sorted((path.name for path in place.iterdir() if path.is_dir()), reverse=True)
    whole = [name for name in names if (place / name / _NOTE).is_file()]
    kept = {current, *whole[:keep]}
    removed = [name for name in names if name < current and name not in kept]
    for name in removed:
        (place / name / _NOTE).unlink(missing_ok=True)  # first, so that half a snapshot is none
        shutil.rmtree(place / name)
    return removed


def _read_note(folder: Path) -> dict[str, Any]:
    try:
        note = json.loads((folder / _NOTE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise _damaged(folder, "it is not there, or was not finished") from None
    except (OSError, ValueError):
        raise _damaged(folder, "its note cannot be read") from None
    if not isinstance(note, dict) or note.get("format") != _FORMAT:
        raise _damaged(folder, "its note is of another version, or none")
    scanned = note.get("scanned")
    counts = (note.get("images"), note.get("tags"))
    times = scanned.values() if isinstance(scanned, dict) else [None]
    if not all(isinstance(number, int) for number in (*counts, *times)):
        raise _damaged(folder, "its note is damaged")
    return note


def _damaged(folder: Path, why: str) -> EbbtideError:
    return MetadataError(
        f"the snapshot {folder.name} of the registry cannot be used",
        why=why,
        fix="restore the state root from a backup, or scan anew without it: all clocks begin again",
    )
