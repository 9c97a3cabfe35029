"""Settling: tables are written down between steps, so that each is computed once and no query grows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ebbtide.engine.tables.counted import read_counted, write_counted

Settle = Callable[[DataFrame, str], DataFrame]
"""Computes a table now and gives it back as a plain one; the name says where it is, and may be used again."""

FEW = 100_000
"""So many short rows may be sent to every executor."""


def settling(scratch: Path | None = None) -> Settle:
    """Settle as Parquet in a folder that all executors see or, without one, on the executors themselves."""
    if scratch is None:
        return lambda frame, _: frame.localCheckpoint(storageLevel=StorageLevel.MEMORY_AND_DISK)

    def settle(frame: DataFrame, name: str) -> DataFrame:
        place = scratch / name
        # Read soon and then thrown away: small files are worth less here than the time that they take.
        write_counted(frame, place, options={"compression": "snappy"})
        return read_counted(frame.sparkSession, frame.schema, place)

    return settle


def sent_if_few(frame: DataFrame) -> DataFrame:
    """Send a settled table to every executor if it is small, so that a large one need not be moved."""
    return f.broadcast(frame) if frame.count() <= FEW else frame
