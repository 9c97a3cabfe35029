"""
The expiry of a recycle bin: a collector whose plans delete items for good when their days are over.

Its breaker compares with the contents of the bin, and its actor cannot delete anything outside the bin.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.core.decision import DELETE, EMPTY_BIN, HoldReason
from ebbtide.core.errors import EbbtideError
from ebbtide.core.manifest import Manifest
from ebbtide.engine.actor import Actor, Attempt
from ebbtide.engine.apply import Applied
from ebbtide.engine.bin import RecycleBin
from ebbtide.engine.cluster_check import Reach
from ebbtide.engine.collector import Collected, Collector, Identity, Policy, Run
from ebbtide.engine.restore import Restorer, check_not_restored_since
from ebbtide.engine.run_folder import OnStep
from ebbtide.engine.spark.progress import watch
from ebbtide.engine.tables.contracts import VERDICTS
from ebbtide.engine.tables.digest import address_hash
from ebbtide.engine.verdicts import Layers

_EXPIRED = "expired"


def is_by_hand(plan: Manifest) -> bool:
    """Return True if a plan empties a bin because a user asked for it, not because of expiry."""
    return bool(json.loads(plan.policy)["bin"] != _EXPIRED)


@dataclass(frozen=True)
class ExpiredItems(Collector):
    """
    Collects the items of a target's recycle bin whose days are over.

    Nothing refers to items in the bin. Only a restore takes them out; it waits for the target's lock and
    makes the plan stale.
    """

    bin: RecycleBin
    older_than: int | None = None
    """Collect items that were set aside at least this many days ago, whatever their labels say: by hand."""

    name = EMPTY_BIN

    @property
    def in_order(self) -> bool:  # type: ignore[override]
        """Whether the bin is emptied in the order of its items."""
        return self.bin.in_order

    @property
    def identity(self) -> Identity:
        """The target that the bin belongs to."""
        return self.bin.identity

    def policy(self) -> Policy:
        """Return the expiry of the bin."""
        days = self.older_than
        text = json.dumps({"bin": _EXPIRED if days is None else f"older than {days} days"})
        return Policy(text, hashlib.sha256(text.encode()).hexdigest())

    def reach(self) -> Reach:
        """Reach the bin's backend."""
        return self.bin.reach()

    def check_ready(self) -> None:
        """Raise if the bin's backend does not answer."""
        self.bin.check_ready()

    def before_plan(self) -> tuple[str, ...]:
        """Check the owner, and finish an interrupted restore."""
        warnings = self.bin.before_plan()
        self.bin.check_owner()
        if self.bin.records_restores:
            Restorer(self.bin).finish_interrupted()
        return warnings

    def collect(self, run: Run) -> Collected:
        """List the bin on the executors, and hold each item until its days are over."""
        place = run.folder.scratch / "verdicts"
        with watch(run.spark, "listing", run.on_progress):
            found = self.bin.expiry(run, self.older_than)
            VERDICTS.write(expiry_verdicts(found.rows, self.bin.action), place, partition_by="kind")
        run.on_step("verdicts written")
        return Collected(Layers(place), found.read, found.warnings, removed_applied=True)

    def check(self, plan: Manifest) -> None:
        """Check the target, and also what the bin checks once per apply."""
        self.check_unchanged(plan)
        self.bin.check(plan)

    def check_unchanged(self, plan: Manifest) -> None:
        """Stop if this is no longer the target that was planned, or something was restored since."""
        self.bin.check_unchanged(plan)
        if self.bin.records_restores:
            check_not_restored_since(self.bin.context.ledger, plan)

    def actor(self, plan: Manifest, attempt: Attempt) -> Actor:  # noqa: ARG002 (the rows say it all)
        """Delete items of the bin, and nothing else, whatever the plan says."""
        return self.bin.deleter(attempt)

    def after_apply(self, spark: SparkSession, plan: Manifest, applied: Applied, on_step: OnStep) -> None:  # noqa: ARG002 (labels are few)
        """Remove the labels of empty folders, and let the target record the run."""
        self.bin.after_expiry(plan, applied)
        on_step("labels tidied")

    def after_failure(self, plan: Manifest, error: EbbtideError) -> None:
        """Let the target record the failure."""
        self.bin.after_failure(plan, error)


def expiry_verdicts(listed: DataFrame, action: str | None = None) -> DataFrame:
    """Hold each item of a bin (columns of `bin.EXPIRY`) until the end of its days."""
    return VERDICTS.check(
        listed.select(
            address_hash("address").alias("hash"),
            "address",
            f.col("ends").alias("deadline"),
            f.lit(str(HoldReason.NOT_YET)).alias("hold"),
            f.col("held_by").alias("holder"),
            "names",
            f.array("rule").alias("rules"),
            "size",
            f.col("set_aside").alias("created"),
            f.lit(EMPTY_BIN).alias("collector"),
            f.lit("" if action else None).cast("string").alias("version"),
            f.lit(action or DELETE).alias("action"),
        )
    )
