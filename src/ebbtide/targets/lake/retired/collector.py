"""The collector of a deleted repository: all that it left in its namespace, which is free afterwards."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from datetime import timedelta

from pyspark.sql import SparkSession

from ebbtide.core.breaker import BreakerLimits
from ebbtide.core.decision import DELETED_REPOSITORY
from ebbtide.core.errors import StalePlan, StoreError
from ebbtide.core.instant import format_instant, parse_instant
from ebbtide.core.manifest import Manifest
from ebbtide.engine.actor import Actor, Attempt, store_deleter
from ebbtide.engine.apply import Applied
from ebbtide.engine.cluster_check import Reach, StoreReach
from ebbtide.engine.collector import Collected, Collector, Identity, Policy, Remarks, Run
from ebbtide.engine.layout import OnStep
from ebbtide.storage.namespace import overlap
from ebbtide.targets.lake.catalog.catalog import Catalog
from ebbtide.targets.lake.catalog.model import DeletedRepository
from ebbtide.targets.lake.kind import SCHEME
from ebbtide.targets.lake.lifecycle.memory import forget_memory
from ebbtide.targets.lake.retired.listing import has_own
from ebbtide.targets.lake.retired.planning import RetiredPlanner
from ebbtide.targets.lake.rulebook import GRACE
from ebbtide.targets.lake.witness import witnessed
from ebbtide.targets.lake.workshop import Workshop


@dataclass(frozen=True)
class DeletedRepositoryCollector(Collector):
    """
    Collects what a deleted repository left.

    There is nothing to fence. An object comes to be referenced through a repository's entry in the catalog,
    and this one has none any more; and no other repository may refer to what lies in its namespace.
    """

    shop: Workshop
    gone: DeletedRepository
    """The repository; at apply, as the plan knew it."""
    grace: timedelta = GRACE

    name = DELETED_REPOSITORY

    @classmethod
    def of_plan(cls, shop: Workshop, plan: Manifest) -> DeletedRepositoryCollector:
        """Return the collector that made a plan."""
        rules = json.loads(plan.policy)
        name, deleted = plan.target.removeprefix(SCHEME), parse_instant(rules["deleted"])
        gone = DeletedRepository(name=name, uid=plan.target_uid, namespace=plan.namespace, deleted=deleted)
        return cls(shop, gone, timedelta(seconds=rules["grace_seconds"]))

    @property
    def identity(self) -> Identity:
        """The repository that was deleted."""
        return Identity(f"{SCHEME}{self.gone.name}", self.gone.uid, self.gone.namespace)

    def policy(self) -> Policy:
        """Return when it was deleted, and for how long that is left alone."""
        rules = {"deleted": format_instant(self.gone.deleted), "grace_seconds": self.grace.total_seconds()}
        text = json.dumps(rules, sort_keys=True)
        return Policy(text, hashlib.sha256(text.encode()).hexdigest())

    def reach(self) -> Reach:
        """Reach the store that the repository was in."""
        return StoreReach(witnessed(self.shop.catalog.retired_store(self.gone.uid)))

    def limits(self, limits: BreakerLimits) -> BreakerLimits:
        """Let any delete trip the breaker: strangers in the namespace do not make it less than everything."""
        return replace(limits, max_delete_fraction=0.0, min_objects=0)

    def check_ready(self) -> None:
        """Stop unless the namespace is this repository's."""
        self.shop.catalog.check_retired_owner(self.gone.uid)

    def before_plan(self) -> tuple[str, ...]:
        """Check it again."""
        self.check_ready()
        return ()

    def collect(self, run: Run) -> Collected:
        """List the namespace."""
        store = self.shop.catalog.retired_store(self.gone.uid)
        planner = RetiredPlanner(run.spark, store, self.gone, self.grace, run.on_progress, run.on_step)
        return planner.collect(run.folder)

    def check_unchanged(self, plan: Manifest) -> None:
        """Stop if the repository is forgotten, is not the one that was planned, or its place is taken."""
        found = find_retired(self.shop.catalog, plan.target_uid)
        if found is None:
            raise _stale(f"the deleted {plan.target} was forgotten: another run has collected it")
        if found.namespace != plan.namespace:
            raise _stale(f"the deleted {plan.target} was in {found.namespace}, not {plan.namespace}")
        if format_instant(found.deleted) != json.loads(plan.policy)["deleted"]:
            raise _stale(f"{plan.target} was deleted at another time: {format_instant(found.deleted)}")
        for living in self.shop.catalog.repositories():
            if overlap(living.namespace, found.namespace):
                raise _stale(f"repository {living.name!r} has the namespace {living.namespace} now")
        self.shop.catalog.check_retired_owner(plan.target_uid)

    def actor(self, plan: Manifest, attempt: Attempt) -> Actor:
        """Delete metadata too: nobody reads the commits of a repository that the catalog does not know."""
        store = self.shop.catalog.retired_store(plan.target_uid)
        return store_deleter(store.spec, attempt, metadata=True)

    def after_apply(
        self,
        spark: SparkSession,  # noqa: ARG002 (the store is asked from here)
        plan: Manifest,
        applied: Applied,  # noqa: ARG002 (the store knows better)
        on_step: OnStep,
    ) -> None:
        """Forget the repository if nothing of its own is left."""
        try:
            self._forget_if_collected()
        except StoreError as broken:
            raise StoreError(
                f"run {plan.run_id} succeeded, but what is left could not be listed: {broken}",
                fix=f"apply it again ('ebb apply {plan.run_id}'): that looks again and deletes no more",
            ) from broken
        on_step("repository forgotten")

    def remarks(self, plan: Manifest) -> Remarks:
        """Say whether the namespace may be used again."""
        free = find_retired(self.shop.catalog, plan.target_uid) is None
        if free:
            lines = [f"nothing of {plan.target} is left, and the namespace {plan.namespace} is free"]
        else:
            young = f"objects of {plan.target} are left that were too young or came later"
            lines = [
                f"{young}; {plan.namespace} is not free yet",
                f"plan again when they are old enough: ebb plan {plan.target} --deleted",
            ]
        return Remarks(tuple(lines), {"namespace_free": free})

    def _forget_if_collected(self) -> None:
        """
        Free the namespace, unless something of the repository's own is in it: too young, or written since.

        The store is asked and not the plan: an upload that was under way may have ended after its listing.
        """
        catalog, uid = self.shop.catalog, self.gone.uid
        gone = find_retired(catalog, uid)
        if gone is None or has_own(catalog.retired_store(uid), gone):
            return
        # Killed between any two, the next apply finds nothing to remove, and forgets. The marker goes when
        # all else is gone, and before the repository is forgotten: then the namespace may be another's.
        forget_memory(self.shop.root, uid)
        catalog.release(uid)
        catalog.forget_retired(uid)


def find_retired(catalog: Catalog, uid: str) -> DeletedRepository | None:
    """Find a deleted repository by its uid; None if there is nothing left to collect of it."""
    return next((gone for gone in catalog.retired() if gone.uid == uid), None)


def _stale(what: str) -> StalePlan:
    return StalePlan(
        what, why="the plan was made for something else", fix="see 'ebb lake list --deleted', and plan again"
    )
