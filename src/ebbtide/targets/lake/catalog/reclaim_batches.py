"""Batches of the reclaim queue: fence what nothing needs, and record what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, select

from ebbtide.core.errors import NotFound, Refused
from ebbtide.core.instant import format_second
from ebbtide.storage.store import DeleteResult, Store
from ebbtide.targets.lake.catalog import reclaim_queue, refs, schema, uploads
from ebbtide.targets.lake.catalog.base import CatalogBase
from ebbtide.targets.lake.catalog.reclaim_queue import Imported, QueueState, Reclaimable
from ebbtide.targets.lake.catalog.refs import WriteTransaction

_ATTEMPTS = 100


@dataclass(frozen=True)
class ReclaimTarget:
    """A repository with a reclaim queue; it may be deleted."""

    name: str
    uid: str
    namespace: str
    is_deleted: bool = False


@dataclass(frozen=True)
class Fenced:
    """A fenced batch, to which no new reference can be made, and how many addresses are still needed."""

    addresses: tuple[str, ...]
    needed: int = 0
    taken_over: int = 0
    """How many of them another reaper or an earlier attempt had fenced."""

    @property
    def is_empty(self) -> bool:
        """Return True if nothing in the queue was due."""
        return not self.addresses and not self.needed


class ReclaimBatches(CatalogBase):
    """
    The reclaim queue, batch by batch; any number of reapers may work on it at once.

    The lock of a repository is held while a batch is proved unreferenced and fenced, and while its end is
    recorded, and never while objects are deleted.
    """

    def reclaim_target(self, repo: str) -> ReclaimTarget:
        """Return the queue of a repository, or of the last deleted one of this name."""
        with self._database.reading() as connection:
            gone = refs.last_deleted(connection, repo)
            try:
                found = refs.repository(connection, repo)
            except NotFound:
                if gone is None:
                    raise
                return ReclaimTarget(gone.name, gone.uid, gone.namespace, is_deleted=True)
        return ReclaimTarget(found.name, found.uid, found.namespace)

    def reclaim_targets(self) -> list[ReclaimTarget]:
        """Return all repositories, by name, then deleted ones that are not collected yet."""
        with self._database.reading() as connection:
            rows = connection.execute(select(schema.repositories).order_by(schema.repositories.c.name))
            return [
                *(ReclaimTarget(row.name, row.uid, row.namespace) for row in rows),
                *(
                    ReclaimTarget(r.name, r.uid, r.namespace, True)
                    for r in refs.deleted_repositories(connection)
                ),
            ]

    def reclaim_store(self, target: ReclaimTarget) -> Store:
        """Open the store of a target."""
        return self._content(target.namespace).store

    def reclaim_queue(self, target: ReclaimTarget) -> Iterator[Reclaimable]:
        """Yield waiting and fenced rows, oldest first, as of one moment."""
        with self._database.reading() as connection:
            yield from reclaim_queue.stream_queue(
                connection, target.uid, QueueState.WAITING, QueueState.FENCED
            )

    def reaped(self, target_uid: str) -> Iterator[str]:
        """Yield the addresses that the reaper has fenced or deleted in the last days."""
        with self._database.reading() as connection:
            for row in reclaim_queue.stream_queue(connection, target_uid, QueueState.FENCED, QueueState.GONE):
                yield row.address

    def queue_counts(self, target_uid: str) -> dict[str, int]:
        """Count waiting, fenced and gone rows."""
        with self._database.reading() as connection:
            found = reclaim_queue.count_states(connection, target_uid)
        return {str(state): found.get(state, 0) for state in QueueState}

    def reaped_because(self, target_uid: str, address: str) -> str:
        """Return when and why the reaper took an object; "" if it did not, or long ago."""
        with self._database.reading() as connection:
            row = reclaim_queue.find_queued(connection, target_uid, address)
        if row is None or row.state == QueueState.WAITING:
            return ""
        gone = f"deleted it at {format_second(row.gone)}" if row.gone else "is about to delete it"
        return f"the reaper {gone}: nothing referred to it ({row.reason}, {format_second(row.queued)})"

    def reprieve(self, target_uid: str, addresses: Sequence[str]) -> set[str]:
        """
        Remove restored objects from the queue; return those for which it is too late.

        Those are fenced: a reaper may be about to delete them, and cannot be called back.
        """
        with self._database.writing() as connection:
            self._hold(connection, target_uid)
            waiting = reclaim_queue.in_state(connection, target_uid, addresses, QueueState.WAITING)
            reclaim_queue.dequeue(connection, target_uid, waiting)
            uploads.forget_expired_tokens(connection, addresses, self._clock())
            return set(reclaim_queue.in_state(connection, target_uid, addresses, QueueState.FENCED))

    def tidy_queue(self, target: ReclaimTarget, remember: timedelta) -> None:
        """Queue uploads that were never linked, and remove old records."""
        now = self._clock()
        with self._database.writing() as connection:
            if not self._hold(connection, target.uid):
                return
            found = refs.find_by_uid(connection, target.uid)
            if found is not None:
                uploads.queue_expired_tokens(
                    WriteTransaction(connection, found, refs.sequence(connection, found), now), now
                )
            reclaim_queue.forget_gone(connection, target.uid, now - remember)
            reclaim_queue.forget_sharing(connection, target.uid)

    def due_batch(self, target: ReclaimTarget, *, limit: int, grace: timedelta) -> Fenced:
        """Return the next batch without fencing it."""
        found, _, imported = self._candidates(target, limit, grace)
        with self._database.reading() as connection:
            needed = reclaim_queue.still_needed(connection, target.uid, found, self._clock()) | imported
            again = reclaim_queue.abandoned_addresses(connection, target.uid, self._clock(), limit)
        free = [address for address in found if address not in needed]
        return Fenced((*again, *free), len(found) - len(free), len(again))

    def fence_batch(
        self, target: ReclaimTarget, owner: str, *, limit: int, grace: timedelta, lease: timedelta
    ) -> Fenced:
        """
        Fence the next batch, longest waiting first, and take over abandoned fenced addresses.

        Addresses that are still needed leave the queue. No other reaper takes the batch over before the lease
        ends; that saves work, safety does not depend on it.
        """
        for _ in range(_ATTEMPTS):
            found, imports, imported = self._candidates(target, limit, grace)
            with self._database.writing() as connection:
                if not self._hold(connection, target.uid):
                    return Fenced(())
                if reclaim_queue.recorded_imports(connection, target.uid) <= imports:
                    until = self._clock() + lease
                    return self._fence(connection, target.uid, found, imported, owner, until, limit)
        raise Refused(
            f"{target.name!r} had an import each of {_ATTEMPTS} times that this looked", fix="try again later"
        )

    def settle_batch(self, target: ReclaimTarget, results: Sequence[DeleteResult], retry: timedelta) -> None:
        """Record the outcomes of a fenced batch; failed deletes are tried again later."""
        now = self._clock()
        gone = [result.key for result in results if result.outcome.is_gone]
        failed = [(r.key, f"{r.outcome}: {r.reason}") for r in results if not r.outcome.is_gone]
        with self._database.writing() as connection:
            if self._hold(connection, target.uid):
                reclaim_queue.mark_gone(connection, target.uid, gone, now)
                reclaim_queue.postpone(connection, target.uid, failed, now + retry)

    def _fence(
        self,
        connection: Connection,
        uid: str,
        candidates: Sequence[str],
        imported: set[str],
        owner: str,
        until: datetime,
        limit: int,
    ) -> Fenced:
        """Prove addresses unreferenced and fence them, in the caller's transaction, under the lock."""
        free, needed = self._proved(connection, uid, candidates, imported)
        reclaim_queue.dequeue(connection, uid, needed)
        again = reclaim_queue.abandoned_addresses(connection, uid, self._clock(), limit)
        reclaim_queue.fence_addresses(connection, uid, [*again, *free], owner, until)
        return Fenced((*again, *free), len(needed), len(again))

    def _proved(
        self, connection: Connection, uid: str, candidates: Iterable[str], imported: set[str]
    ) -> tuple[list[str], list[str]]:
        """Split waiting addresses into those that nothing can refer to any more and those still needed."""
        found = reclaim_queue.in_state(connection, uid, list(candidates), QueueState.WAITING)
        # A deleted repository has nothing staged; its committed objects wait for `ebb plan --deleted`.
        needed = reclaim_queue.still_needed(connection, uid, found, self._clock()) | imported
        return [a for a in found if a not in needed], [a for a in found if a in needed]

    def _candidates(
        self, target: ReclaimTarget, limit: int, grace: timedelta
    ) -> tuple[list[str], frozenset[Imported], set[str]]:
        """Read the addresses that have waited long enough, and which of them imports brought in."""
        with self._database.reading() as connection:
            imports = reclaim_queue.recorded_imports(connection, target.uid)
            found = reclaim_queue.waiting_addresses(connection, target.uid, self._clock(), grace, limit)
        # Ranges are read outside the lock: they never change.
        content = self._content(target.namespace)
        return found, imports, reclaim_queue.imported_among(content, imports, found)

    def _hold(self, connection: Connection, uid: str) -> bool:
        """Lock the row of a repository or deleted repository; return False if there is none."""
        for table in (schema.repositories, schema.retired):
            row = select(table.c.uid).where(table.c.uid == uid).with_for_update()
            if connection.execute(row).first() is not None:
                return True
        return False
