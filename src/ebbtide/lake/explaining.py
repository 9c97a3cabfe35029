"""Explaining one object: every reference to it, when each lapses, and so why it goes or stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.errors import AddressError, NotFound
from ebbtide.lake.catalog.catalog import Catalog
from ebbtide.lake.catalog.graveyard import Burial
from ebbtide.lake.lifecycle.references import Wanted, references
from ebbtide.lake.metadata.ranges import range_table
from ebbtide.lake.metadata.world import ONLY_WORLD, World
from ebbtide.lake.retention.references import kept_ranges, read_kept
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
class ExplainedTerm:
    """Until when a commit or staging keeps a key, by the retention rules."""

    key: str
    keeper: str
    until: datetime


@dataclass(frozen=True)
class Explanation:
    """Everything that speaks for and against one address."""

    address: str
    size: int
    verdict: str
    """due, held, untouched (no lifecycle rule concerns it), or garbage (nothing references it)."""
    deadline: datetime
    references: tuple[ExplainedReference, ...]
    """The one that lives longest comes first."""
    burial: Burial | None = None
    terms: tuple[ExplainedTerm, ...] = ()
    """What retention says of them, if the repository has such rules; the latest first."""


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
    terms = _terms(ranges, world, addresses) if world.retention else {}
    return [
        replace(_explanation(address, rows, world), terms=tuple(terms.get(address, ())))
        for address, rows in grouped.items()
    ]


def explain_garbage(catalog: Catalog, repository: str, text: str, grace: timedelta) -> Explanation | None:
    """Explain an object that is stored and that nothing references; None if there is none of this address."""
    store = catalog.store(repository)
    try:
        address = canonical(text, store.spec.url)
        info = store.stat(address)
    except (AddressError, NotFound):
        return None
    return Explanation(address, info.size, "garbage", info.last_modified + grace, ())


def _terms(ranges: DataFrame, world: World, addresses: Sequence[str]) -> dict[str, list[ExplainedTerm]]:
    """Say of each reference to some addresses until when retention keeps it."""
    rows = read_kept(kept_ranges(ranges), {ONLY_WORLD: world.files})
    wanted = rows.where(f.col("address").isin(list(addresses))).select("address", "key", "holder", "lapse")
    found: dict[str, list[ExplainedTerm]] = {}
    for row in wanted.distinct().orderBy(f.desc("lapse"), "key", "holder").toArrow().to_pylist():
        term = ExplainedTerm(row["key"], row["holder"], row["lapse"])
        found.setdefault(row["address"], []).append(term)
    return {address: terms[:MOST_REFERENCES] for address, terms in found.items()}


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
