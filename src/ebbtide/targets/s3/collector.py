"""The collector of a bucket: what its lifecycle rules want done with versions, delete markers and uploads."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ebbtide.core.bin_label import items_of, label_of
from ebbtide.core.errors import BadInput, StalePlan
from ebbtide.core.manifest import Manifest
from ebbtide.engine.actor import Actor, Attempt
from ebbtide.engine.cluster_check import Reach, StoreReach
from ebbtide.engine.collector import Collected, Collector, Identity, Policy, Run
from ebbtide.engine.removed_table import RemovedTable
from ebbtide.engine.restore import Restorer, check_not_restored_since
from ebbtide.storage.store import open_store
from ebbtide.targets.s3.acting import BucketActor
from ebbtide.targets.s3.actions.deleter import BucketDeleter
from ebbtide.targets.s3.bin import (
    BucketBin,
    BucketRecycler,
    bucket_bin,
    no_bin_when_suspended,
    warnings_of_the_bin,
)
from ebbtide.targets.s3.bin_place import BIN_ROOT
from ebbtide.targets.s3.model import Versioning
from ebbtide.targets.s3.planning import BucketPlanner
from ebbtide.targets.s3.shop import BucketShop
from ebbtide.targets.s3.sources import Source, Sourced, planned_rules
from ebbtide.targets.s3.standings import COLLECTOR
from ebbtide.targets.s3.transition.mover import Mover
from ebbtide.targets.s3.versioned_bin import VERSIONS, VersionRecycler


@dataclass(frozen=True)
class BucketCollector(Collector):
    """
    Does what lifecycle rules ask for.

    There is nothing to fence: versions refer to nothing, and a bucket cannot be closed to its users. What
    they did since the plan is seen by the actor, key by key, directly before it acts.
    """

    shop: BucketShop
    rules: Sourced
    """The rules to plan by; at apply, those that the plan was made by."""
    report: str | None = None
    """Where an S3 Inventory report of the bucket is, if that is to be read and not the bucket."""

    name = COLLECTOR
    in_order = True
    """Versions are listed once more before they go, and a page lists neighbours."""

    @classmethod
    def of_plan(cls, shop: BucketShop, plan: Manifest) -> BucketCollector:
        """Return the collector that made a plan."""
        return cls(shop, planned_rules(plan.policy))

    @property
    def identity(self) -> Identity:
        """The bucket."""
        return self.shop.identity

    def policy(self) -> Policy:
        """Return the rules, and for how long the bin keeps what they expire."""
        days = self.shop.ledger.recycling_days(self.shop.uid)
        if days is not None and self.rules.versioning is Versioning.SUSPENDED:
            raise no_bin_when_suspended(self.shop.spec.url)
        return Policy(self.rules.policy, self.rules.policy_hash, days)

    def reach(self) -> Reach:
        """Reach the bucket."""
        return StoreReach(self.shop.spec)

    def check_ready(self) -> None:
        """Raise if the bucket does not answer."""
        open_store(self.shop.spec)

    def before_plan(self) -> tuple[str, ...]:
        """Finish an interrupted restore."""
        Restorer(BucketBin(self.shop)).finish_interrupted()
        return ()

    def collect(self, run: Run) -> Collected:
        """List the bucket or read a report of it, and let the rules judge what it holds."""
        removed = RemovedTable(self.shop.root, self.shop.ledger, self.shop.uid).folded(self.shop.clock())
        planner = BucketPlanner(
            run.spark, self.shop.spec, self.rules, run.now, self.report, run.on_progress, run.on_step, removed
        )
        collected = planner.collect(run.folder)
        if self.policy().bin_days is None:
            return collected
        return replace(collected, warnings=(*collected.warnings, *warnings_of_the_bin(self.shop.spec)))

    def check_unchanged(self, plan: Manifest) -> None:
        """Stop if the bucket is gone, or its rules, its versioning or its bin are not what was planned."""
        # Rules that came from a file are the plan's own: nobody can ask whether they are still meant.
        given = self.rules.configuration if self.rules.source is Source.FILE else None
        try:
            now = self.shop.sourced(self.rules.source, given)
        except BadInput as broken:
            raise _stale(f"{plan.target} or its rules are gone: {broken.what}") from broken
        if now.policy_hash != plan.policy_hash:
            raise _stale(f"the rules or the versioning of {plan.target} were changed")
        days = self.shop.ledger.recycling_days(plan.target_uid)
        if days != (plan.recycling.days if plan.recycling else None):
            raise _stale(f"for how long {plan.target} sets aside what expires was changed")
        check_not_restored_since(self.shop.ledger, plan)

    def actor(self, plan: Manifest, attempt: Attempt) -> Actor:
        """Delete, expire, move and abort; what would be lost goes into the bin first if there is one."""
        versioning, spec = self.rules.versioning, self.shop.spec
        mover = Mover(spec, attempt, versioning, self.shop.locations, self.shop.root, run=plan.run_id)
        actor = BucketActor(BucketDeleter(spec, attempt, versioning), mover)
        with_versions = versioning is Versioning.ENABLED
        label = label_of(plan, attempt.now(), VERSIONS if with_versions else "")
        if label is None:
            return actor
        # Before the first object is moved, so that whatever lies in the bin says what it is.
        bucket_bin(self.shop).write(label)
        place = items_of(BIN_ROOT, label.folder)
        recycler = VersionRecycler if with_versions else BucketRecycler
        return recycler(actor, spec, attempt, place)


def _stale(what: str) -> StalePlan:
    return StalePlan(what, why="the plan was made for something else", fix="plan again")
