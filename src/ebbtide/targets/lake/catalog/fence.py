"""
The fence of a repository: closed while a run deletes objects, so that no new reference to them is made.

A run checks which of its objects are referenced by now, and then deletes the others, which takes a while. An
operation that could refer to one of them in between has to pass the fence; others do not look at it. The
fence is a row that only its holder removes: a run that was killed leaves it, because its executors may still
be running.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, insert, select

from ebbtide.core.errors import Busy
from ebbtide.core.instant import format_second, from_micros, to_micros
from ebbtide.targets.lake.catalog import refs, schema
from ebbtide.targets.lake.catalog.base import FENCE_POLL, CatalogBase
from ebbtide.targets.lake.catalog.model import Repository
from ebbtide.targets.lake.catalog.refs import WriteTransaction

_fences = schema.gates

_DANGLING = "a new reference to one of them could end up without its object"


@dataclass(frozen=True)
class Fence:
    """The holder of a closed fence, and since when: a run's number, or RUN@MARK if numbers are not unique."""

    holder: str
    since: datetime


def find_fence(connection: Connection, repo: Repository) -> Fence | None:
    """Return the closed fence, or None if it is open."""
    row = connection.execute(select(_fences).where(_fences.c.repo_uid == repo.uid)).first()
    return None if row is None else Fence(row.holder, from_micros(row.since))


def _insert_fence(connection: Connection, repo: Repository, holder: str, now: datetime) -> None:
    """Close the fence for this holder, under the repository's lock; raise Busy if another holds it."""
    found = find_fence(connection, repo)
    if found is None:
        row = {"repo_uid": repo.uid, "holder": holder, "since": to_micros(now)}
        connection.execute(insert(_fences).values(row))
    elif found.holder != holder:
        raise busy(repo.name, found)


def _remove_fence(connection: Connection, repo: Repository, holder: str) -> None:
    """Open the fence if this holder closed it."""
    mine = (_fences.c.repo_uid == repo.uid, _fences.c.holder == holder)
    connection.execute(delete(_fences).where(*mine))


def busy(repo: str, fence: Fence, why: str = _DANGLING) -> Busy:
    """Return the error that names the run in the way, and what to do if it was interrupted."""
    run = fence.holder.partition("@")[0]
    return Busy(
        f"run {run} is deleting objects of {repo!r} right now, since {format_second(fence.since)}",
        why=why,
        fix=f"try again in a moment; if run {run} was interrupted, finish it with 'ebb apply {run}'",
    )


class FencedCatalog(CatalogBase):
    """
    The fence of each repository, for runs that delete objects.

    While the fence is closed, no new reference to an existing object can be made: `copy` and
    `move` on a branch, `link_physical_address`, `create_branch`, `create_tag`, `merge`, `revert`, `reset` to
    a ref and `import_entries` wait for it. Uploads, commits and deletes do not; the repository itself is not
    deleted.
    """

    def close_fence(self, repo: str, holder: str) -> int:
        """
        Close the fence and return the change counter of that moment, which closing does not raise.

        When this returns, all references that were made before are visible, and no other can be made until
        the fence is opened. If this holder has closed it already, nothing changes; another one gets Busy.
        """
        with self._database.writing() as connection:
            found, sequence = refs.hold_repository(connection, repo)
            _insert_fence(connection, found, holder, self._clock())
        return sequence

    def open_fence(self, repo: str, holder: str) -> None:
        """Open the fence if this holder closed it; do nothing if another did."""
        with self._database.writing() as connection:
            found, _ = refs.hold_repository(connection, repo)
            _remove_fence(connection, found, holder)

    def fence_holder(self, repo: str) -> str | None:
        """Return the holder of the closed fence; None if it is open."""
        with self._reading(repo) as (connection, found):
            closed = find_fence(connection, found)
        return None if closed is None else closed.holder

    @contextmanager
    def _referring(self, repo: str) -> Iterator[WriteTransaction]:
        """Open a write transaction that may refer to existing objects; wait until the fence is open."""
        for left in range(self._fence_polls, -1, -1):
            # Checked without the lock first, so that a waiting operation blocks no other one.
            with self._reading(repo) as (connection, found):
                closed = find_fence(connection, found)
            if closed is None:
                with self._writing(repo) as writing:
                    # Closing takes the lock too: an open fence stays open until this is committed.
                    closed = find_fence(writing.connection, writing.repository)
                    if closed is None:
                        yield writing
                        return
            if closed is not None and not left:
                raise busy(repo, closed)
            self._sleep(FENCE_POLL.total_seconds())
