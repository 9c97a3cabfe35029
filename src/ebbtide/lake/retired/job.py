"""Jobs on a deleted repository: plan, apply, and to forget it when nothing of it is left."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import datetime, timedelta

from pyspark.sql import SparkSession

from ebbtide.engine.applying import Applied, ApplyOptions, apply_plan, check_plan
from ebbtide.engine.fencing import unfenced_afterwards
from ebbtide.engine.freezing import FreezeOptions, OnStep, Subject, make_plan, no_step
from ebbtide.errors import StoreError
from ebbtide.lake.catalog.model import RetiredRepository
from ebbtide.lake.lifecycle.memory import forget_memory
from ebbtide.lake.retired.listing import has_own
from ebbtide.lake.retired.planning import RetiredPlanner
from ebbtide.lake.retired.target import RetiredTarget, find_retired
from ebbtide.lake.rulebook import GRACE
from ebbtide.lake.workshop import Workshop
from ebbtide.ledger.locks import target_lock
from ebbtide.ledger.runs import RunState
from ebbtide.plan.breaker import BreakerLimits
from ebbtide.plan.decision import DELETED_REPOSITORY
from ebbtide.plan.manifest import Manifest
from ebbtide.rules.instant import format_instant
from ebbtide.tables.progress import OnProgress, no_progress


def plan_retired(
    spark: SparkSession,
    shop: Workshop,
    gone: RetiredRepository,
    *,
    now: datetime,
    options: FreezeOptions,
    grace: timedelta = GRACE,
    on_progress: OnProgress = no_progress,
    on_step: OnStep = no_step,
) -> Manifest:
    """Plan the deletion of all that a deleted repository left: list, decide, freeze, and delete nothing."""
    rules = json.dumps(
        {"deleted": format_instant(gone.deleted), "grace_seconds": grace.total_seconds()}, sort_keys=True
    )
    subject = Subject(
        target=f"lake:{gone.name}",
        target_uid=gone.uid,
        namespace=gone.namespace,
        collector=DELETED_REPOSITORY,
        policy=rules,
        policy_hash=hashlib.sha256(rules.encode()).hexdigest(),
        now=now,
    )
    with target_lock(shop.root, gone.uid, f"ebb plan lake:{gone.name} --deleted"):
        store = shop.catalog.retired_store(gone.uid)
        return make_plan(
            spark,
            shop.root,
            shop.ledger,
            subject,
            RetiredPlanner(spark, store, gone, grace, on_progress, on_step).decide,
            made_at=shop.clock(),
            options=replace(options, limits=_no_limits(options.limits)),
            on_progress=on_progress,
            on_step=on_step,
        )


def check_retired(shop: Workshop, manifest: Manifest, options: ApplyOptions) -> None:
    """Refuse, before Spark starts, a plan that must not be applied."""
    strict = replace(options, limits=_no_limits(options.limits))
    check_plan(manifest, RetiredTarget(shop.catalog, manifest.target_uid), strict, shop.clock())


def apply_retired(
    spark: SparkSession,
    shop: Workshop,
    manifest: Manifest,
    *,
    options: ApplyOptions,
    on_progress: OnProgress = no_progress,
    on_step: OnStep = no_step,
) -> Applied:
    """Apply a plan, then forget the repository if nothing of its own is left."""
    target = RetiredTarget(shop.catalog, manifest.target_uid)
    with (
        target_lock(shop.root, manifest.target_uid, f"ebb apply {manifest.run_id}"),
        # Nothing is fenced, but tasks are waited for: one that deletes on after an error must not outlive the
        # lock, for when the namespace is free a new repository may write metadata under the same names.
        unfenced_afterwards(spark, target, manifest),
    ):
        if shop.ledger.run(manifest.run_id).state is not RunState.SUCCEEDED:
            check_retired(shop, manifest, options)
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
            _forget_if_collected(shop, manifest.target_uid)
        except StoreError as broken:
            raise StoreError(
                f"run {manifest.run_id} succeeded, but what is left could not be listed: {broken}",
                fix=f"apply it again ('ebb apply {manifest.run_id}'): that looks again and deletes no more",
            ) from broken
        on_step("repository forgotten")
    return applied


def _forget_if_collected(shop: Workshop, uid: str) -> None:
    """
    Free the namespace, unless something of the repository's own is in it: too young, or written since.

    The store is asked and not the plan, for an upload that was under way may have ended after its listing.
    """
    gone = find_retired(shop.catalog, uid)
    if gone is None or has_own(shop.catalog.retired_store(uid), gone):
        return
    # Killed between the two, the next apply finds no memory to remove, and forgets.
    forget_memory(shop.root, uid)
    shop.catalog.forget_retired(uid)


def _no_limits(limits: BreakerLimits) -> BreakerLimits:
    """Let any delete trip the breaker: strangers in the namespace do not make it less than everything."""
    return replace(limits, max_delete_fraction=0.0, min_objects=0)
