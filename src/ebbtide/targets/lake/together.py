"""
Together: one standing for each address from those that several collectors give it.

Each collector judges alone, and what one of them lets go may go: an address's deadline is the earliest of
theirs. It is not "every reference has lapsed by some collector's rules": that an old commit may be forgotten
is no reason to forget what a lifecycle rule still counts the days of, nor the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ebbtide.core.decision import CollectorName
from ebbtide.engine.tables.contracts import STANDINGS

_UNITED = ("paths",)
_LARGEST = ("size", "created")


def together(parts: Sequence[DataFrame]) -> DataFrame:
    """Give each address the standing with the earliest deadline; of equal ones the first collector's."""
    if len(parts) == 1:
        return STANDINGS.check(parts[0])
    every = reduce(DataFrame.unionByName, parts)
    chosen = [name for name in STANDINGS.columns if name not in ("world", "hash", *_UNITED, *_LARGEST)]
    first = f.min(
        f.struct("deadline", _order().alias("place"), *[name for name in chosen if name != "deadline"])
    )
    added = every.groupBy("world", "hash").agg(
        first.alias("first"),
        *(f.array_sort(f.array_distinct(f.flatten(f.collect_list(name)))).alias(name) for name in _UNITED),
        *(f.max(name).alias(name) for name in _LARGEST),
    )
    kept = [f.col(name) if name not in chosen else f.col(f"first.{name}") for name in STANDINGS.columns]
    return STANDINGS.check(added.select(*kept))


def _order() -> Column:
    """Give each collector its place."""
    place = f.lit(len(CollectorName))
    for number, collector in enumerate(CollectorName):
        place = f.when(f.col("collector") == str(collector), number).otherwise(place)
    return place
