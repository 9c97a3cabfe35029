"""Rows of the database as tables of Spark: streamed into Parquet in parts, never all in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from ebbtide.tables.contracts import Contract

_PART = 50_000


def tabled(
    spark: SparkSession, contract: Contract, rows: Iterable[Mapping[str, Any]], folder: Path
) -> DataFrame:
    """Write rows as a table, and give it."""
    folder.mkdir(parents=True, exist_ok=True)
    schema = to_arrow_schema(contract.schema, timezone="UTC")
    remaining = iter(rows)
    number = 0
    while part := list(islice(remaining, _PART)):
        table = pa.Table.from_pylist([dict(row) for row in part], schema)
        pq.write_table(table, folder / f"{number:06d}.parquet")
        number += 1
    return contract.read(spark, folder) if number else contract.read(spark)
