"""
Listing: what the store really has, by partition, on the executors.

It comes before everything else that a run reads. An object that is linked or committed while the run reads
moves from "uploaded" to "staged" to "committed"; whoever looks at these places in the same order meets it in
at least one of them. Looking at staging first would miss what is staged afterwards and listed then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.engine.tables.contracts import LISTED
from ebbtide.engine.tables.digest import hash_addresses
from ebbtide.storage.store import StoreSpec, open_store
from ebbtide.targets.lake.catalog.model import Repository
from ebbtide.targets.lake.catalog.partitions import object_pattern
from ebbtide.targets.lake.inventory import inventory
from ebbtide.targets.lake.uncommitted.sweeps import Survey

_PREFIX = "prefix string"


def list_branch_paths(
    spark: SparkSession, found: Survey, store: StoreSpec, repository: Repository
) -> DataFrame:
    """List every partition that a survey names, and what else of the namespace may hold live objects."""
    prefixes = [sweep.path + name + "/" for sweep in found.sweeps for name in sweep.partitions]
    rows = spark.createDataFrame([(prefix,) for prefix in [*prefixes, *found.foreign_folders]], _PREFIX)
    return listed(rows, store, repository)


def listed(prefixes: DataFrame, store: StoreSpec, repository: Repository) -> DataFrame:
    """List prefixes; what is a data object by the path convention, and so may be garbage, has an address."""
    found = inventory(prefixes, store, repository.namespace, merged=True)
    # It will be deleted by its address, so that must be its very key.
    own = (f.col("key") == f.col("address")) & f.col("key").rlike(object_pattern(repository.uid))
    return LISTED.check(found.withColumn("address", f.when(own, f.col("key"))))


def list_levels(spark: SparkSession, found: Survey, store: StoreSpec) -> DataFrame:
    """Give the hashes of the files that lie on the way down to the partitions, as far as a survey asks."""
    levels = spark.createDataFrame([(level,) for level in found.foreign_levels], _PREFIX)
    return levels.repartition(max(1, len(found.foreign_levels))).mapInArrow(_LevelLister(store), "hash long")


@dataclass(frozen=True)
class _LevelLister:
    """Lists the files of single folders on an executor."""

    store: StoreSpec

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        store = open_store(self.store)
        for batch in batches:
            for prefix in batch.column("prefix").to_pylist():
                names = [prefix + name for name in store.children(prefix) if not name.endswith("/")]
                yield pa.RecordBatch.from_pydict({"hash": pa.array(hash_addresses(names))})
