"""
The collector of a recycle bin: what has been there for its days goes for good, by a plan like any other.

Its breaker compares with what is in the bin, and its actor reaches nothing but the bin's folder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.core.decision import EMPTY_BIN, HoldReason
from ebbtide.core.errors import EbbtideError, StalePlan
from ebbtide.core.instant import days_after, format_second, to_micros
from ebbtide.core.manifest import Manifest
from ebbtide.core.recycling import Label, items_of
from ebbtide.engine.actor import Actor, Attempt, store_deleter
from ebbtide.engine.apply import Applied
from ebbtide.engine.bins import Bin
from ebbtide.engine.cluster_check import Reach, StoreReach
from ebbtide.engine.collector import Collected, Collector, Context, Identity, Policy, Run
from ebbtide.engine.layers import TOUCHED, Layers
from ebbtide.engine.layout import OnStep
from ebbtide.engine.restoring import check_not_restored_since
from ebbtide.engine.spark.progress import watch
from ebbtide.engine.tables.contracts import STANDINGS
from ebbtide.engine.tables.digest import address_hash
from ebbtide.storage.store import StoreSpec, open_store

_FOLDERS = "prefix string, run long, set_aside long, ends long, held_by string"
_LISTED = "key string, prefix string, run long, set_aside long, ends long, held_by string, size bigint"
_COPIED = ("prefix", "run", "set_aside", "ends", "held_by")


def _nothing() -> None:
    """Finish nothing."""


@dataclass(frozen=True)
class ExpiredItems(Collector):
    """
    Collects what has been in a target's recycle bin for its days.

    Nothing refers to what lies in the bin, and only a restore takes it from there, which waits for the
    target's lock and makes the plan stale.
    """

    context: Context
    bin: Bin
    owner: Identity
    """The target that the bin belongs to."""
    check_owner: Callable[[], Identity]
    """Returns the identity of the bin's owner as it is now; raises if it cannot be trusted."""
    older_than: int | None = None
    """Collect what has been there for so many days, and not for as long as its label says."""
    before: Callable[[], None] = _nothing
    """Finishes what an interrupted restore left, before a plan is made."""
    make_actor: Callable[[Attempt], Actor] | None = None
    """Makes what deletes in the bin where deleting an object is not enough."""

    name = EMPTY_BIN

    @property
    def identity(self) -> Identity:
        """The target that the bin belongs to."""
        return self.owner

    def policy(self) -> Policy:
        """Return the expiry of the bin."""
        days = self.older_than
        text = json.dumps({"bin": "expired" if days is None else f"older than {days} days"})
        return Policy(text, hashlib.sha256(text.encode()).hexdigest())

    def reach(self) -> Reach:
        """Reach the store that the bin is in."""
        return StoreReach(self.bin.store.spec)

    def check_ready(self) -> None:
        """Raise if the store that the bin is in does not answer."""
        open_store(self.bin.store.spec)

    def before_plan(self) -> tuple[str, ...]:
        """Check the owner, and finish an interrupted restore."""
        self.check_owner()
        self.before()
        return ()

    def collect(self, run: Run) -> Collected:
        """List the bin on the executors, and hold each item until its days are over."""
        return _Lister(run, self.bin, self.older_than).collect()

    def check_unchanged(self, plan: Manifest) -> None:
        """Stop if this is no longer the target that was planned, or something was restored since."""
        now = self.check_owner()
        if (now.uid, now.namespace) != (plan.target_uid, plan.namespace):
            raise StalePlan(
                f"{plan.target} is now another target of the same name, or lies elsewhere",
                why="the plan was made for something else",
                fix="make a new plan",
            )
        check_not_restored_since(self.context.ledger, plan)

    def actor(self, plan: Manifest, attempt: Attempt) -> Actor:  # noqa: ARG002 (the rows say it all)
        """Delete what lies in the bin, and nothing else, whatever the plan says."""
        if self.make_actor is not None:
            return self.make_actor(attempt)
        return store_deleter(self.bin.store.spec, attempt, only_below=self.bin.root)

    def after_apply(
        self,
        spark: SparkSession,  # noqa: ARG002 (labels are few)
        plan: Manifest,  # noqa: ARG002
        applied: Applied,  # noqa: ARG002
        on_step: OnStep,
    ) -> None:
        """Remove the labels of folders that are empty."""
        for label in self.bin.labels(lambda _broken: None):
            self.bin.tidy(label)
        on_step("labels tidied")


@dataclass(frozen=True)
class _Lister:
    """Lists a bin for one plan."""

    run: Run
    bin: Bin
    older_than: int | None

    def collect(self) -> Collected:
        """Write the standing of every item; a folder whose label cannot be read is left alone."""
        damage: list[EbbtideError] = []
        labels = self.bin.labels(damage.append)
        place = self.run.folder.scratch / "standings"
        with watch(self.run.spark, "listing", self.run.on_progress):
            STANDINGS.write(self._standings(self._listed(labels)), place, partition_by="kind")
        self.run.on_step("standings written")
        warnings = tuple(f"{broken.what}; what lies there is left alone" for broken in damage)
        read = {"bins": 1, "bin_folders": len(labels)}
        return Collected(Layers(place), read, warnings, without_buried=True)

    def _listed(self, labels: Sequence[Label]) -> DataFrame:
        rows = [
            (
                items_of(self.bin.root, label.folder),
                label.run,
                to_micros(label.set_aside),
                to_micros(self._end(label)),
                f"set aside {format_second(label.set_aside)} for {label.days} days",
            )
            for label in labels
        ]
        folders = self.run.spark.createDataFrame(rows, _FOLDERS).repartition(max(1, len(rows)))
        return folders.mapInArrow(_FolderLister(self.bin.store.spec), _LISTED)

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
class _FolderLister:
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
