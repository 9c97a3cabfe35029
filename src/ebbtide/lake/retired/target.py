"""A deleted repository as the target of a plan: what apply asks of it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from ebbtide.engine.deleting import Attempt, Deleter, store_deleter
from ebbtide.engine.fencing import Unfenced
from ebbtide.errors import StalePlan
from ebbtide.lake.catalog.catalog import Catalog
from ebbtide.lake.catalog.model import RetiredRepository
from ebbtide.lake.catalog.repositories import overlap
from ebbtide.plan.manifest import Manifest
from ebbtide.rules.instant import format_instant
from ebbtide.store.base import StoreSpec


@dataclass(frozen=True)
class RetiredTarget(Unfenced):
    """
    A repository that the catalog has forgotten but for where it was.

    There is nothing to fence. An object comes to be referenced through a repository's entry in the catalog,
    and this one has none any more; and no other repository may refer to what lies in its namespace.
    """

    catalog: Catalog
    uid: str

    @property
    def store(self) -> StoreSpec:
        """Where the repository's objects are."""
        return self.catalog.retired_store(self.uid).spec

    @property
    def in_order(self) -> bool:
        """Never: each object is deleted for itself."""
        return False

    def deleter(self, attempt: Attempt) -> Deleter:
        """Delete metadata too: nobody reads the commits of a repository that the catalog does not know."""
        return store_deleter(self.store, attempt, metadata=True)

    def check_still_meant(self, manifest: Manifest) -> None:
        """Stop if the repository is forgotten, is not the one that was planned, or its place is taken."""
        found = find_retired(self.catalog, self.uid)
        if found is None:
            raise _stale(f"the deleted {manifest.target} was forgotten: another run has collected it")
        if found.namespace != manifest.namespace:
            raise _stale(f"the deleted {manifest.target} was in {found.namespace}, not {manifest.namespace}")
        if format_instant(found.deleted) != json.loads(manifest.policy)["deleted"]:
            raise _stale(f"{manifest.target} was deleted at another time: {format_instant(found.deleted)}")
        for living in self.catalog.repositories():
            if overlap(living.namespace, found.namespace):
                raise _stale(f"repository {living.name!r} has the namespace {living.namespace} now")


def find_retired(catalog: Catalog, uid: str) -> RetiredRepository | None:
    """Find a deleted repository by its uid; None if there is nothing left to collect of it."""
    return next((gone for gone in catalog.retired() if gone.uid == uid), None)


def _stale(what: str) -> StalePlan:
    return StalePlan(
        what, why="the plan was made for something else", fix="see 'ebb lake list --deleted', and plan again"
    )
