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


@dataclass(frozen=True)
class Fence:
    """Who closed a gate, and when. The holder is a run's number, or RUN@MARK if numbers are not unique."""

    holder: str
    since: datetime


def find_fence(connection: Connection, repo: Repository) -> Fence | None:
    """Look at the gate: None means that it is open."""
    row = connection.execute(select(_fences).where(_fences.c.repo_uid == repo.uid)).first()
    return None if row is None else Fence(row.holder, from_micros(row.since))


def close_fence(connection: Connection, repo: Repository, holder: str, now: datetime) -> None:
    """Close the gate for this holder, under the repository's lock; Busy if it is another's."""
    found = find_fence(connection, repo)
    if found is None:
        row = {"repo_uid": repo.uid, "holder": holder, "since": to_micros(now)}
        connection.execute(insert(_fences).values(row))
    elif found.holder != holder:
        raise busy(repo.name, found)


def open_fence(connection: Connection, repo: Repository, holder: str) -> None:
    """Open the gate if this holder has it."""
    mine = (_fences.c.repo_uid == repo.uid, _fences.c.holder == holder)
    connection.execute(delete(_fences).where(*mine))


_DANGLING = "what came to refer to one of them now could end up without its object"


def busy(repo: str, gate: Fence, why: str = _DANGLING) -> Busy:
    """Say who is in the way, and what to do if that run is no more."""
    run = gate.holder.partition("@")[0]
    return Busy(
        f"run {run} is deleting objects of {repo!r} right now, since {format_second(gate.since)}",
        why=why,
        fix=f"try again in a moment; if run {run} was interrupted, finish it with 'ebb apply {run}'",
    )


class FencedCatalog(CatalogBase):
    """
    What a run needs to delete safely.

    While the gate is closed nobody can make a new reference to an object that is there already: `copy` and
    `move` on a branch, `link_physical_address`, `create_branch`, `create_tag`, `merge`, `revert`, `reset` to
    a ref and `import_entries` wait for it. Uploads, commits and deletes do not; the repository itself is not
    deleted.
    """

    def close_gate(self, repo: str, holder: str) -> int:
        """
        Close the gate and give the change counter of that moment, which closing does not raise.

        When this returns, all references that were made before are visible, and no other can be made until
        the gate is opened. For the holder that has it closed already this is no change; for another, Busy.
        """
        with self._database.writing() as connection:
            found, sequence = refs.hold_repository(connection, repo)
            close_fence(connection, found, holder, self._clock())
        return sequence

    def open_gate(self, repo: str, holder: str) -> None:
        """Open the gate if this holder closed it; another's stays as it is."""
        with self._database.writing() as connection:
            found, _ = refs.hold_repository(connection, repo)
            open_fence(connection, found, holder)

    def gate(self, repo: str) -> str | None:
        """Say who keeps the gate closed; None if it is open."""
        with self._reading(repo) as (connection, found):
            closed = find_fence(connection, found)
        return None if closed is None else closed.holder

    @contextmanager
    def _referring(self, repo: str) -> Iterator[WriteTransaction]:
        """Open a write transaction that may refer to existing objects; wait until the fence is open."""
        for left in range(self._fence_polls, -1, -1):
            # Checked without the lock first, so that a waiting operation is in nobody's way.
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
