"""What the reaper has taken, for collectors that work beside it."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from ebbtide.lake.catalog.catalog import Catalog
from ebbtide.tables.digest import hash_addresses

_PAGE = 50_000
_HASHES = pa.schema([pa.field("hash", pa.int64(), nullable=False)])


def reaped_hashes(spark: SparkSession, catalog: Catalog, uid: str, folder: Path) -> DataFrame:
    """Give the hashes of all that the reaper has fenced or deleted in the last days; streams to a file."""
    file = folder / "reaped.parquet"
    addresses = catalog.reaped(uid)
    with pq.ParquetWriter(file, _HASHES) as writer:
        while page := list(islice(addresses, _PAGE)):
            writer.write_table(pa.table([pa.array(hash_addresses(page))], schema=_HASHES))
    return spark.read.schema("hash long").parquet(str(file))
