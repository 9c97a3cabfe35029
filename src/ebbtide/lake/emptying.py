"""
Emptying a repository's recycle bin of what has lain there for its time: a plan like any other.

Its breaker compares with what is in the bin, and what applies it reaches nothing but the bin's folder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.engine.applying import Applied, ApplyOptions, apply_plan, check_plan
from ebbtide.engine.deleting import Attempt, Deleter, store_deleter
from ebbtide.engine.fencing import Unfenced, unfenced_afterwards
from ebbtide.engine.freezing import Decided, FreezeOptions, OnStep, Subject, make_plan, no_step
from ebbtide.engine.layers import TOUCHED, Layers
from ebbtide.engine.layout import RunFolder
from ebbtide.engine.restoring import check_not_restored_since
from ebbtide.errors import EbbtideError, StalePlan
from ebbtide.lake.catalog.model import Repository
from ebbtide.lake.inventory import inventory
from ebbtide.lake.recycling import BIN_ROOT, lake_bin
from ebbtide.lake.restoring import restorer
from ebbtide.lake.workshop import Workshop
from ebbtide.ledger.locks import target_lock
from ebbtide.ledger.runs import RunState
from ebbtide.plan.decision import EMPTY_BIN, HoldReason
from ebbtide.plan.manifest import Manifest
from ebbtide.plan.recycling import Label, items_of
from ebbtide.rules.instant import days_after, format_instant, to_micros
from ebbtide.tables.contracts import INVENTORY, STANDINGS
from ebbtide.tables.digest import address_hash
from ebbtide.tables.progress import OnProgress, no_progress, watch

_LABELS = "folder string, run long, set_aside long, ends long, held_by string"


def plan_bin(
    spark: SparkSession,
    shop: Workshop,
    repository: str,
    *,
    now: datetime,
    options: FreezeOptions,
    older_than: int | None = None,
    on_progress: OnProgress = no_progress,
    on_step: OnStep = no_step,
) -> Manifest:
    """Plan to delete for good what the bin has kept for its days, or for `older_than` days."""
    found = shop.catalog.repository(repository)
    rules = json.dumps({"bin": "expired" if older_than is None else f"older than {older_than} days"})
    subject = Subject(
        target=f"lake:{repository}",
        target_uid=found.uid,
        namespace=found.namespace,
        collector=EMPTY_BIN,
        policy=rules,
        policy_hash=hashlib.sha256(rules.encode()).hexdigest(),
        now=now,
    )
    with target_lock(shop.root, found.uid, f"ebb plan lake:{repository} --bin"):
        restorer(shop, found).finish_interrupted()
        return make_plan(
            spark,
            shop.root,
            shop.ledger,
            subject,
            BinPlanner(spark, shop, found, older_than, on_progress, on_step).decide,
            made_at=shop.clock(),
            options=options,
            on_progress=on_progress,
            on_step=on_step,
        )


@dataclass(frozen=True)
class BinPlanner:
    """Plans one run over a repository's bin; the caller holds its lock."""

    spark: SparkSession
    shop: Workshop
    repository: Repository
    older_than: int | None = None
    on_progress: OnProgress = no_progress
    on_step: OnStep = no_step

    def decide(self, folder: RunFolder) -> Decided:
        """List the bin on the executors, and hold each item until its days are over."""
        contents = lake_bin(self.shop.catalog, self.repository.name)
        damage: list[EbbtideError] = []
        labels = contents.labels(damage.append)
        places = [(items_of(BIN_ROOT, label.folder),) for label in labels]
        with watch(self.spark, "listing", self.on_progress):
            prefixes = self.spark.createDataFrame(places, "prefix string")
            listed = inventory(prefixes, contents.store.spec, self.repository.namespace)
            INVENTORY.write(listed, folder.scratch / "inventory")
        self.on_step("bin listed")
        listed = INVENTORY.read(self.spark, folder.scratch / "inventory")
        place = folder.scratch / "standings"
        STANDINGS.write(self._standings(listed, labels), place, partition_by="kind")
        self.on_step("standings written")
        odd = listed.where(f.col("address").isNull()).count()
        warnings = [f"{broken.what}; what lies there is left alone" for broken in damage]
        warnings += [f"{odd} objects with unusual names are left alone"] if odd else []
        return Decided(
            Layers(place), {"bins": 1, "bin_folders": len(labels)}, tuple(warnings), without_buried=True
        )

    def _standings(self, listed: DataFrame, labels: Sequence[Label]) -> DataFrame:
        rows = [
            (label.folder, label.run, to_micros(label.set_aside), to_micros(self._end(label)), _kept(label))
            for label in labels
        ]
        known = self.spark.createDataFrame(rows, _LABELS)
        parts = f.regexp_extract("key", f"^{BIN_ROOT}([^/]+)/", 1)
        joined = listed.where(f.col("address").isNotNull()).withColumn("folder", parts)
        items = f.length(f.concat(f.lit(items_of(BIN_ROOT, "")), f.col("folder")))
        return STANDINGS.check(
            joined.join(f.broadcast(known), "folder").select(
                f.lit(0).alias("world"),
                address_hash("key").alias("hash"),
                f.col("key").alias("address"),
                f.timestamp_micros("ends").alias("deadline"),
                f.lit(str(HoldReason.NOT_YET)).alias("reason"),
                "held_by",
                f.array(f.substring(f.col("key"), items + 1, f.length("key"))).alias("paths"),
                f.array(f.concat(f.lit("recycled by run "), f.col("run"))).alias("rules"),
                f.array().cast("array<string>").alias("branches"),
                "size",
                f.timestamp_micros("set_aside").alias("created"),
                f.lit(EMPTY_BIN).alias("collector"),
                f.lit(TOUCHED).alias("kind"),
            )
        )

    def _end(self, label: Label) -> datetime:
        return label.expires if self.older_than is None else days_after(label.set_aside, self.older_than)


def _kept(label: Label) -> str:
    return f"set aside {format_instant(label.set_aside)} for {label.days} days"


@dataclass(frozen=True)
class BinTarget(Unfenced):
    """
    A repository's bin as the target of a plan.

    There is nothing to fence: nothing refers to what lies in the bin, and only a restore takes it from there,
    which waits for the target's lock and makes the plan stale.
    """

    shop: Workshop
    name: str

    @property
    def in_order(self) -> bool:
        """Never: each object is deleted for itself."""
        return False

    def deleter(self, attempt: Attempt) -> Deleter:
        """Delete what lies in the bin, and nothing else, whatever the plan says."""
        return store_deleter(self.shop.catalog.store(self.name).spec, attempt, only_below=BIN_ROOT)

    def check_still_meant(self, manifest: Manifest) -> None:
        """Stop if this is no longer the repository or the namespace that was planned."""
        repository = self.shop.catalog.repository(self.name)
        if (repository.uid, repository.namespace) != (manifest.target_uid, manifest.namespace):
            raise StalePlan(
                f"{manifest.target} is now another repository, or lies elsewhere",
                why="the plan was made for something else",
                fix="make a new plan",
            )
        check_not_restored_since(self.shop.ledger, manifest)


def check_bin(shop: Workshop, manifest: Manifest, options: ApplyOptions) -> None:
    """Refuse, before Spark starts, a plan that must not be applied."""
    check_plan(manifest, BinTarget(shop, manifest.target.removeprefix("lake:")), options, shop.clock())


def apply_bin(
    spark: SparkSession,
    shop: Workshop,
    manifest: Manifest,
    *,
    options: ApplyOptions,
    on_progress: OnProgress = no_progress,
    on_step: OnStep = no_step,
) -> Applied:
    """Delete for good what a plan says, and then the labels of the folders that are empty."""
    target = BinTarget(shop, manifest.target.removeprefix("lake:"))
    with (
        target_lock(shop.root, manifest.target_uid, f"ebb apply {manifest.run_id}"),
        unfenced_afterwards(spark, target, manifest),
    ):
        if shop.ledger.run(manifest.run_id).state is not RunState.SUCCEEDED:
            check_bin(shop, manifest, options)
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
        contents = lake_bin(shop.catalog, target.name)
        for label in contents.labels(lambda _broken: None):
            contents.tidy(label)
        on_step("labels tidied")
    return applied
