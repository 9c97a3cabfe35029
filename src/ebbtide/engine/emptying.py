"""
Emptying a recycle bin of what has lain there for its time: a plan like any other.

Its breaker compares with what is in the bin, and what applies it reaches nothing but the bin's folder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.engine.applying import Applied, ApplyOptions, apply_plan, check_plan
from ebbtide.engine.bins import Bin
from ebbtide.engine.deleting import Attempt, Deleter, store_deleter
from ebbtide.engine.fencing import Unfenced, unfenced_afterwards
from ebbtide.engine.freezing import Decided, FreezeOptions, OnStep, Subject, make_plan, no_step
from ebbtide.engine.layers import TOUCHED, Layers
from ebbtide.engine.layout import RunFolder
from ebbtide.engine.restoring import check_not_restored_since
from ebbtide.errors import EbbtideError
from ebbtide.ledger.locks import target_lock
from ebbtide.ledger.runs import Ledger, RunState
from ebbtide.plan.decision import EMPTY_BIN, HoldReason
from ebbtide.plan.manifest import Manifest
from ebbtide.plan.recycling import Label, items_of
from ebbtide.rules.instant import Clock, days_after, format_instant, to_micros
from ebbtide.store.base import StoreSpec
from ebbtide.store.opening import open_store
from ebbtide.tables.contracts import STANDINGS
from ebbtide.tables.digest import address_hash
from ebbtide.tables.progress import OnProgress, no_progress, watch

_FOLDERS = "prefix string, run long, set_aside long, ends long, held_by string"
_LISTED = "key string, prefix string, run long, set_aside long, ends long, held_by string, size bigint"
_COPIED = ("prefix", "run", "set_aside", "ends", "held_by")


@dataclass(frozen=True)
class BinKeeper(Unfenced):
    """
    A target's bin as the target of plans of its own.

    There is nothing to fence: nothing refers to what lies in the bin, and only a restore takes it from there,
    which waits for the target's lock and makes the plan stale.
    """

    bin: Bin
    target: str
    namespace: str
    ledger: Ledger
    root: Path
    clock: Clock
    check_same: Callable[[Manifest], None]
    """Stops with StalePlan if the bin's owner is not the one that was planned."""
    make_deleter: Callable[[Attempt], Deleter] | None = None
    """Makes what deletes in the bin where to delete an object is not enough."""

    @property
    def in_order(self) -> bool:
        """Never: each object is deleted for itself."""
        return False

    def deleter(self, attempt: Attempt) -> Deleter:
        """Delete what lies in the bin, and nothing else, whatever the plan says."""
        if self.make_deleter is not None:
            return self.make_deleter(attempt)
        return store_deleter(self.bin.store.spec, attempt, only_below=self.bin.root)

    def check_still_meant(self, manifest: Manifest) -> None:
        """Stop if this is no longer the target that was planned, or something was restored since."""
        self.check_same(manifest)
        check_not_restored_since(self.ledger, manifest)

    def plan(
        self,
        spark: SparkSession,
        *,
        options: FreezeOptions,
        older_than: int | None = None,
        on_progress: OnProgress = no_progress,
        on_step: OnStep = no_step,
    ) -> Manifest:
        """Plan, under the caller's lock, to delete what was kept for its days, or for `older_than` days."""
        now = self.clock()
        rules = json.dumps({"bin": "expired" if older_than is None else f"older than {older_than} days"})
        subject = Subject(
            target=self.target,
            target_uid=self.bin.target_uid,
            namespace=self.namespace,
            collector=EMPTY_BIN,
            policy=rules,
            policy_hash=hashlib.sha256(rules.encode()).hexdigest(),
            now=now,
        )
        planner = BinPlanner(spark, self.bin, older_than, on_progress, on_step)
        return make_plan(
            spark,
            self.root,
            self.ledger,
            subject,
            planner.decide,
            made_at=now,
            options=options,
            on_progress=on_progress,
            on_step=on_step,
        )

    def check(self, manifest: Manifest, options: ApplyOptions) -> None:
        """Refuse, before Spark starts, a plan that must not be applied."""
        check_plan(manifest, self, options, self.clock())

    def apply(
        self,
        spark: SparkSession,
        manifest: Manifest,
        *,
        options: ApplyOptions,
        on_progress: OnProgress = no_progress,
        on_step: OnStep = no_step,
    ) -> Applied:
        """Delete for good what a plan says, and then the labels of the folders that are empty."""
        with (
            target_lock(self.root, manifest.target_uid, f"ebb apply {manifest.run_id}"),
            unfenced_afterwards(spark, self, manifest),
        ):
            if self.ledger.run(manifest.run_id).state is not RunState.SUCCEEDED:
                self.check(manifest, options)
            applied = apply_plan(
                spark,
                self.root,
                self.ledger,
                manifest,
                self,
                clock=self.clock,
                options=options,
                on_progress=on_progress,
                on_step=on_step,
            )
            for label in self.bin.labels(lambda _broken: None):
                self.bin.tidy(label)
            on_step("labels tidied")
        return applied


@dataclass(frozen=True)
class BinPlanner:
    """Plans one run over a bin; the caller holds the target's lock."""

    spark: SparkSession
    bin: Bin
    older_than: int | None = None
    on_progress: OnProgress = no_progress
    on_step: OnStep = no_step

    def decide(self, folder: RunFolder) -> Decided:
        """List the bin on the executors, and hold each item until its days are over."""
        damage: list[EbbtideError] = []
        labels = self.bin.labels(damage.append)
        place = folder.scratch / "standings"
        with watch(self.spark, "listing", self.on_progress):
            STANDINGS.write(self._standings(self._listed(labels)), place, partition_by="kind")
        self.on_step("standings written")
        warnings = tuple(f"{broken.what}; what lies there is left alone" for broken in damage)
        return Decided(Layers(place), {"bins": 1, "bin_folders": len(labels)}, warnings, without_buried=True)

    def _listed(self, labels: Sequence[Label]) -> DataFrame:
        rows = [
            (
                items_of(self.bin.root, label.folder),
                label.run,
                to_micros(label.set_aside),
                to_micros(self._end(label)),
                f"set aside {format_instant(label.set_aside)} for {label.days} days",
            )
            for label in labels
        ]
        folders = self.spark.createDataFrame(rows, _FOLDERS).repartition(max(1, len(rows)))
        return folders.mapInArrow(_Lister(self.bin.store.spec), _LISTED)

    def _end(self, label: Label) -> datetime:
        return label.expires if self.older_than is None else days_after(label.set_aside, self.older_than)

    def _standings(self, listed: DataFrame) -> DataFrame:
        address = f.substring(f.col("key"), f.length("prefix") + 1, f.length("key"))
        return STANDINGS.check(
            listed.select(
                f.lit(0).alias("world"),
                address_hash("key").alias("hash"),
                f.col("key").alias("address"),
                f.timestamp_micros("ends").alias("deadline"),
                f.lit(str(HoldReason.NOT_YET)).alias("reason"),
                "held_by",
                f.array(address).alias("paths"),
                f.array(f.concat(f.lit("recycled by run "), f.col("run"))).alias("rules"),
                f.array().cast("array<string>").alias("branches"),
                "size",
                f.timestamp_micros("set_aside").alias("created"),
                f.lit(EMPTY_BIN).alias("collector"),
                f.lit(TOUCHED).alias("kind"),
            )
        )


@dataclass(frozen=True)
class _Lister:
    """Lists folders of a bin on an executor; what their labels say goes with each item."""

    store: StoreSpec

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        store = open_store(self.store)
        for batch in batches:
            for row in batch.to_pylist():
                for found in store.list(row["prefix"]):
                    yield self._with_label(found, row)

    def _with_label(self, found: Any, row: dict[str, Any]) -> Any:
        same = {name: pa.repeat(pa.scalar(row[name]), found.num_rows) for name in _COPIED}
        return pa.RecordBatch.from_pydict({"key": found.column("key"), **same, "size": found.column("size")})
