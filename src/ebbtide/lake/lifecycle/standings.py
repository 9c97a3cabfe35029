"""
Standings: what all the references to an address add up to, one row an address.

Nothing here depends on the time: a standing says *when* an address lapses, not whether it has. It is a pure
function of the ranges that name the address, of who reaches them and of the rules. Every sum is a smallest,
a largest or a union, so neither the order of the references nor a repeated one can change it.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ebbtide.tables.contracts import STANDINGS
from ebbtide.tables.session import FEW

TOUCHED = "touched"
"""A rule matches a reference to the address."""
UNTOUCHED = "untouched"
"""No rule does; nothing but the hash is known, so that it can be counted."""
GONE = "gone"
"""Nothing references the address any more."""


def standings(references: DataFrame, affected: DataFrame | None = None) -> DataFrame:
    """Add up the references to each address; an affected one without any is gone."""
    if affected is not None:
        references = references.unionByName(affected, allowMissingColumns=True)
    # Of those that live longest, the first: a smallest, as where an executor dropped what it had twice.
    latest = f.struct((-f.unix_micros("lapse")).alias("until"), "key", "holder", "why")
    keeper = f.struct("key", "holder", "why")
    added = references.groupBy("world", "hash").agg(
        f.min(_touched("address")).alias("address"),
        f.max(_touched("address")).alias("last_address"),
        f.min(_touched(latest)).alias("latest"),
        f.min(f.when(~f.col("touched"), keeper)).alias("keeper"),
        f.sort_array(f.collect_set(_touched("key"))).alias("paths"),
        f.array_sort(f.array_distinct(f.flatten(f.collect_set(_touched("rules"))))).alias("rules"),
        f.max(_touched("size")).alias("size"),
        f.max(_touched("created")).alias("created"),
        f.max("touched").alias("touched"),
    )
    return STANDINGS.check(
        added.select(
            "world",
            "hash",
            "address",
            "last_address",
            f.timestamp_micros(-f.col("latest.until")).alias("lapse"),
            _named("latest").alias("holder"),
            f.col("latest.why").alias("why"),
            _touched(_named("keeper")).alias("keeper"),
            _touched("keeper.why").alias("keeper_why"),
            "paths",
            "rules",
            f.array_compact(f.array("latest.holder")).alias("branches"),
            "size",
            "created",
            _kind(f.col("touched")).alias("kind"),
        )
    )


def _touched(value: str | Column) -> Column:
    return f.when(f.col("touched"), value if isinstance(value, Column) else f.col(value))


def _kind(touched: Column) -> Column:
    return f.when(touched, TOUCHED).when(~touched, UNTOUCHED).otherwise(GONE)


def _named(reference: str) -> Column:
    """Name a reference in words: its key, then who holds it."""
    words = f.concat_ws(" ", f"{reference}.key", f"{reference}.holder")
    return f.when(f.col(reference).isNotNull(), words)


def laid_over(earlier: DataFrame, changed: DataFrame, count: int, rows: DataFrame) -> DataFrame:
    """Give the earlier standings of all addresses but the changed ones (about `count`), and new rows."""
    # A few are sent to where the many are; shuffling those would take longer than all else.
    hashes = changed.select("world", "hash").hint("broadcast" if count <= FEW else "shuffle_hash")
    return earlier.join(hashes, ["world", "hash"], "left_anti").unionByName(rows)
