"""
A base class for collectors of independent objects in one store.

It implements the listing, the recycle bin, the holds of restored objects, the check for stale plans and the
actor. A subclass has a policy, and decides until when each object is held.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ebbtide.core.errors import PolicyError, StalePlan
from ebbtide.core.manifest import Manifest
from ebbtide.engine.actor import Actor, Attempt
from ebbtide.engine.cluster_check import Reach
from ebbtide.engine.collector import Collected, Collector, Identity, Policy, Run
from ebbtide.engine.object_bin import ObjectBin
from ebbtide.engine.recycle import store_actor
from ebbtide.engine.restore import Restorer, check_not_restored_since
from ebbtide.engine.tables.contracts import VERDICTS
from ebbtide.engine.verdicts import Layers
from ebbtide.storage.store import open_store

_LISTED = "key string, size bigint, last_modified timestamp, etag string"


@dataclass(frozen=True)
class ObjectCollector(Collector):
    """Collects objects of the store that has the recycle bin; nothing refers to them."""

    bin: ObjectBin

    @abstractmethod
    def policy_text(self, *, current: bool = False) -> str:
        """Return the policy of the plan, or the one in force now; raise PolicyError."""

    @abstractmethod
    def verdicts(self, objects: DataFrame) -> DataFrame:
        """Decide until when each object (key, size, last_modified, etag) is held: columns of `VERDICTS`."""

    @property
    def identity(self) -> Identity:
        """The target."""
        return self.bin.identity

    def policy(self) -> Policy:
        """Return the policy, and for how many days the bin keeps what is removed."""
        return self._policy(self.policy_text())

    def _policy(self, text: str) -> Policy:
        days = self.bin.context.ledger.recycling_days(self.identity.uid)
        return Policy(text, hashlib.sha256(text.encode()).hexdigest(), days)

    def reach(self) -> Reach:
        """Reach the store."""
        return self.bin.reach()

    def check_ready(self) -> None:
        """Raise if the store does not answer."""
        self.bin.check_ready()

    def before_plan(self) -> tuple[str, ...]:
        """Finish an interrupted restore."""
        Restorer(self.bin).finish_interrupted()
        return ()

    def collect(self, run: Run) -> Collected:
        """List the store in one Spark task, without the bin, and hold what was restored."""
        spec, place = self.bin.contents.store.spec, run.folder.scratch / "verdicts"
        task = run.spark.range(0, 1, 1, 1)
        listed = task.mapInArrow(lambda _: open_store(spec).list(), _LISTED)
        objects = listed.where(~f.col("key").startswith(self.bin.contents.root))
        held = self.bin.holding(VERDICTS.check(self.verdicts(objects)))
        VERDICTS.write(held, place, partition_by="kind")
        run.on_step("verdicts written")
        return Collected(Layers(place), {}, removed_applied=True)

    def check_unchanged(self, plan: Manifest) -> None:
        """Stop if the policy or the bin was changed since the plan was made, or something was restored."""
        try:
            now = self._policy(self.policy_text(current=True))
        except PolicyError as broken:
            raise StalePlan(broken.what, why=broken.why, fix="make a new plan") from broken
        if (now.hash, now.bin_days) != (plan.policy_hash, plan.recycling.days if plan.recycling else None):
            raise StalePlan(f"the policy or the bin of {plan.target} was changed", fix="make a new plan")
        check_not_restored_since(self.bin.context.ledger, plan)

    def actor(self, plan: Manifest, attempt: Attempt) -> Actor:
        """Move objects into the bin if the plan says so, or else delete them; one that changed stays."""
        return store_actor(self.bin, plan, attempt)
