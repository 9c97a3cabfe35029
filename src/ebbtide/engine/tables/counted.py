"""Counted tables on Spark: rows are counted by the job that writes them, and compared by whoever reads."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from ebbtide.core.errors import MetadataError
from ebbtide.engine.tables.places import read_from, written_to
from ebbtide.engine.tables.row_counts import check_counts, record_counts

_SECONDS = 120
"""How long to wait, after a job ended, until Spark tells what it counted; this takes milliseconds."""


def write_counted(
    frame: DataFrame,
    folder: Path,
    *,
    partition_by: str | None = None,
    options: Mapping[str, str] | None = None,
) -> None:
    """Write a table as Parquet, and stop unless the driver finds all the rows that the executors wrote."""
    counter = Observation()
    # Counted in the very tasks that write, so it takes no job of its own, and a task run twice counts once.
    counted = frame.observe(counter, f.count(f.lit(1)).alias("rows"))
    writer = counted.write.mode("overwrite").options(**(options or {}))
    if partition_by:
        writer = writer.partitionBy(partition_by)
    writer.parquet(written_to(folder))
    record_counts(folder, _rows(counter, folder))


def read_counted(spark: SparkSession, schema: t.StructType, *folders: Path) -> DataFrame:
    """Read tables as one, after their files were compared with their records; none is an empty table."""
    if not folders:
        return spark.createDataFrame([], schema)
    for folder in folders:
        check_counts(folder)
    # A page that is not what was written fails its checksum; it must not be read as other rows.
    checked = spark.read.option("parquet.page.verify-checksum.enabled", "true")
    return checked.schema(schema).parquet(*(read_from(folder) for folder in folders))


def _rows(counter: Observation, folder: Path) -> int:
    """Give what a job counted; Spark tells it soon after the job's end, or never if it is overloaded."""
    # Observation.get would wait for ever.
    told = counter._jo.future()  # type: ignore[union-attr]  # noqa: SLF001
    deadline = time.monotonic() + _SECONDS
    while not told.isCompleted():
        if time.monotonic() > deadline:
            raise MetadataError(
                f"Spark did not tell how many rows it wrote to {folder}",
                why="a table that is not known to be whole must not be read",
                fix="plan again",
            )
        time.sleep(0.002)
    return int(counter.get["rows"])
