"""
The reaper: fence a batch, delete it, and record the outcomes, until nothing is due.

It keeps no state between two batches, so it may be killed at any time: before the fence nothing has happened,
and after it the next reaper deletes what this one did not.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from ebbtide.core.decision import Outcome
from ebbtide.core.errors import BadInput, EbbtideError
from ebbtide.engine import log
from ebbtide.storage.rate_limit import polite_delete
from ebbtide.storage.store import DeleteRequest, DeleteResult, Store
from ebbtide.targets.lake.catalog.catalog import Catalog
from ebbtide.targets.lake.catalog.partitions import object_pattern
from ebbtide.targets.lake.catalog.reclaim_batches import ReclaimTarget
from ebbtide.targets.lake.kind import SCHEME

_UNLIMITED = 1e9
_S3_RATE = 3500.0

MOST_NAMED = 100


class Remover(Protocol):
    """Removes objects; it may be asked for the same object again, by the same or another reaper."""

    def remove(self, target: ReclaimTarget, store: Store, addresses: Sequence[str]) -> Iterable[DeleteResult]:
        """Remove objects to which no reference can be made; return a result for each, raise nothing."""


@dataclass(frozen=True)
class StoreRemover:
    """Deletes objects from their store, at a limited rate and for good."""

    rate_per_prefix: float | None = None
    """Objects per second per prefix; None is the limit of S3, and no limit on a disk."""
    page: int = 250

    def remove(self, target: ReclaimTarget, store: Store, addresses: Sequence[str]) -> Iterable[DeleteResult]:
        """Delete objects; refuse everything that is not a data object of this repository."""
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
            # Results from before the failure are in `found`; the rest is tried again.
            problem = str(broken)
        return [found.get(a, DeleteResult(a, Outcome.FAILED, problem)) for a in addresses]

    def _rate(self, store: Store) -> float:
        return self.rate_per_prefix or (_S3_RATE if store.spec.url.startswith("s3") else _UNLIMITED)


@dataclass(frozen=True)
class ReapOptions:
    """The settings of a reaper."""

    grace: timedelta = timedelta(hours=1)
    """How long an address waits: readers may still use its entry, and a reset may be a mistake."""
    batch: int = 1000
    lease: timedelta = timedelta(minutes=10)
    """When another reaper may take over a fenced batch. Saves work; safety does not depend on it."""
    retry: timedelta = timedelta(minutes=5)
    """After what time a failed delete is tried again."""
    remember: timedelta = timedelta(days=7)
    """How long rows of deleted objects are kept."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot work."""
        spans = (self.grace, self.lease, self.retry, self.remember)
        if self.batch < 1 or any(span < timedelta(0) for span in spans):
            raise BadInput(
                f"a batch of {self.batch} and a grace period of {self.grace} cannot be worked with",
                fix="use a batch of 1 or more, and spans of 0 or more",
            )


@dataclass
class Reaped:
    """What a reaper did in one repository."""

    repository: str
    outcomes: Counter[str] = field(default_factory=Counter)
    needed: int = 0
    """Addresses in the queue that were still needed."""
    taken_over: int = 0
    batches: int = 0
    problems: list[str] = field(default_factory=list)
    """The first failed deletes, as 'address: reason'."""
    stopped: str = ""
    """Why it did not reach the end of the queue."""

    @property
    def failed(self) -> int:
        """How many deletes failed and will be tried again."""
        return sum(count for name, count in self.outcomes.items() if not Outcome(name).is_gone)


class Reaper:
    """Processes the queues of a catalog; any number of reapers may run at once, in any process."""

    def __init__(
        self, catalog: Catalog, options: ReapOptions | None = None, remover: Remover | None = None
    ) -> None:
        self._catalog = catalog
        self._options = options or ReapOptions()
        self._remover = remover or StoreRemover()
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"

    def reap(self, target: ReclaimTarget) -> Reaped:
        """Delete everything that is due in a repository's queue."""
        done = Reaped(target.name)
        self._reap_and_log(target, done)
        return done

    def try_reap(self, target: ReclaimTarget) -> Reaped:
        """Do the same, but return an error in the result, so that other repositories go on."""
        done = Reaped(target.name)
        try:
            self._reap_and_log(target, done)
        except EbbtideError as broken:
            done.stopped = str(broken)
        return done

    def _reap_and_log(self, target: ReclaimTarget, done: Reaped) -> None:
        """Reap, and write how it ended to the log; a queue with nothing due leaves no line."""
        with log.bound(reaper=self.owner, target=f"{SCHEME}{target.name}"):
            try:
                self._reap(target, done)
            except EbbtideError as broken:
                # The text of an error may have the name of an object, which the log must not.
                log.write("reap stops", error=type(broken).__name__, **self._counts(done))
                raise
            if done.batches or done.needed:
                log.write("reap ends", **self._counts(done))

    @staticmethod
    def _counts(done: Reaped) -> dict[str, Any]:
        return {"batches": done.batches, "outcomes": dict(done.outcomes), "needed": done.needed}

    def _reap(self, target: ReclaimTarget, done: Reaped) -> None:
        if target.is_deleted:
            self._catalog.check_deleted_owner(target.uid)
        else:
            self._catalog.check_identity(target.name)
        self._catalog.tidy_queue(target, self._options.remember)
        while self.reap_batch(target, done):
            pass

    def reap_batch(self, target: ReclaimTarget, done: Reaped) -> bool:
        """Process one batch; return False if there was none, or no delete succeeded."""
        options = self._options
        fenced = self._catalog.fence_batch(
            target, self.owner, limit=options.batch, grace=options.grace, lease=options.lease
        )
        done.needed += fenced.needed
        done.taken_over += fenced.taken_over
        if not fenced.addresses:
            return not fenced.is_empty
        done.batches += 1
        store = self._catalog.reclaim_store(target)
        results = list(self._remover.remove(target, store, fenced.addresses))
        self._catalog.settle_batch(target, results, options.retry)
        outcomes = Counter(str(result.outcome) for result in results)
        log.write("batch ends", batch=done.batches, outcomes=dict(outcomes), taken_over=fenced.taken_over)
        done.outcomes += outcomes
        for result in results:
            if not result.outcome.is_gone and len(done.problems) < MOST_NAMED:
                done.problems.append(f"{result.key}: {result.outcome}, {result.reason}")
        return fenced.needed > 0 or any(result.outcome.is_gone for result in results)
