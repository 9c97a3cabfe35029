"""The files of a listing: one for each range that was listed to its end, in which it says what it covers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ebbtide.core.errors import MetadataError
from ebbtide.targets.s3.inventory.details import VERSIONS_TABLE
from ebbtide.targets.s3.inventory.ranges import Range

_COVERS = "ebbtide.covers"


class RangeFile:
    """
    Writes the rows of one range; the file appears when it is whole and on disk, or not at all.

    A task that is run again writes the same name, so that no range is ever there twice.
    """

    def __init__(self, folder: Path, part: Range) -> None:
        self._path = folder / f"{part.name}.parquet"
        # Spark leaves out names that begin with a dot, and so does whoever looks for finished ranges.
        self._unfinished = folder / f".{part.name}.{os.getpid()}"
        self._writer = pq.ParquetWriter(
            self._unfinished,
            VERSIONS_TABLE,
            compression="zstd",
            use_dictionary=["kind", "storage_class", "replication_status"],
            write_page_checksum=True,
        )

    def write(self, batches: Iterable[Any]) -> None:
        """Add rows, joined into one block."""
        self._writer.write_table(pa.Table.from_batches(list(batches), VERSIONS_TABLE))

    def finish(self, covers: Range) -> None:
        """Note what was covered and let the file appear."""
        self._writer.add_key_value_metadata({_COVERS: json.dumps(asdict(covers))})
        self._writer.close()
        with self._unfinished.open("rb+") as file:
            os.fsync(file.fileno())
        self._unfinished.replace(self._path)

    def abandon(self) -> None:
        """Give the file up."""
        self._writer.close()
        self._unfinished.unlink(missing_ok=True)


def finished_ranges(folder: Path) -> list[Range]:
    """Read from the files what they cover, and remove unfinished ones; a file that does not say raises."""
    for unfinished in folder.glob(".*"):
        unfinished.unlink()
    return [_covered(path) for path in sorted(folder.glob("[!.]*.parquet"))]


def rows_of(folder: Path) -> int:
    """Count the rows of the ranges that are finished."""
    return sum(int(pq.read_metadata(path).num_rows) for path in folder.glob("[!.]*.parquet"))


def _covered(path: Path) -> Range:
    try:
        said = (pq.read_metadata(path).metadata or {})[_COVERS.encode()]
        return Range(**json.loads(said))
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        raise MetadataError(
            f"the listing's file {path.name} is damaged",
            why="nobody knows which keys it covers",
            fix="delete the folder of this listing and list again",
        ) from None
