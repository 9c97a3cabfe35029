"""Jobs on a bucket: plan and apply."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from pyspark.sql import SparkSession

from ebbtide.bucket.acting import BucketActor
from ebbtide.bucket.actions.deleter import BucketDeleter
from ebbtide.bucket.bin_place import BIN_ROOT
from ebbtide.bucket.model import Versioning
from ebbtide.bucket.planning import BucketPlanner
from ebbtide.bucket.recycling import BucketRecycler, warnings_of_the_bin
from ebbtide.bucket.restoring import bucket_bin, bucket_bin_keeper, bucket_restorer
from ebbtide.bucket.shop import BucketShop
from ebbtide.bucket.sources import Source, Sourced, planned_rules
from ebbtide.bucket.target import BucketTarget
from ebbtide.bucket.transition.mover import Mover
from ebbtide.bucket.version_bin import VERSIONS
from ebbtide.bucket.version_recycling import VersionRecycler
from ebbtide.engine.applying import Applied, ApplyOptions, apply_plan, check_plan
from ebbtide.engine.deleting import Attempt, Deleter
from ebbtide.engine.fencing import unfenced_afterwards
from ebbtide.engine.freezing import Decided, FreezeOptions, OnStep, Subject, make_plan, no_step
from ebbtide.engine.layout import RunFolder
from ebbtide.errors import BadInput
from ebbtide.ledger.locks import target_lock
from ebbtide.ledger.runs import RunState
from ebbtide.plan.decision import EMPTY_BIN
from ebbtide.plan.manifest import Manifest
from ebbtide.plan.recycling import items_of, label_of
from ebbtide.tables.progress import OnProgress, no_progress

COLLECTOR = "bucket"

__all__ = ["BucketShop", "apply_bucket", "check_bucket", "no_bin_when_suspended", "plan_bucket"]


def plan_bucket(
    spark: SparkSession,
    shop: BucketShop,
    rules: Sourced,
    *,
    now: datetime,
    options: FreezeOptions,
    report: str | None = None,
    on_progress: OnProgress = no_progress,
    on_step: OnStep = no_step,
) -> Manifest:
    """Plan what the rules want done: list or read a report, judge, freeze, and change nothing."""
    subject = Subject(
        target=shop.spec.url,
        target_uid=shop.uid,
        namespace=shop.spec.url,
        collector=COLLECTOR,
        policy=rules.policy,
        policy_hash=rules.policy_hash,
        now=now,
        recycle_days=_recycle_days(shop, rules.versioning),
    )
    planner = BucketPlanner(spark, shop.spec, rules, now, report, on_progress, on_step)

    def decide(folder: RunFolder) -> Decided:
        decided = planner.decide(folder)
        if subject.recycle_days is None:
            return decided
        return replace(decided, warnings=(*decided.warnings, *warnings_of_the_bin(shop.spec)))

    with target_lock(shop.root, shop.uid, f"ebb plan {shop.spec.url}"):
        bucket_restorer(shop).finish_interrupted()
        return make_plan(
            spark,
            shop.root,
            shop.ledger,
            subject,
            decide,
            made_at=shop.clock(),
            options=options,
            on_progress=on_progress,
            on_step=on_step,
        )


def check_bucket(shop: BucketShop, manifest: Manifest, options: ApplyOptions) -> None:
    """Refuse, before Spark starts, a plan that must not be applied."""
    if manifest.collector == EMPTY_BIN:
        bucket_bin_keeper(shop).check(manifest, options)
        return
    check_plan(manifest, _target(shop, manifest), options, shop.clock())


def apply_bucket(
    spark: SparkSession,
    shop: BucketShop,
    manifest: Manifest,
    *,
    options: ApplyOptions,
    on_progress: OnProgress = no_progress,
    on_step: OnStep = no_step,
) -> Applied:
    """Do what a plan says, as far as it still holds."""
    if manifest.collector == EMPTY_BIN:
        keeper = bucket_bin_keeper(shop)
        return keeper.apply(spark, manifest, options=options, on_progress=on_progress, on_step=on_step)
    target = _target(shop, manifest)
    with (
        target_lock(shop.root, shop.uid, f"ebb apply {manifest.run_id}"),
        # Nothing is fenced, but tasks are waited for: one that deletes on must not outlive the lock.
        unfenced_afterwards(spark, target, manifest),
    ):
        if shop.ledger.run(manifest.run_id).state is not RunState.SUCCEEDED:
            check_bucket(shop, manifest, options)
        return apply_plan(
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


def _target(shop: BucketShop, manifest: Manifest) -> BucketTarget:
    planned = planned_rules(manifest.policy)
    # Rules that came from a file are the plan's own: nobody can ask whether they still are what is meant.
    given = planned.configuration if planned.source is Source.FILE else None

    def make_deleter(attempt: Attempt) -> Deleter:
        mover = Mover(shop.spec, attempt, planned.versioning, shop.locations, shop.root, run=manifest.run_id)
        usual = BucketActor(BucketDeleter(shop.spec, attempt, planned.versioning), mover)
        with_versions = planned.versioning is Versioning.ENABLED
        label = label_of(manifest, attempt.now(), VERSIONS if with_versions else "")
        if label is None:
            return usual
        # Before the first object is moved, so whatever lies in the bin says what it is.
        bucket_bin(shop).write(label)
        place = items_of(BIN_ROOT, label.folder)
        if with_versions:
            return VersionRecycler(usual, shop.spec, attempt, place)
        return BucketRecycler(usual, shop.spec, attempt, place)

    return BucketTarget(lambda: shop.sourced(planned.source, given), make_deleter, shop.ledger)


def _recycle_days(shop: BucketShop, versioning: Versioning) -> int | None:
    """Say for how long what would be lost is set aside; where versions are suspended that cannot be done."""
    days = shop.ledger.recycling_days(shop.uid)
    if days is not None and versioning is Versioning.SUSPENDED:
        raise no_bin_when_suspended(shop.spec.url)
    return days


def no_bin_when_suspended(bucket: str) -> BadInput:
    """Say that a bucket whose versioning is suspended has no bin."""
    return BadInput(
        f"the versioning of {bucket} is suspended, and such a bucket has no recycle bin",
        why="a delete marker there destroys the null version below it",
        fix=f"enable versioning, or switch the bin off: ebb recycle set {bucket} --off",
    )
