"""The collector of a bucket: what its lifecycle rules do with versions, delete markers and uploads."""

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
from ebbtide.storage.s3_bucket import open_bucket
from ebbtide.storage.store import open_store
from ebbtide.targets.s3.actions.deleter import BucketActor, BucketDeleter
from ebbtide.targets.s3.bin import (
    BucketBin,
    BucketRecycler,
    bucket_bin,
    no_bin_when_suspended,
    warnings_of_the_bin,
)
from ebbtide.targets.s3.context import BucketContext, EffectiveRules, Source, planned_rules
from ebbtide.targets.s3.model import BIN_ROOT, Versioning
from ebbtide.targets.s3.planner import COLLECTOR, BucketPlanner
from ebbtide.targets.s3.transition.mover import TransitionActor
from ebbtide.targets.s3.versioned_bin import VERSIONS, VersionRecycler


@dataclass(frozen=True)
class BucketCollector(Collector):
    """
    Finds what lifecycle rules ask for and does it.

    There is nothing to fence: versions have no references, and a bucket cannot be closed to its users. The
    actor compares each key with the plan directly before it acts.
    """

    bucket: BucketContext
    rules: EffectiveRules
    """The rules for the plan; at apply, the rules that the plan was made with."""
    report: str | None = None
    """The S3 Inventory report to read; None to list the bucket."""

    name = COLLECTOR
    in_order = True
    """Keys are listed again before they are deleted, and a page lists neighbours."""

    @classmethod
    def of_plan(cls, bucket: BucketContext, plan: Manifest) -> BucketCollector:
        """Return the collector that made a plan."""
        return cls(bucket, planned_rules(plan.policy))

    @property
    def identity(self) -> Identity:
        """The identity of the bucket."""
        return self.bucket.identity

    def policy(self) -> Policy:
        """Return the rules, and the days that expired items stay in the recycle bin."""
        days = self.bucket.ledger.recycling_days(self.bucket.uid)
        if days is not None and self.rules.versioning is Versioning.SUSPENDED:
            raise no_bin_when_suspended(self.bucket.spec.url)
        return Policy(self.rules.policy, self.rules.policy_hash, days)

    def reach(self) -> Reach:
        """Reach the bucket."""
        return StoreReach(self.bucket.spec)

    def check_ready(self) -> None:
        """Raise if the bucket does not answer."""
        open_store(self.bucket.spec)

    def estimate(self) -> int | None:
        """Return the number of versions if one page has them all."""
        return None if self.report is not None else open_bucket(self.bucket.spec).small_size()

    def before_plan(self) -> tuple[str, ...]:
        """Finish an interrupted restore."""
        Restorer(BucketBin(self.bucket)).finish_interrupted()
        return ()

    def collect(self, run: Run) -> Collected:
        """List the bucket or read a report, and evaluate the rules."""
        removed = RemovedTable(self.bucket.root, self.bucket.ledger, self.bucket.uid).folded(
            self.bucket.clock()
        )
        planner = BucketPlanner(
            run.spark,
            self.bucket.spec,
            self.rules,
            run.now,
            self.report,
            run.on_progress,
            run.on_step,
            removed,
        )
        collected = planner.collect(run.folder)
        if self.policy().bin_days is None:
            return collected
        return replace(collected, warnings=(*collected.warnings, *warnings_of_the_bin(self.bucket.spec)))

    def check_unchanged(self, plan: Manifest) -> None:
        """Raise StalePlan if the bucket is gone, or its rules, versioning or bin differ from the plan."""
        # Rules from a file are kept in the plan: there is no other place to compare them with.
        given = self.rules.configuration if self.rules.source is Source.FILE else None
        try:
            now = self.bucket.effective_rules(self.rules.source, given)
        except BadInput as broken:
            raise _stale(f"{plan.target} or its rules are gone: {broken.what}") from broken
        if now.policy_hash != plan.policy_hash:
            raise _stale(f"the rules or the versioning of {plan.target} were changed")
        days = self.bucket.ledger.recycling_days(plan.target_uid)
        if days != (plan.recycling.days if plan.recycling else None):
            raise _stale(f"the recycle bin of {plan.target} was changed")
        check_not_restored_since(self.bucket.ledger, plan)

    def actor(self, plan: Manifest, attempt: Attempt) -> Actor:
        """Return the actor that deletes, expires, moves and aborts, with the recycle bin if there is one."""
        versioning, spec = self.rules.versioning, self.bucket.spec
        mover = TransitionActor(
            spec, attempt, versioning, self.bucket.locations, self.bucket.root, run=plan.run_id
        )
        actor = BucketActor(BucketDeleter(spec, attempt, versioning), mover)
        with_versions = versioning is Versioning.ENABLED
        label = label_of(plan, attempt.now(), VERSIONS if with_versions else "")
        if label is None:
            return actor
        # Before the first object is moved, so that everything in the bin has a label.
        bucket_bin(self.bucket).write(label)
        place = items_of(BIN_ROOT, label.folder)
        recycler = VersionRecycler if with_versions else BucketRecycler
        return recycler(actor, spec, attempt, place)


def _stale(what: str) -> StalePlan:
    return StalePlan(what, why="the plan was made for another state", fix="plan again")
