"""Plans and applies of each kind of target in one call, through the engine as the commands do it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pyspark.sql import SparkSession

from ebbtide.core.manifest import Manifest
from ebbtide.engine.apply import Applied, ApplyOptions, apply, check
from ebbtide.engine.bin_expiry import ExpiredItems
from ebbtide.engine.plan import PlanOptions, plan
from ebbtide.targets.lake.context import LakeContext
from ebbtide.targets.lake.repository import CatalogRepository, DeletedCatalogRepository
from ebbtide.targets.lake.target import LakeTarget
from ebbtide.targets.repository.collector import RepositoryCollector
from ebbtide.targets.repository.deleted_repository import DeletedRepositoryCollector
from ebbtide.targets.repository.model import DeletedRepository
from ebbtide.targets.repository.rules import RepositoryRules, stored_rules
from ebbtide.targets.s3.collector import BucketCollector
from ebbtide.targets.s3.context import BucketContext, EffectiveRules
from ebbtide.targets.s3.target import BucketTarget
from ebbtide.targets.target import Target, bin_of


def plan_lake(
    spark: SparkSession,
    shop: LakeContext,
    repository: str,
    *,
    now: datetime,
    options: PlanOptions,
    rules: RepositoryRules | None = None,
    full: bool = False,
    **how: Any,
) -> Manifest:
    """Plan a run on a repository by some rules, or else by its lifecycle policy."""
    found = CatalogRepository(shop.catalog, repository)
    rules = rules or stored_rules(found, lifecycle=True)
    collector = RepositoryCollector(shop.context, found, rules, full)
    return plan(spark, shop.context, collector, now=now, options=options, **how)


def plan_deleted(
    spark: SparkSession,
    shop: LakeContext,
    gone: DeletedRepository,
    *,
    now: datetime,
    options: PlanOptions,
    **how: Any,
) -> Manifest:
    """Plan a run on what a deleted repository left."""
    collector = DeletedRepositoryCollector(shop.context, DeletedCatalogRepository(shop.catalog, gone))
    return plan(spark, shop.context, collector, now=now, options=options, **how)


def plan_bucket(
    spark: SparkSession,
    shop: BucketContext,
    rules: EffectiveRules,
    *,
    now: datetime,
    options: PlanOptions,
    report: str | None = None,
    **how: Any,
) -> Manifest:
    """Plan a run on a bucket."""
    collector = BucketCollector(shop, rules, report)
    return plan(spark, shop.context, collector, now=now, options=options, **how)


def plan_bin(spark: SparkSession, target: Target, *, options: PlanOptions) -> Manifest:
    """Plan a run on the recycle bin of a target, at the clock's time."""
    now = target.context.clock()
    return plan(spark, target.context, ExpiredItems(bin_of(target)), now=now, options=options)


def plan_lake_bin(
    spark: SparkSession, shop: LakeContext, repository: str, *, options: PlanOptions
) -> Manifest:
    """Plan a run on the bin of a repository."""
    return plan_bin(spark, LakeTarget(shop, repository), options=options)


def plan_bucket_bin(spark: SparkSession, shop: BucketContext, *, options: PlanOptions) -> Manifest:
    """Plan a run on the bin of a bucket."""
    return plan_bin(spark, BucketTarget(shop), options=options)


def apply_lake(
    spark: SparkSession, shop: LakeContext, manifest: Manifest, *, options: ApplyOptions, **how: Any
) -> Applied:
    """Apply a plan for a repository."""
    return _apply(spark, _lake(shop, manifest), manifest, options, **how)


def apply_bucket(
    spark: SparkSession, shop: BucketContext, manifest: Manifest, *, options: ApplyOptions, **how: Any
) -> Applied:
    """Apply a plan for a bucket."""
    return _apply(spark, BucketTarget(shop), manifest, options, **how)


def check_lake(shop: LakeContext, manifest: Manifest, options: ApplyOptions) -> None:
    """Check a plan for a repository as `ebb apply` does before it starts Spark."""
    _check(_lake(shop, manifest), manifest, options)


def check_bucket(shop: BucketContext, manifest: Manifest, options: ApplyOptions) -> None:
    """Check a plan for a bucket as `ebb apply` does before it starts Spark."""
    _check(BucketTarget(shop), manifest, options)


def _lake(shop: LakeContext, manifest: Manifest) -> LakeTarget:
    return LakeTarget(shop, manifest.target.removeprefix("lake:"))


def _apply(
    spark: SparkSession, target: Target, manifest: Manifest, options: ApplyOptions, **how: Any
) -> Applied:
    return apply(spark, target.context, target.collector_of(manifest), manifest, options=options, **how)


def _check(target: Target, manifest: Manifest, options: ApplyOptions) -> None:
    check(target.context, target.collector_of(manifest), manifest, options)
