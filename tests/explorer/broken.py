"""Catalogs with one safeguard taken out, to see that the explorer notices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import select

from ebbtide.core.errors import NotFound
from ebbtide.targets.lake.catalog import reclaim_queue, refs, schema, staging
from ebbtide.targets.lake.catalog.catalog import Catalog
from ebbtide.targets.lake.catalog.model import Entry
from ebbtide.targets.lake.catalog.reclaim_batches import Fenced, ReclaimTarget
from ebbtide.targets.lake.catalog.reclaim_queue import DropReason
from ebbtide.targets.lake.catalog.refs import Branch, WriteTransaction


def without_fence(patch: pytest.MonkeyPatch) -> None:
    """Let nobody look at the fence."""
    patch.setattr(reclaim_queue, "refuse_fenced", lambda *_args: None)


def without_records_of_sharing(patch: pytest.MonkeyPatch) -> None:
    """Do not record that copy and move give an object a second entry."""
    patch.setattr(reclaim_queue, "note_sharing", lambda *_args, **_more: None)


def without_records_of_commits(patch: pytest.MonkeyPatch) -> None:
    """Do not record that a commit took in a shared object."""
    patch.setattr(reclaim_queue, "note_commit", lambda *_args: None)


def without_records_of_imports(patch: pytest.MonkeyPatch) -> None:
    """Do not record imports."""
    patch.setattr(reclaim_queue, "note_import", lambda *_args: None)


class ProvesBefore(Catalog):
    """A catalog that proves in one transaction and fences in the next."""

    def fence_batch(
        self, target: ReclaimTarget, owner: str, *, limit: int, grace: timedelta, lease: timedelta
    ) -> Fenced:
        """Fence what nothing needed a moment ago."""
        found, _, imported = self._candidates(target, limit, grace)
        with self._database.writing() as connection:
            free, needed = self._proved(connection, target.uid, found, imported)
        with self._database.writing() as connection:
            reclaim_queue.dequeue(connection, target.uid, needed)
            again = reclaim_queue.abandoned_addresses(connection, target.uid, self._clock(), limit)
            reclaim_queue.fence_addresses(
                connection, target.uid, [*again, *free], owner, self._clock() + lease
            )
        return Fenced((*again, *free), len(needed))


class LooksBefore(Catalog):
    """A catalog whose move takes the entry that it found before its transaction, as seed 002 describes it."""

    def move(self, repo: str, branch: str, source_key: str, target_key: str) -> Entry:
        """Give a key's object another key."""
        entry = replace(self.stat(repo, branch, source_key), key=target_key)
        with self._referring(repo) as writing:
            reclaim_queue.refuse_fenced(writing.connection, writing.repository.uid, entry.address)
            to = refs.branch(writing.connection, writing.repository, branch)
            reclaim_queue.note_sharing(writing, entry.address, committed=False)
            staging.put(writing, to, [entry])
            with suppress(NotFound):
                self._delete(writing, to, [source_key])
        return entry


class QueuesAfterwards(Catalog):
    """A catalog that queues what it dropped in a transaction of its own; needs :func:`noting_for_later`."""

    @contextmanager
    def _writing(self, repo: str) -> Iterator[WriteTransaction]:
        with super()._writing(repo) as writing:
            yield writing
        dropped = _dropped.pop(id(writing), [])
        if dropped:
            with super()._writing(repo) as later:
                reclaim_queue.queue_addresses(later, DropReason.DELETED, dropped)


_dropped: dict[int, list[str]] = {}


def noting_for_later(patch: pytest.MonkeyPatch) -> None:
    """Only note what is dropped, and leave the queue alone."""

    def note(writing: WriteTransaction, branch: Branch, keys: Sequence[str], _reason: DropReason) -> None:
        rows = schema.staging
        mine = (rows.c.branch_id == branch.id, rows.c.layer == branch.layer, rows.c.key.in_(list(keys)))
        found = writing.connection.execute(select(rows.c.address).where(*mine, ~rows.c.tombstone))
        _dropped.setdefault(id(writing), []).extend(found.scalars())

    patch.setattr(staging, "_queue_replaced", note)
