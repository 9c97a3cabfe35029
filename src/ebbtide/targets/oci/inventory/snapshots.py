"""
Snapshots of registries: the two tables of a scan in a folder, complete or absent.

The note is written last, and contains the row counts of the tables; a folder without it is not a snapshot.
The database records which snapshot is the current one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from ebbtide.core.errors import EbbtideError, MetadataError
from ebbtide.core.instant import from_micros, to_micros
from ebbtide.engine.files import make_durable, write_durably
from ebbtide.engine.spark.failures import own_errors
from ebbtide.engine.tables.contracts import Contract
from ebbtide.engine.tables.counted import Row, read_rows, write_rows
from ebbtide.engine.tables.row_counts import adopt_counts, counted_files, counted_rows
from ebbtide.targets.oci.tables import IMAGES, TAGS

IMAGES_FOLDER, TAGS_FOLDER = "images", "tags"
_TABLES = (IMAGES_FOLDER, TAGS_FOLDER)
_NOTE = "snapshot.json"
_FORMAT = 1


@dataclass(frozen=True)
class Snapshot:
    """What was known about a registry after a scan."""

    spark: SparkSession
    folder: Path
    scanned: Mapping[str, datetime]
    """When each repository was last scanned; one that is not here never was."""
    image_count: int
    tag_count: int

    @property
    def images(self) -> DataFrame:
        """The table of manifests."""
        return IMAGES.read(self.spark, self.folder / IMAGES_FOLDER)

    @property
    def tags(self) -> DataFrame:
        """The table of tags."""
        return TAGS.read(self.spark, self.folder / TAGS_FOLDER)

    def rows(self) -> tuple[list[Row], list[Row]]:
        """Read the rows of both tables without Spark, if there are few; all of them, or MetadataError."""
        return (
            self._rows(IMAGES, IMAGES_FOLDER, self.image_count),
            self._rows(TAGS, TAGS_FOLDER, self.tag_count),
        )

    def _rows(self, contract: Contract, name: str, count: int) -> list[Row]:
        with _readable(self.folder, name):
            rows = read_rows(contract, self.folder / name)
        _check_count(self.folder, name, len(rows), count)
        return rows


def snapshot_folder(root: Path, uid: str, name: str) -> Path:
    """Return the folder of a snapshot."""
    return root / "registries" / uid / name


def snapshot_name(at: datetime) -> str:
    """Name a snapshot after its time, so that names sort by time."""
    return f"{at:%Y%m%dT%H%M%S%fZ}"


def write_snapshot_tables(
    spark: SparkSession, folder: Path, images: DataFrame, tags: DataFrame, scanned: Mapping[str, datetime]
) -> Snapshot:
    """Write both tables with Spark, then the note; return the snapshot as it can be read back."""
    with own_errors():
        IMAGES.write(images, folder / IMAGES_FOLDER)
        TAGS.write(tags, folder / TAGS_FOLDER)
    return _noted(spark, folder, scanned)


def write_snapshot_rows(
    spark: SparkSession,
    folder: Path,
    images: Iterable[Row],
    tags: Iterable[Row],
    scanned: Mapping[str, datetime],
) -> Snapshot:
    """Write both tables without Spark, then the note; Spark reads them like its own."""
    write_rows(IMAGES, images, folder / IMAGES_FOLDER)
    write_rows(TAGS, tags, folder / TAGS_FOLDER)
    return _noted(spark, folder, scanned)


def _noted(spark: SparkSession, folder: Path, scanned: Mapping[str, datetime]) -> Snapshot:
    """Force both tables to disk, then write their row counts."""
    for name in _TABLES:
        make_durable(folder / name)
    images, tags = (counted_rows(folder / name) for name in _TABLES)
    times = {name: to_micros(at) for name, at in sorted(scanned.items())}
    note = {"format": _FORMAT, "images": images, "tags": tags, "scanned": times}
    write_durably(folder / _NOTE, json.dumps(note))
    return Snapshot(spark, folder, dict(scanned), images, tags)


def read_snapshot(spark: SparkSession, folder: Path) -> Snapshot:
    """Read a snapshot; raise MetadataError if it is missing or not what was written."""
    note = check_snapshot(folder)
    scanned = {name: from_micros(at) for name, at in note["scanned"].items()}
    return Snapshot(spark, folder, scanned, note["images"], note["tags"])


def scan_times(folder: Path) -> dict[str, datetime]:
    """Return when each repository of a snapshot was last scanned, without Spark."""
    return {name: from_micros(at) for name, at in _read_note(folder)["scanned"].items()}


def scanned_tags(folder: Path, repositories: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return what each tag of some repositories stood for, without Spark: executors read it too."""
    found: dict[str, dict[str, str]] = {name: {} for name in repositories}
    names = pa.array(found, pa.string())
    with _readable(folder, TAGS_FOLDER):
        for file in counted_files(folder / TAGS_FOLDER):
            with pq.ParquetFile(file, page_checksum_verification=True) as part:
                for batch in part.iter_batches(columns=["repository", "tag", "digest"]):
                    for row in batch.filter(pc.is_in(batch.column("repository"), names)).to_pylist():
                        found[row["repository"]][row["tag"]] = row["digest"]
    return found


def check_snapshot(folder: Path) -> dict[str, Any]:
    """Return the note of a snapshot; raise MetadataError if its tables are not what was written."""
    note = _read_note(folder)
    for name in _TABLES:
        try:
            # Snapshots of earlier versions have no record of their own; the note has always had the counts.
            adopt_counts(folder / name, note[name])
            rows = counted_rows(folder / name)
        except MetadataError as broken:
            raise _damaged(folder, f"its table {name} is not what was written ({broken.what})") from None
        _check_count(folder, name, rows, note[name])
    return note


def _check_count(folder: Path, name: str, rows: int, written: int) -> None:
    if rows != written:
        raise _damaged(folder, f"its table {name} has {rows} rows, and {written} were written")


@contextmanager
def _readable(folder: Path, name: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, KeyError, ValueError):
        raise _damaged(folder, f"its table {name} cannot be read") from None


def remove_older(root: Path, uid: str, current: str, keep: int = 2) -> list[str]:
    """
    Remove all but the newest snapshots and the current one; return the names of the removed ones.

    A folder newer than the current one may be a scan in progress, so it is left alone.
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
