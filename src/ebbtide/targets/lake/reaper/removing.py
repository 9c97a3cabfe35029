"""How fenced objects leave the store: a small protocol, and the remover that deletes them for good."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ebbtide.core.decision import Outcome
from ebbtide.core.errors import EbbtideError
from ebbtide.storage.rate_limit import polite_delete
from ebbtide.storage.store import DeleteRequest, DeleteResult, Store
from ebbtide.targets.lake.catalog.partitions import object_pattern
from ebbtide.targets.lake.catalog.reclaiming import ReclaimTarget

_UNLIMITED = 1e9
_S3_RATE = 3500.0


class Remover(Protocol):
    """Takes objects out of reach; it may be asked for the same object again, by itself or by another."""

    def remove(self, target: ReclaimTarget, store: Store, addresses: Sequence[str]) -> Iterable[DeleteResult]:
        """Remove objects that nothing refers to, or ever will; a result for each, never an exception."""


@dataclass(frozen=True)
class StoreRemover:
    """Deletes objects from their store, politely and for good."""

    rate_per_prefix: float | None = None
    """Objects a second and prefix; None is S3's own limit, and none at all on a disk."""
    page: int = 250

    def remove(self, target: ReclaimTarget, store: Store, addresses: Sequence[str]) -> Iterable[DeleteResult]:
        """Delete objects; what is no data object of this repository is denied, whoever queued it."""
        data = re.compile(object_pattern(target.uid))
        found = {
            address: DeleteResult(address, Outcome.DENIED, "not a data object of this repository")
            for address in addresses
            if not data.fullmatch(address)
        }
        wanted = [DeleteRequest(address) for address in addresses if address not in found]
        problem = "the store did not answer for this key"
        try:
            for result in polite_delete(store, wanted, self._rate(store), self.page):
                found[result.key] = result
        except EbbtideError as broken:
            # What was deleted before the store broke down is in `found`; the rest is tried again.
            problem = str(broken)
        return [found.get(a, DeleteResult(a, Outcome.FAILED, problem)) for a in addresses]

    def _rate(self, store: Store) -> float:
        return self.rate_per_prefix or (_S3_RATE if store.spec.url.startswith("s3") else _UNLIMITED)
