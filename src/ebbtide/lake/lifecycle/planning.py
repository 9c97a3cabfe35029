"""Planning a lifecycle run: from a repository's snapshot and policy to decisions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from ebbtide.engine.freezing import Decided
from ebbtide.engine.layout import RunFolder
from ebbtide.lake.catalog.model import Snapshot
from ebbtide.lake.lifecycle.decisions import deduplicated, expired_addresses
from ebbtide.lake.lifecycle.ranges import range_table
from ebbtide.lake.lifecycle.references import Side, references
from ebbtide.lake.lifecycle.world import World
from ebbtide.rules.lake_policy import LakePolicy
from ebbtide.store.base import StoreSpec
from ebbtide.tables.contracts import RANGES

COLLECTOR = "lifecycle"
ONLY_WORLD = 0


def world_of(snapshot: Snapshot, store: StoreSpec, policy: LakePolicy, now: datetime) -> World:
    """See a repository's snapshot as a world."""
    return World(
        store=store,
        namespace=snapshot.repository.namespace,
        policy=policy,
        now=now,
        commits=snapshot.commits,
        branches=snapshot.branches,
        tags=snapshot.tags,
        staged=snapshot.staged,
    )


def decide(spark: SparkSession, snapshot: Snapshot, world: World) -> Decided:
    """Run steps 2 to 4 over a whole repository: a full run."""
    worlds = {ONLY_WORLD: world}
    ranges = range_table(spark, worlds).persist(StorageLevel.DISK_ONLY)
    candidates = expired_addresses(ranges, worlds).persist(StorageLevel.DISK_ONLY)
    touched = candidates.count()
    both = Observation("both")
    known, untouched = _counting(touched, references(ranges, worlds, Side.UNTOUCHED), both)

    def save_snapshot(folder: RunFolder) -> None:
        RANGES.write(ranges, folder.snapshot)

    def release() -> None:
        candidates.unpersist()
        ranges.unpersist()

    return Decided(
        decisions=deduplicated(candidates, untouched, worlds, both),
        touched=touched,
        known_objects=known,
        snapshot=_described(snapshot),
        save_snapshot=save_snapshot,
        release=release,
        warnings=policy_warnings(world.policy),
    )


def _counting(touched: int, untouched: DataFrame, both: Observation) -> tuple[Callable[[], int], DataFrame]:
    """
    Count distinct objects on both sides while the decisions are computed, reading nothing twice.

    What rules touch through one path and not through another is on both sides, and counted once.
    """
    distinct = f.approx_count_distinct("hash").alias("objects")

    def counted() -> int:
        return int(untouched.agg(distinct).toArrow().to_pylist()[0]["objects"])

    if not touched:
        # With nothing to join, Spark would not read the other side at all, and nothing would be counted.
        return counted, untouched
    observation = Observation("untouched")

    def known() -> int:
        try:
            return touched + int(observation.get["objects"]) - int(both.get["objects"])
        except Py4JError:
            # A side without a single row is taken out of the running query, and what it observed with it.
            return touched + counted()

    return known, untouched.observe(observation, distinct)


def _described(snapshot: Snapshot) -> dict[str, Any]:
    """Write down in the manifest what was read, short enough for a person."""
    return {
        "sequence": snapshot.sequence,
        "taken_at": snapshot.taken_at.isoformat(),
        "branches": len(snapshot.branches),
        "tags": len(snapshot.tags),
        "commits": len(snapshot.commits),
        "staged_entries": sum(staged.count for staged in snapshot.staged),
        "default_branch_head": snapshot.branches.get(snapshot.repository.default_branch),
    }


def policy_warnings(policy: LakePolicy) -> tuple[str, ...]:
    """Say what a careful reader of the policy would stop at."""
    return tuple(f"rule {rule.id!r} matches everything" for rule in policy.enabled if rule.prefix == "")
