"""Settling: tables are written down between steps, so that each is computed once and no query grows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ebbtide.tables.places import read_from, written_to

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
        frame.write.mode("overwrite").option("compression", "snappy").parquet(written_to(place))
        return frame.sparkSession.read.schema(frame.schema).parquet(read_from(place))

    return settle


def sent_if_few(frame: DataFrame) -> DataFrame:
    """Send a settled table to every executor if it is small, so that a large one need not be moved."""
    return f.broadcast(frame) if frame.count() <= FEW else frame
