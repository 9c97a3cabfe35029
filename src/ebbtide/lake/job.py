"""
Jobs on a lake: plan, apply, and what both leave beside the data.

The lifecycle job of seed 000 in its five parts:

1. extract data from the policy        `policy_table`, `current_rules`
2. find potential commits              `potential_commits`, `commit_ties`, `range_table`
3. find deduplications                 `deduplicated`
4. find addresses to be removed        `decisions_at`
5. delete                              `apply_lake`, from a plan that people have seen

The flows of seed 001 are in `ebbtide.lake.uncommitted.flows`; step 8 of the first, to save what the next run
builds on, is `save_states`, when a run has succeeded. A repository that was deleted has a
job of its own, `ebbtide.lake.retired.job`; its plans too are applied by `apply_lake`.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from ebbtide.engine.applying import Applied, ApplyOptions, apply_plan, check_plan
from ebbtide.engine.fencing import unfenced_afterwards
from ebbtide.engine.freezing import FreezeOptions, OnStep, Subject, make_plan, no_step
from ebbtide.engine.layout import run_folder
from ebbtide.engine.restoring import restored_since
from ebbtide.errors import Busy, EbbtideError, StoreError
from ebbtide.lake.emptying import lake_bin_keeper
from ebbtide.lake.lifecycle.outputs import has_policy, write_addresses, write_policy, write_stats
from ebbtide.lake.lifecycle.policies import PolicyRun, policy_table
from ebbtide.lake.planning import Planner
from ebbtide.lake.recycling import days_in_bin
from ebbtide.lake.restoring import restorer
from ebbtide.lake.retired.job import apply_retired, check_retired
from ebbtide.lake.rulebook import Rulebook, parse_rulebook, stored_rulebook
from ebbtide.lake.target import LakeTarget
from ebbtide.lake.uncommitted.planning import save_states
from ebbtide.lake.workshop import Workshop
from ebbtide.ledger.locks import target_lock
from ebbtide.ledger.runs import Ledger, RunState
from ebbtide.plan.decision import DELETED_REPOSITORY, EMPTY_BIN, Collector
from ebbtide.plan.manifest import Manifest
from ebbtide.tables.contracts import PLAN
from ebbtide.tables.failures import own_errors
from ebbtide.tables.progress import OnProgress, no_progress


def plan_lake(
    spark: SparkSession,
    shop: Workshop,
    repository: str,
    *,
    now: datetime,
    options: FreezeOptions,
    rulebook: Rulebook | None = None,
    full: bool = False,
    on_progress: OnProgress = no_progress,
    on_step: OnStep = no_step,
) -> Manifest:
    """Plan a run by a rulebook, or else by the lifecycle policy: read, decide, freeze, and delete nothing."""
    rulebook = rulebook or stored_rulebook(shop.catalog, repository, lifecycle=True)
    found = shop.catalog.repository(repository)
    subject = Subject(
        target=f"lake:{repository}",
        target_uid=found.uid,
        namespace=found.namespace,
        collector=rulebook.name,
        policy=rulebook.text,
        policy_hash=rulebook.hash,
        now=now,
        recycle_days=days_in_bin(shop.ledger, found.uid, rulebook),
    )
    planner = Planner(spark, shop, found, rulebook, now, full, on_progress, on_step)
    with target_lock(shop.root, found.uid, f"ebb plan lake:{repository}"):
        restorer(shop, found).finish_interrupted()
        manifest = make_plan(
            spark,
            shop.root,
            shop.ledger,
            subject,
            planner.decide,
            made_at=shop.clock(),
            options=options,
            on_progress=on_progress,
            on_step=on_step,
        )
        _write_outputs(spark, shop, manifest)
        on_step("outputs written")
    return manifest


def check_lake(shop: Workshop, manifest: Manifest, options: ApplyOptions) -> None:
    """Refuse, before Spark starts, a plan that must not be applied; a refused run keeps no gate closed."""
    if manifest.collector == DELETED_REPOSITORY:
        check_retired(shop, manifest, options)
        return
    if manifest.collector == EMPTY_BIN:
        lake_bin_keeper(shop, manifest.target.removeprefix("lake:")).check(manifest, options)
        return
    target = LakeTarget(shop.catalog, manifest.target.removeprefix("lake:"), shop.ledger)
    try:
        check_plan(manifest, target, options, shop.clock())
    except EbbtideError:
        # Who cannot get the lock meets a run at work, which opens the gate itself.
        with suppress(Busy), target_lock(shop.root, manifest.target_uid, f"ebb apply {manifest.run_id}"):
            target.unfence(manifest)
        raise


def apply_lake(
    spark: SparkSession,
    shop: Workshop,
    manifest: Manifest,
    *,
    options: ApplyOptions,
    on_progress: OnProgress = no_progress,
    on_step: OnStep = no_step,
) -> Applied:
    """Apply a plan, then leave the day's statistics beside the data, unless nothing is to be left there."""
    if manifest.collector == DELETED_REPOSITORY:
        return apply_retired(spark, shop, manifest, options=options, on_progress=on_progress, on_step=on_step)
    if manifest.collector == EMPTY_BIN:
        keeper = lake_bin_keeper(shop, manifest.target.removeprefix("lake:"))
        return keeper.apply(spark, manifest, options=options, on_progress=on_progress, on_step=on_step)
    name = manifest.target.removeprefix("lake:")
    target = LakeTarget(shop.catalog, name, shop.ledger, manifest)
    with (
        target_lock(shop.root, manifest.target_uid, f"ebb apply {manifest.run_id}"),
        unfenced_afterwards(spark, target, manifest),
    ):
        if shop.ledger.run(manifest.run_id).state is not RunState.SUCCEEDED:
            check_plan(manifest, target, options, shop.clock())
            _write_outputs(spark, shop, manifest, again=True)
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
        try:
            _write_afterwards(shop, manifest, applied)
        except StoreError as broken:
            raise StoreError(
                f"run {manifest.run_id} succeeded, but its statistics could not be written: {broken}",
                fix=f"apply it again ('ebb apply {manifest.run_id}'): that writes them and deletes no more",
            ) from broken
        on_step("statistics written")
    return applied


def _write_afterwards(shop: Workshop, manifest: Manifest, applied: Applied) -> None:
    """Leave beside the data what a run did, and what the next one may build on."""
    store = shop.catalog.store(manifest.target.removeprefix("lake:"))
    if _asked(manifest, Collector.LIFECYCLE):
        # The day on which it ended, not today: applying a finished run again must not count it twice.
        finished = shop.ledger.run(manifest.run_id).finished_at or shop.clock()
        write_stats(store, manifest, applied.outcomes.values(), finished)
    # What was restored since is to be found again, in partitions that this run had settled.
    if _asked(manifest, Collector.UNCOMMITTED) and not restored_since(
        shop.ledger, manifest.target_uid, manifest.run_id
    ):
        save_states(store, run_folder(shop.root, manifest.run_id), manifest, applied.outcomes)


def _asked(manifest: Manifest, collector: Collector) -> bool:
    return collector in manifest.collector.split("+")


def _write_outputs(spark: SparkSession, shop: Workshop, manifest: Manifest, *, again: bool = False) -> None:
    """
    Leave a lifecycle plan beside the data; the policy comes last: where it is, the addresses are too.

    A planner that was killed after it had recorded the plan has not come to this; apply does it `again`.
    """
    store = shop.catalog.store(manifest.target.removeprefix("lake:"))
    if not _asked(manifest, Collector.LIFECYCLE) or (again and has_policy(store, manifest.run_id)):
        return
    if manifest.waves:
        with own_errors():
            plan = PLAN.read(spark, run_folder(shop.root, manifest.run_id).plan)
            found = plan.where(f.col("collector") == str(Collector.LIFECYCLE))
            write_addresses(found, store.spec, manifest.run_id, manifest.now)
    write_policy(store, manifest.run_id, policy_table(policy_runs(shop.ledger, manifest.target_uid)))


def policy_runs(ledger: Ledger, target_uid: str) -> list[PolicyRun]:
    """Give all runs of a repository that asked lifecycle, as the policy table sees them."""
    return [
        PolicyRun(run.run_id, run.now, policy, run.state is RunState.SUCCEEDED)
        for run in ledger.runs(target_uid)
        if run.state is not RunState.ABANDONED
        and (policy := parse_rulebook(run.policy, run.collector).lifecycle) is not None
    ]
