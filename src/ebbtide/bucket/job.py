"""Jobs on a bucket: plan and apply."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from pyspark.sql import SparkSession

from ebbtide.bucket.acting import BucketActor
from ebbtide.bucket.actions.deleter import BucketDeleter
from ebbtide.bucket.planning import BucketPlanner
from ebbtide.bucket.rulebook import BucketRules
from ebbtide.bucket.sources import Source, Sourced, planned_rules, sourced_rules
from ebbtide.bucket.target import BucketTarget
from ebbtide.bucket.transition.mover import Mover
from ebbtide.engine.applying import Applied, ApplyOptions, apply_plan, check_plan
from ebbtide.engine.deleting import Attempt, Deleter
from ebbtide.engine.fencing import unfenced_afterwards
from ebbtide.engine.freezing import FreezeOptions, OnStep, Subject, make_plan, no_step
from ebbtide.ledger.locks import target_lock
from ebbtide.ledger.runs import Ledger, RunState
from ebbtide.plan.manifest import Manifest
from ebbtide.rules.instant import Clock
from ebbtide.rules.s3.configuration import Configuration
from ebbtide.store.base import StoreSpec
from ebbtide.tables.progress import OnProgress, no_progress

COLLECTOR = "bucket"


@dataclass(frozen=True)
class BucketShop:
    """What a job works with: how the bucket is reached, its rules, the ledger, the folder it writes to."""

    spec: StoreSpec
    rules: BucketRules
    ledger: Ledger
    root: Path
    clock: Clock
    locations: Mapping[str, StoreSpec] = field(default_factory=dict)
    """Where transitions can go besides storage classes, by the names that rules give them."""

    @property
    def uid(self) -> str:
        """Name the bucket for locks and runs; two servers may have buckets of one name."""
        endpoint = self.spec.options.get("endpoint", "")
        return hashlib.sha256(f"{endpoint} {self.spec.url}".encode()).hexdigest()[:32]

    def sourced(self, source: Source, given: Configuration | None = None) -> Sourced:
        """Read the rules and the versioning of the bucket."""
        return sourced_rules(self.spec, source, self.rules, given=given, locations=self.locations)


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
    )
    planner = BucketPlanner(spark, shop.spec, rules, now, report, on_progress, on_step)
    with target_lock(shop.root, shop.uid, f"ebb plan {shop.spec.url}"):
        return make_plan(
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


def check_bucket(shop: BucketShop, manifest: Manifest, options: ApplyOptions) -> None:
    """Refuse, before Spark starts, a plan that must not be applied."""
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
        return BucketActor(BucketDeleter(shop.spec, attempt, planned.versioning), mover)

    return BucketTarget(lambda: shop.sourced(planned.source, given), make_deleter)
