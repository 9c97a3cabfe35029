"""Repositories that were deleted: what a run that collects their objects asks and says."""

from __future__ import annotations

from ebbtide.storage.store import Store
from ebbtide.targets.lake.catalog import reclaim, retired
from ebbtide.targets.lake.catalog.model import RetiredRepository
from ebbtide.targets.lake.catalog.part import CatalogPart


class Retiring(CatalogPart):
    """
    Deleted repositories, each known until its namespace is collected.

    A name may be used again at once and so occur several times here; a namespace may not.
    """

    def retired(self) -> list[RetiredRepository]:
        """Give all deleted repositories whose objects are still to be collected, by time of deletion."""
        with self._database.reading() as connection:
            return retired.everyone(connection)

    def retired_repository(self, name: str) -> RetiredRepository:
        """Find the deleted repository that had this name last."""
        with self._database.reading() as connection:
            found = retired.latest(connection, name)
        if found is None:
            raise retired.unknown(name)
        return found

    def retired_store(self, uid: str) -> Store:
        """Open the object store that is rooted at a deleted repository's namespace."""
        with self._database.reading() as connection:
            return self._store_at(retired.find(connection, uid).namespace)

    def forget_retired(self, uid: str) -> None:
        """Forget a deleted repository once nothing is left in its namespace, which is free from then on."""
        with self._database.writing() as connection:
            retired.forget(connection, uid)
            reclaim.forget_repository(connection, uid)
