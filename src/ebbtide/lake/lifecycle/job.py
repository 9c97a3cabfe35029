"""
The lifecycle job of seed 000: its five parts, in order, over a repository of the embedded catalog.

1. extract data from the policy        `policy_table`, `current_rules`
2. find potential commits              `potential_commits`, `commit_ties`, `range_table`
3. find deduplications                 `deduplicated`
4. find addresses to be removed        `decisions_at`
5. delete                              `apply_lifecycle`, from a plan that people have seen
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pyspark.sql import SparkSession

from ebbtide.engine.applying import Applied, ApplyOptions, apply_plan, check_plan
from ebbtide.engine.fencing import unfenced_afterwards
from ebbtide.engine.freezing import FreezeOptions, OnStep, Subject, make_plan, no_step
from ebbtide.engine.layout import run_folder
from ebbtide.errors import Busy, EbbtideError, PolicyError, StoreError
from ebbtide.lake.catalog.catalog import Catalog
from ebbtide.lake.lifecycle.memory import Memory
from ebbtide.lake.lifecycle.outputs import has_policy, write_addresses, write_policy, write_stats
from ebbtide.lake.lifecycle.planning import COLLECTOR, decide, world_of
from ebbtide.lake.lifecycle.policies import PolicyRun, policy_table
from ebbtide.lake.lifecycle.target import LakeTarget
from ebbtide.ledger.locks import target_lock
from ebbtide.ledger.runs import Ledger, RunState
from ebbtide.plan.manifest import Manifest
from ebbtide.rules.instant import Clock
from ebbtide.rules.lake_policy import LakePolicy
from ebbtide.rules.lake_policy_parser import parse_lake_policy, policy_hash, policy_text
from ebbtide.store.base import Store
from ebbtide.tables.contracts import PLAN
from ebbtide.tables.failures import own_errors
from ebbtide.tables.progress import OnProgress, no_progress


@dataclass(frozen=True)
class Workshop:
    """What a job works with: the catalog it looks after, the ledger it keeps, the folder it writes to."""

    catalog: Catalog
    ledger: Ledger
    root: Path
    clock: Clock


def stored_policy(catalog: Catalog, repository: str) -> LakePolicy:
    """Read a repository's policy; none at all, or one that cannot be read, stops the run."""
    stored = catalog.policy(repository)
    if stored is None:
        raise PolicyError(
            f"repository {repository!r} has no lifecycle policy",
            why="without one nothing may be deleted",
            fix=f"set one with 'ebb lake policy set {repository} FILE'",
        )
    return parse_lake_policy(*stored)


def plan_lifecycle(
    spark: SparkSession,
    shop: Workshop,
    repository: str,
    *,
    now: datetime,
    options: FreezeOptions,
    full: bool = False,
    on_progress: OnProgress = no_progress,
    on_step: OnStep = no_step,
) -> Manifest:
    """Plan a run: read what is new since the last, or everything; decide, freeze, and delete nothing."""
    policy = stored_policy(shop.catalog, repository)
    found = shop.catalog.repository(repository)
    subject = Subject(
        target=f"lake:{repository}",
        target_uid=found.uid,
        namespace=found.namespace,
        collector=COLLECTOR,
        policy=policy_text(policy),
        policy_hash=policy_hash(policy),
        now=now,
    )
    store = shop.catalog.store(repository)
    with target_lock(shop.root, found.uid, f"ebb plan lake:{repository}"):
        snapshot = shop.catalog.snapshot(repository)
        world = world_of(snapshot, store.spec, policy, now)
        memory = Memory.of(shop.root, found.uid, found.namespace)
        manifest = make_plan(
            spark,
            shop.root,
            shop.ledger,
            subject,
            lambda folder: decide(spark, snapshot, world, memory, folder, full=full, on_step=on_step),
            made_at=shop.clock(),
            options=options,
            on_progress=on_progress,
            on_step=on_step,
        )
        _write_outputs(spark, shop, store, manifest)
        on_step("outputs written")
    return manifest


def check_lifecycle(shop: Workshop, manifest: Manifest, options: ApplyOptions) -> None:
    """Refuse, before Spark starts, a plan that must not be applied; a refused run keeps no gate closed."""
    target = LakeTarget(shop.catalog, manifest.target.removeprefix("lake:"))
    try:
        check_plan(manifest, target, options, shop.clock())
    except EbbtideError:
        # Who cannot get the lock meets a run at work, which opens the gate itself.
        with suppress(Busy), target_lock(shop.root, manifest.target_uid, f"ebb apply {manifest.run_id}"):
            target.unfence(manifest)
        raise


def apply_lifecycle(
    spark: SparkSession,
    shop: Workshop,
    manifest: Manifest,
    *,
    options: ApplyOptions,
    on_progress: OnProgress = no_progress,
    on_step: OnStep = no_step,
) -> Applied:
    """Apply a plan, then leave the day's statistics beside the data."""
    name = manifest.target.removeprefix("lake:")
    target = LakeTarget(shop.catalog, name)
    with (
        target_lock(shop.root, manifest.target_uid, f"ebb apply {manifest.run_id}"),
        unfenced_afterwards(spark, target, manifest),
    ):
        if shop.ledger.run(manifest.run_id).state is not RunState.SUCCEEDED:
            check_plan(manifest, target, options, shop.clock())
            # A planner that was killed after it had recorded the plan has not come to this.
            if not has_policy(target.catalog.store(name), manifest.run_id):
                _write_outputs(spark, shop, target.catalog.store(name), manifest)
        applied = apply_plan(
            spark,
            shop.root,
            shop.ledger,
            manifest,
            target,
            clock=shop.clock,
            options=options,
            on_progress=on_progress,
            on_step=on_step,
        )
        # The day on which it ended, not today: applying a finished run again must not count it twice.
        finished = shop.ledger.run(manifest.run_id).finished_at or shop.clock()
        try:
            write_stats(shop.catalog.store(name), manifest, applied.outcomes.values(), finished)
        except StoreError as broken:
            raise StoreError(
                f"run {manifest.run_id} succeeded, but its statistics could not be written: {broken}",
                fix=f"apply it again ('ebb apply {manifest.run_id}'): that writes them and deletes no more",
            ) from broken
        on_step("statistics written")
    return applied


def _write_outputs(spark: SparkSession, shop: Workshop, store: Store, manifest: Manifest) -> None:
    """Leave the plan beside the data; the policy comes last, so where it is, the addresses are too."""
    if manifest.waves:
        with own_errors():
            plan = PLAN.read(spark, run_folder(shop.root, manifest.run_id).plan)
            write_addresses(plan, store.spec, manifest.run_id, manifest.now)
    write_policy(store, manifest.run_id, policy_table(policy_runs(shop.ledger, manifest.target_uid)))


def policy_runs(ledger: Ledger, target_uid: str) -> list[PolicyRun]:
    """Give all runs of a repository as the policy table sees them."""
    return [
        PolicyRun(run.run_id, run.now, parse_lake_policy(run.policy), run.state is RunState.SUCCEEDED)
        for run in ledger.runs(target_uid)
        if run.collector == COLLECTOR and run.state is not RunState.ABANDONED
    ]
