"""
The gate of a repository: closed while a run deletes objects, so that nothing new comes to refer to them.

A run looks which of its objects came to be needed, and then deletes the others, which takes a while. Whatever
could refer to one of them in between has to pass the gate; everything else does not even look at it. The gate
is a row that only its holder takes away: a run that was killed leaves it, for its executors may live on.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, insert, select

from ebbtide.core.errors import Busy
from ebbtide.core.instant import format_second, from_micros, to_micros
from ebbtide.targets.lake.catalog import schema
from ebbtide.targets.lake.catalog.model import Repository

_gates = schema.gates


@dataclass(frozen=True)
class ClosedGate:
    """Who closed a gate, and when. The holder is a run's number, or RUN@MARK if numbers are not unique."""

    holder: str
    since: datetime


def find(connection: Connection, repo: Repository) -> ClosedGate | None:
    """Look at the gate: None means that it is open."""
    row = connection.execute(select(_gates).where(_gates.c.repo_uid == repo.uid)).first()
    return None if row is None else ClosedGate(row.holder, from_micros(row.since))


def close(connection: Connection, repo: Repository, holder: str, now: datetime) -> None:
    """Close the gate for this holder, under the repository's lock; Busy if it is another's."""
    found = find(connection, repo)
    if found is None:
        row = {"repo_uid": repo.uid, "holder": holder, "since": to_micros(now)}
        connection.execute(insert(_gates).values(row))
    elif found.holder != holder:
        raise busy(repo.name, found)


def reopen(connection: Connection, repo: Repository, holder: str) -> None:
    """Open the gate if this holder has it."""
    mine = (_gates.c.repo_uid == repo.uid, _gates.c.holder == holder)
    connection.execute(delete(_gates).where(*mine))


_DANGLING = "what came to refer to one of them now could end up without its object"


def busy(repo: str, gate: ClosedGate, why: str = _DANGLING) -> Busy:
    """Say who is in the way, and what to do if that run is no more."""
    run = gate.holder.partition("@")[0]
    return Busy(
        f"run {run} is deleting objects of {repo!r} right now, since {format_second(gate.since)}",
        why=why,
        fix=f"try again in a moment; if run {run} was interrupted, finish it with 'ebb apply {run}'",
    )
