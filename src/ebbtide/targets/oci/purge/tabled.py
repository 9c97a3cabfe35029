"""Rows of the database as tables of Spark: streamed into Parquet in parts, never all in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ebbtide.engine.tables.contracts import Contract
from ebbtide.engine.tables.files import write_rows


def tabled(
    spark: SparkSession, contract: Contract, rows: Iterable[Mapping[str, Any]], folder: Path
) -> DataFrame | None:
    """Write rows as a table, and give it; None if there are none, so that nothing need be joined."""
    return contract.read(spark, folder) if write_rows(contract, rows, folder) else None
