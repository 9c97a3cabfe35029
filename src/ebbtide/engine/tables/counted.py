"""Counted tables: the number of rows is recorded by the writer and compared by every reader."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from ebbtide.core.errors import MetadataError
from ebbtide.engine.spark.latency import widen
from ebbtide.engine.tables.row_counts import check_counts, counted_files, record_counts

if TYPE_CHECKING:
    from ebbtide.engine.tables.contracts import Contract

Row = Mapping[str, Any]
_PART = 50_000
"""Rows per file of a table that is written without Spark."""

_PATTERN = re.compile(r"[\\{}\[\]*?]")
_SECONDS = 120
"""How long to wait for Spark's count after a job has ended; this usually takes milliseconds."""


def write_counted(
    frame: DataFrame,
    folder: Path,
    *,
    partition_by: str | None = None,
    options: Mapping[str, str] | None = None,
    totals: Sequence[Column] = (),
) -> dict[str, Any]:
    """
    Write a table as Parquet, and stop unless the driver finds all the rows that the executors wrote.

    Return the aggregates of the written rows that `totals` asks for, besides `rows`.
    """
    counter = Observation()
    # Counted by the tasks that write, so it needs no extra job, and a repeated task counts once.
    counted = frame.observe(counter, f.count(f.lit(1)).alias("rows"), *totals)
    writer = counted.write.mode("overwrite").options(**(options or {}))
    if partition_by:
        writer = writer.partitionBy(partition_by)
    writer.parquet(written_to(folder))
    found = _observed(counter, folder)
    record_counts(folder, found["rows"])
    widen(frame.sparkSession, found["rows"])
    return found


def write_empty(folder: Path) -> None:
    """Write a table without rows, which needs no job."""
    folder.mkdir(parents=True, exist_ok=True)
    record_counts(folder, 0)


def read_counted(spark: SparkSession, schema: t.StructType, *folders: Path) -> DataFrame:
    """Read tables as one after comparing their files with their records; without folders it is empty."""
    if not folders:
        return spark.createDataFrame([], schema)
    for folder in folders:
        check_counts(folder)
    # A page that is not what was written fails its checksum; it must not be read as other rows.
    checked = spark.read.option("parquet.page.verify-checksum.enabled", "true")
    return checked.schema(schema).parquet(*(read_from(folder) for folder in folders))


def write_rows(contract: Contract, rows: Iterable[Row], folder: Path) -> int:
    """Stream rows into a table without Spark, never all in memory, and return their number."""
    folder.mkdir(parents=True, exist_ok=True)
    schema = to_arrow_schema(contract.schema, timezone="UTC")
    remaining, count, number = iter(rows), 0, 0
    while part := list(islice(remaining, _PART)):
        table = pa.Table.from_pylist([dict(row) for row in part], schema)
        file = folder / f"{number:06d}.parquet"
        # As Contract.write does it, with the checksums that Contract.read verifies.
        pq.write_table(table, file, compression="zstd", use_dictionary=False, write_page_checksum=True)
        count, number = count + len(part), number + 1
    record_counts(folder, count)
    return count


def read_rows(contract: Contract, folder: Path) -> list[Row]:
    """Read a whole table of few rows into memory without Spark; its times are in UTC."""
    schema = to_arrow_schema(contract.schema, timezone="UTC")
    rows: list[Row] = []
    for file in counted_files(folder):
        # A page that is not what was written fails its checksum; it must not be read as other rows.
        with pq.ParquetFile(file, page_checksum_verification=True) as part:
            rows += _with_optional(contract, part.read(), schema).cast(schema).to_pylist()
    return rows


def _with_optional(contract: Contract, table: Any, schema: Any) -> Any:
    """Return the columns of the contract; an optional one that an older version did not write is null."""
    for name in contract.optional:
        if name not in table.column_names:
            table = table.append_column(schema.field(name), pa.nulls(table.num_rows, schema.field(name).type))
    return table.select(schema.names)


def _observed(counter: Observation, folder: Path) -> dict[str, Any]:
    """Return what a job counted; Spark reports it soon after the job's end, or never if it is overloaded."""
    # Observation.get would wait forever.
    told = counter._jo.future()  # type: ignore[union-attr]  # noqa: SLF001
    deadline = time.monotonic() + _SECONDS
    while not told.isCompleted():
        if time.monotonic() > deadline:
            raise MetadataError(
                f"Spark did not report how many rows it wrote to {folder}",
                why="a table that may be incomplete must not be read",
                fix="plan again",
            )
        time.sleep(0.002)
    return dict(counter.get)


def written_to(folder: Path) -> str:
    """Return the name of a folder for Spark's writers; characters that are special in a URI stay."""
    return f"file://{folder.absolute()}"


def read_from(folder: Path) -> str:
    """Return the name of a file or folder for Spark's readers, with the characters of patterns escaped."""
    return _PATTERN.sub(r"\\\g<0>", written_to(folder))
