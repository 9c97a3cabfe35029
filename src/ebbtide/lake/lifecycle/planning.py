"""Planning a lifecycle run: from a repository's snapshot and policy to standings."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import datetime
from typing import Any

from pyspark.sql import SparkSession

from ebbtide.engine.freezing import Decided, OnStep, no_step
from ebbtide.engine.layout import RunFolder
from ebbtide.lake.catalog.model import Snapshot
from ebbtide.lake.lifecycle.increments import Visited, refreshed, visited
from ebbtide.lake.lifecycle.memory import Memory
from ebbtide.lake.metadata.ranges import range_table
from ebbtide.lake.metadata.world import World
from ebbtide.rules.lake_policy import LakePolicy
from ebbtide.store.base import StoreSpec
from ebbtide.tables.contracts import RANGES

COLLECTOR = "lifecycle"
ONLY_WORLD = 0


def world_of(snapshot: Snapshot, store: StoreSpec, policy: LakePolicy, now: datetime) -> World:
    """See a repository's snapshot as a world that is read from the store itself."""
    return World(
        store=store,
        namespace=snapshot.repository.namespace,
        policy=policy,
        now=now,
        commits=snapshot.commits,
        branches=snapshot.branches,
        tags=snapshot.tags,
        staged=snapshot.staged,
        default_branch=snapshot.repository.default_branch,
    )


def decide(
    spark: SparkSession,
    snapshot: Snapshot,
    world: World,
    memory: Memory,
    folder: RunFolder,
    *,
    full: bool,
    on_step: OnStep = no_step,
) -> Decided:
    """
    Run steps 2 and 3 over a whole repository; step 4 is the engine's, which knows the time.

    A full run decodes every range and adds up every standing. Any other keeps what cannot have changed since
    the last run, and comes to the same standings.
    """
    begun = memory.begin()
    worlds = {ONLY_WORLD: replace(world, reference_folder=memory.references)}
    RANGES.write(range_table(spark, worlds), folder.snapshot)
    on_step("ranges listed")
    ranges = RANGES.read(spark, folder.snapshot)
    earlier = None if full else memory.recall(spark, world.policy)
    before = earlier.ranges if earlier else None
    seen = visited(ranges, before, worlds, folder.scratch / "affected", again=full)
    on_step("ranges decoded")
    again = refreshed(ranges, worlds, seen)
    kept = memory.keep(spark, world.policy, folder.run_id, folder.snapshot, again, earlier, begun, on_step)
    on_step("standings kept")
    shutil.rmtree(folder.scratch, ignore_errors=True)
    return Decided(
        standings=kept,
        snapshot=_described(snapshot, seen),
        warnings=policy_warnings(world.policy),
    )


def _described(snapshot: Snapshot, seen: Visited) -> dict[str, Any]:
    """Write down in the manifest what was read, short enough for a person."""
    return {
        "sequence": snapshot.sequence,
        "taken_at": snapshot.taken_at.isoformat(),
        "branches": len(snapshot.branches),
        "tags": len(snapshot.tags),
        "commits": len(snapshot.commits),
        "staged_entries": sum(staged.count for staged in snapshot.staged),
        "default_branch_head": snapshot.branches.get(snapshot.repository.default_branch),
        "ranges": seen.ranges,
        "ranges_decoded": seen.new,
    }


def policy_warnings(policy: LakePolicy) -> tuple[str, ...]:
    """Say what a careful reader of the policy would stop at."""
    return tuple(f"rule {rule.id!r} matches everything" for rule in policy.enabled if rule.prefix == "")
