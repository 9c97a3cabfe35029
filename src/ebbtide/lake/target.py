"""A repository as the target of a plan: what apply asks of it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from ebbtide.engine.deleting import Attempt, Deleter, store_deleter
from ebbtide.engine.layout import RunFolder
from ebbtide.engine.recycling import Recycler
from ebbtide.engine.restoring import check_not_restored_since
from ebbtide.errors import NotFound, PolicyError, StalePlan
from ebbtide.lake.catalog.catalog import Catalog
from ebbtide.lake.metadata.world import world_of
from ebbtide.lake.recycling import BIN_ROOT, days_in_bin, lake_bin
from ebbtide.lake.rulebook import current_rulebook, parse_rulebook
from ebbtide.lake.verification import newly_referenced
from ebbtide.ledger.runs import Ledger
from ebbtide.plan.manifest import Manifest
from ebbtide.plan.recycling import items_of, label_of
from ebbtide.rules.instant import format_instant
from ebbtide.store.base import StoreSpec
from ebbtide.tables.contracts import NEWLY_REFERENCED


@dataclass(frozen=True)
class LakeTarget:
    """A repository of the embedded catalog."""

    catalog: Catalog
    name: str
    ledger: Ledger
    manifest: Manifest | None = None
    """The plan that is applied, which says whether its items are set aside."""

    @property
    def store(self) -> StoreSpec:
        """Where the repository's objects are."""
        return self.catalog.store(self.name).spec

    @property
    def in_order(self) -> bool:
        """Never: each object is deleted for itself."""
        return False

    def deleter(self, attempt: Attempt) -> Deleter:
        """
        Set data objects aside if the plan says so, or else delete them.

        Never metadata: commits are read as long as the repository is there. The label is written before the
        first item of a wave is moved, so whatever lies in the bin says what it is.
        """
        label = label_of(self.manifest, attempt.now()) if self.manifest else None
        if label is None:
            return store_deleter(self.store, attempt)
        lake_bin(self.catalog, self.name).write(label)
        return Recycler(self.store, attempt, items_of(BIN_ROOT, label.folder))

    def check_still_meant(self, manifest: Manifest) -> None:
        """Stop if this is no longer the repository, the namespace or the rules that were planned."""
        repository = self.catalog.repository(self.name)
        if repository.uid != manifest.target_uid:
            raise _stale(f"{manifest.target} is now another repository of the same name")
        if repository.namespace != manifest.namespace:
            raise _stale(f"{manifest.target} moved from {manifest.namespace} to {repository.namespace}")
        planned = parse_rulebook(manifest.policy, manifest.collector)
        try:
            current = current_rulebook(self.catalog, self.name, planned)
        except PolicyError as broken:
            what = f"the rules of {manifest.target} were removed or can no longer be read: {broken.what}"
            raise _stale(what) from broken
        if current.hash != manifest.policy_hash:
            raise _stale(f"the policy of {manifest.target} was changed")
        wanted = days_in_bin(self.ledger, repository.uid, current)
        if wanted != (manifest.recycling.days if manifest.recycling else None):
            raise _stale(f"for how long {manifest.target} sets aside what it deletes was changed")
        check_not_restored_since(self.ledger, manifest)

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
        rules = parse_rulebook(manifest.policy, manifest.collector)
        snapshot = self.catalog.snapshot(self.name)
        world = world_of(snapshot, self.store, rules.policy, manifest.now, rules.retention)
        return newly_referenced(spark, world, rules, folder)


def _holder(manifest: Manifest) -> str:
    """Name the run to the gate; two ledgers may each have a run 7 on one catalog, so its time is added."""
    return f"{manifest.run_id}@{format_instant(manifest.made_at)}"


def _stale(what: str) -> StalePlan:
    return StalePlan(what, why="the plan was made for something else", fix="make a new plan")
