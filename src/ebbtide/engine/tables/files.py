"""Tables without Spark: rows are written as the Parquet that Spark reads, counted, and read back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from ebbtide.engine.tables.contracts import Contract
from ebbtide.engine.tables.row_counts import counted_files, record_counts

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
    record_counts(folder, count)
    return count


def read_rows(contract: Contract, folder: Path) -> list[Row]:
    """Read a table of few rows that is whole into memory; its times are in UTC."""
    schema = to_arrow_schema(contract.schema, timezone="UTC")
    rows: list[Row] = []
    for file in counted_files(folder):
        # A page that is not what was written fails its checksum; it must not be read as other rows.
        with pq.ParquetFile(file, page_checksum_verification=True) as part:
            rows += _with_optional(contract, part.read(), schema).cast(schema).to_pylist()
    return rows


def _with_optional(contract: Contract, table: Any, schema: Any) -> Any:
    """Give the columns of the contract; an optional one that an older version did not write is null."""
    for name in contract.optional:
        if name not in table.column_names:
            table = table.append_column(schema.field(name), pa.nulls(table.num_rows, schema.field(name).type))
    return table.select(schema.names)
