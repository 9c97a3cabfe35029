"""A repository as the target of a lifecycle plan: what apply asks of it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from ebbtide.engine.layout import RunFolder
from ebbtide.errors import EbbtideError, NotFound, StalePlan
from ebbtide.lake.catalog.catalog import Catalog
from ebbtide.lake.lifecycle.planning import world_of
from ebbtide.lake.lifecycle.verification import newly_referenced
from ebbtide.plan.manifest import Manifest
from ebbtide.rules.instant import format_instant
from ebbtide.rules.lake_policy_parser import parse_lake_policy, policy_hash
from ebbtide.store.base import StoreSpec
from ebbtide.tables.contracts import NEWLY_REFERENCED


@dataclass(frozen=True)
class LakeTarget:
    """A repository of the embedded catalog."""

    catalog: Catalog
    name: str

    @property
    def store(self) -> StoreSpec:
        """Where the repository's objects are."""
        return self.catalog.store(self.name).spec

    def check_still_meant(self, manifest: Manifest) -> None:
        """Stop if this is no longer the repository, the namespace or the policy that was planned."""
        repository = self.catalog.repository(self.name)
        if repository.uid != manifest.target_uid:
            raise _stale(f"{manifest.target} is now another repository of the same name")
        if repository.namespace != manifest.namespace:
            raise _stale(f"{manifest.target} moved from {manifest.namespace} to {repository.namespace}")
        stored = self.catalog.policy(self.name)
        if stored is None:
            raise _stale(f"the policy of {manifest.target} was removed")
        try:
            current = policy_hash(parse_lake_policy(*stored))
        except EbbtideError as broken:
            raise _stale(f"the policy of {manifest.target} can no longer be read: {broken.what}") from broken
        if current != manifest.policy_hash:
            raise _stale(f"the policy of {manifest.target} was changed")

    def sequence(self) -> int:
        """Give the repository's change counter."""
        return self.catalog.sequence(self.name)

    def fence(self, manifest: Manifest) -> int:
        """Close the repository's gate: what re-verification found stays true while a wave is deleted."""
        return self.catalog.close_gate(self.name, _holder(manifest))

    def unfence(self, manifest: Manifest) -> None:
        """Open the gate again; a repository that was deleted has none."""
        with suppress(NotFound):
            self.catalog.open_gate(self.name, _holder(manifest))

    def newly_referenced(self, spark: SparkSession, manifest: Manifest, folder: RunFolder) -> DataFrame:
        """Find planned items that something came to need; nothing is read if nothing changed."""
        if self.sequence() == manifest.snapshot["sequence"]:
            return NEWLY_REFERENCED.read(spark)
        policy = parse_lake_policy(manifest.policy)
        world = world_of(self.catalog.snapshot(self.name), self.store, policy, manifest.now)
        return newly_referenced(spark, world, folder)


def _holder(manifest: Manifest) -> str:
    """Name the run to the gate; two ledgers may each have a run 7 on one catalog, so its time is added."""
    return f"{manifest.run_id}@{format_instant(manifest.made_at)}"


def _stale(what: str) -> StalePlan:
    return StalePlan(what, why="the plan was made for something else", fix="make a new plan")
