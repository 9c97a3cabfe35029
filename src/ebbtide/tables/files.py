"""Tables without Spark: rows are written as the Parquet that Spark reads, read back, and counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from ebbtide.tables.contracts import Contract

Row = Mapping[str, Any]
_PART = 50_000


def write_rows(contract: Contract, rows: Iterable[Row], folder: Path) -> int:
    """Stream rows into a table in parts, never all in memory, and say how many they were."""
    folder.mkdir(parents=True, exist_ok=True)
    schema = to_arrow_schema(contract.schema, timezone="UTC")
    remaining, count, number = iter(rows), 0, 0
    while part := list(islice(remaining, _PART)):
        table = pa.Table.from_pylist([dict(row) for row in part], schema)
        file = folder / f"{number:06d}.parquet"
        # As Contract.write does it, and with the checksums that Contract.read looks at.
        pq.write_table(table, file, compression="zstd", use_dictionary=False, write_page_checksum=True)
        count, number = count + len(part), number + 1
    return count


def read_rows(contract: Contract, folder: Path) -> list[Row]:
    """Read a table of few rows into memory; its times are in UTC."""
    schema = to_arrow_schema(contract.schema, timezone="UTC")
    rows: list[Row] = []
    for file in sorted(folder.rglob("*.parquet")):
        # A page that is not what was written fails its checksum; it must not be read as other rows.
        with pq.ParquetFile(file, page_checksum_verification=True) as part:
            rows += part.read(columns=schema.names).select(schema.names).cast(schema).to_pylist()
    return rows


def count_rows(folder: Path) -> int:
    """Count the rows of a table by what its files say of themselves."""
    return sum(int(pq.read_metadata(file).num_rows) for file in folder.rglob("*.parquet"))
