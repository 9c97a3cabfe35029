"""Checking a repository: is everything that a live reference names really in the store?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.lake.lifecycle.references import references
from ebbtide.lake.metadata.ranges import range_table
from ebbtide.lake.metadata.world import ONLY_WORLD, World
from ebbtide.rules.instant import to_micros
from ebbtide.store.address import canonical_column
from ebbtide.store.base import StoreSpec
from ebbtide.store.opening import open_store
from ebbtide.tables.contracts import INVENTORY
from ebbtide.tables.digest import address_hash

MOST_NAMED = 100
_ROWS = "folder string, key string, address string, size bigint, last_modified timestamp, etag string"


@dataclass(frozen=True)
class LiveCheck:
    """What a check found."""

    live: int
    listed: int
    missing: tuple[str, ...]
    """The first missing ones, each as 'key referrer: address'."""
    missing_count: int


def check_live(spark: SparkSession, world: World, buried: DataFrame) -> LiveCheck:
    """List the folders that live references point into, on the executors, and look for what is not there."""
    worlds = {ONLY_WORLD: world}
    every = references(range_table(spark, worlds), worlds)
    inside = every.where((f.unix_micros("lapse") > to_micros(world.now)) & ~f.col("address").contains("://"))
    live = (
        inside.groupBy("hash")
        .agg(f.min(f.struct("key", "holder", "address")).alias("at"))
        .select("hash", "at.*")
        .join(buried.select("hash").hint("shuffle_hash"), "hash", "left_anti")
        .persist(StorageLevel.DISK_ONLY)
    )
    folders = live.select(_folder("address").alias("folder")).distinct()
    listed = inventory(folders, world.store, world.namespace).persist(StorageLevel.DISK_ONLY)
    missing = live.join(listed.select("hash").hint("shuffle_hash"), "hash", "left_anti")
    first = missing.orderBy("key").limit(MOST_NAMED).toArrow().to_pylist()
    return LiveCheck(
        live=live.count(),
        listed=listed.count(),
        missing=tuple(f"{row['key']} {row['holder']}: {row['address']}" for row in first),
        missing_count=missing.count(),
    )


def inventory(folders: DataFrame, store: StoreSpec, namespace: str | None) -> DataFrame:
    """List folders of a store on the executors; a listing that fails half-way stops the job."""
    tasks = 4 * folders.sparkSession.sparkContext.defaultParallelism
    rows = folders.repartition(tasks, "folder").mapInArrow(_Lister(store, namespace), _ROWS)
    return INVENTORY.check(rows.withColumn("hash", address_hash("address")))


def _folder(column: str) -> Any:
    return f.regexp_extract(column, "^(.*/)?", 0)


@dataclass(frozen=True)
class _Lister:
    """Lists folders on an executor."""

    store: StoreSpec
    namespace: str | None

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        store = open_store(self.store)
        for batch in batches:
            for folder in batch.column("folder").to_pylist():
                for found in store.list(folder):
                    columns = [
                        pa.repeat(folder, found.num_rows),
                        found.column("key"),
                        canonical_column(found.column("key"), self.namespace),
                        found.column("size"),
                        found.column("last_modified"),
                        found.column("etag"),
                    ]
                    names = ["folder", "key", "address", "size", "last_modified", "etag"]
                    yield pa.RecordBatch.from_arrays(columns, names)
