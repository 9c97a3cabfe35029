"""Checking a repository: is everything that a live reference names really in the store?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.core.instant import to_micros
from ebbtide.engine.tables.antijoin import without
from ebbtide.targets.lake.inventory import inventory
from ebbtide.targets.lake.lifecycle.references import references
from ebbtide.targets.lake.metadata.ranges import range_table
from ebbtide.targets.lake.metadata.world import ONLY_WORLD, World

MOST_NAMED = 100


@dataclass(frozen=True)
class LiveCheck:
    """What a check found."""

    live: int
    listed: int
    missing: tuple[str, ...]
    """The first missing ones, each as 'key referrer: address', and what is known of it."""
    missing_count: int


Fate = Callable[[str], str]
"""Says of an address what became of its object, or nothing."""


def check_live(
    spark: SparkSession, world: World, buried: DataFrame, fate: Fate = lambda _address: ""
) -> LiveCheck:
    """List the folders that live references point into, on the executors, and look for what is not there."""
    worlds = {ONLY_WORLD: world}
    every = references(range_table(spark, worlds), worlds)
    inside = every.where((f.unix_micros("lapse") > to_micros(world.now)) & ~f.col("address").contains("://"))
    named = (
        inside.groupBy("hash")
        .agg(f.min(f.struct("key", "holder", "address")).alias("at"))
        .select("hash", "at.*")
    )
    live = without(named, buried).persist(StorageLevel.DISK_ONLY)
    folders = live.select(_folder("address").alias("prefix")).distinct()
    listed = inventory(folders, world.store, world.namespace, merged=True).persist(StorageLevel.DISK_ONLY)
    missing = without(live, listed)
    first = missing.orderBy("key").limit(MOST_NAMED).toArrow().to_pylist()
    return LiveCheck(
        live=live.count(),
        listed=listed.count(),
        missing=tuple(_described(row, fate(row["address"])) for row in first),
        missing_count=missing.count(),
    )


def _described(row: dict[str, Any], known: str) -> str:
    return f"{row['key']} {row['holder']}: {row['address']}" + (f" ({known})" if known else "")


def _folder(column: str) -> Any:
    return f.regexp_extract(column, "^(.*/)?", 0)
