"""Explaining one object: every reference to it, when each lapses, and so why it goes or stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from ebbtide.errors import AddressError
from ebbtide.lake.catalog.graveyard import Burial
from ebbtide.lake.lifecycle.references import Wanted, references
from ebbtide.lake.metadata.ranges import range_table
from ebbtide.lake.metadata.world import ONLY_WORLD, World
from ebbtide.rules.deadline import deadline, due
from ebbtide.store.address import canonical, is_inside

MOST_ADDRESSES = 20
MOST_REFERENCES = 200


@dataclass(frozen=True)
class ExplainedReference:
    """One reference: a key under a class of referrers."""

    key: str
    created: datetime
    lapse: datetime
    rules: tuple[str, ...]
    reached: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Explanation:
    """Everything that speaks for and against one address."""

    address: str
    size: int
    verdict: str
    """due, held, or untouched (no rule concerns it)."""
    deadline: datetime
    references: tuple[ExplainedReference, ...]
    """The one that lives longest comes first."""
    burial: Burial | None = None


def explain(spark: SparkSession, world: World, *keys_or_addresses: str) -> list[Explanation]:
    """Find the addresses that the keys ever had, and those that are given as such, and explain each."""
    worlds = {ONLY_WORLD: world}
    ranges = range_table(spark, worlds).persist(StorageLevel.DISK_ONLY)
    named = Wanted(
        frozenset(keys_or_addresses), frozenset(_address(world, text) for text in keys_or_addresses)
    )
    first = references(ranges, worlds, wanted=named).select("address").distinct().orderBy("address")
    addresses = first.limit(MOST_ADDRESSES).toArrow().column("address").to_pylist()
    if not addresses:
        return []
    rows = references(ranges, worlds, wanted=Wanted(addresses=frozenset(addresses)))
    merged = rows.groupBy("address", "key", "created", "size", "lapse", "rules", "why").agg(
        f.array_sort(f.array_distinct(f.flatten(f.collect_set(f.split("holder", ", "))))).alias("reached")
    )
    ordered = merged.orderBy("address", f.desc("lapse"), "key").limit(MOST_REFERENCES * len(addresses))
    grouped: dict[str, list[dict[str, Any]]] = {}
    for row in ordered.toArrow().to_pylist():
        grouped.setdefault(row["address"], []).append(row)
    return [_explanation(address, rows, world) for address, rows in grouped.items()]


def _explanation(address: str, rows: Sequence[dict[str, Any]], world: World) -> Explanation:
    item_deadline = deadline(row["lapse"] for row in rows)
    holds = [] if world.namespace is None or is_inside(address) else ["outside the namespace"]
    if not any(row["rules"] for row in rows):
        verdict = "untouched"
    else:
        verdict = "due" if due(item_deadline, world.now, holds) else "held"
    known = [
        ExplainedReference(
            row["key"], row["created"], row["lapse"], tuple(row["rules"]), tuple(row["reached"]), row["why"]
        )
        for row in rows
    ]
    return Explanation(address, rows[0]["size"], verdict, item_deadline, tuple(known[:MOST_REFERENCES]))


def _address(world: World, text: str) -> str:
    try:
        return canonical(text, world.namespace)
    except AddressError:
        return text
