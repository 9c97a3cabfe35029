"""What the reaper has taken, for collectors that work beside it."""

from __future__ import annotations

import shutil
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

from ebbtide.engine.tables.counted import read_counted
from ebbtide.engine.tables.digest import hash_addresses
from ebbtide.engine.tables.row_counts import record_counts
from ebbtide.targets.lake.catalog.catalog import Catalog

_PAGE = 50_000
_SCHEMA = t.StructType([t.StructField("hash", t.LongType())])
_HASHES = pa.schema([pa.field("hash", pa.int64(), nullable=False)])


def reaped_hashes(spark: SparkSession, catalog: Catalog, uid: str, folder: Path) -> DataFrame:
    """Give the hashes of all that the reaper has fenced or deleted in the last days; streams to a file."""
    place = folder / "reaped"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    addresses, written = catalog.reaped(uid), 0
    with pq.ParquetWriter(place / "hashes.parquet", _HASHES) as writer:
        while page := list(islice(addresses, _PAGE)):
            writer.write_table(pa.table([pa.array(hash_addresses(page))], schema=_HASHES))
            written += len(page)
    record_counts(place, written)
    return read_counted(spark, _SCHEMA, place)
