"""The run ledger: which runs there were, in which state each is, and how far it got."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, delete, func, insert, or_, select, update

from ebbtide import __version__
from ebbtide.core.errors import NotFound, SafetyStop
from ebbtide.core.instant import Clock, from_micros, system_clock, to_micros
from ebbtide.state import schema
from ebbtide.state.database import Database, repeated
from ebbtide.state.users import current_user, signature


class RunState(StrEnum):
    """The state of a run. Later runs build only on those that `succeeded`."""

    PLANNING = "planning"
    PLANNED = "planned"
    APPROVED = "approved"
    APPLYING = "applying"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ABANDONED = "abandoned"
    """Planning stopped before there was a plan; nothing was deleted."""


_NEXT = {
    RunState.PLANNING: {RunState.PLANNED, RunState.ABANDONED},
    RunState.PLANNED: {RunState.APPROVED},
    RunState.APPROVED: {RunState.APPLYING},
    RunState.APPLYING: {RunState.SUCCEEDED, RunState.FAILED},
    RunState.FAILED: {RunState.APPROVED},
    RunState.SUCCEEDED: set[RunState](),
    RunState.ABANDONED: set[RunState](),
}

_WITHOUT_DELETES = (RunState.PLANNING, RunState.PLANNED, RunState.ABANDONED)
_STARTED, _FINISHED, _COUNTED, _FOLDED = "started", "finished", "counted", "folded"
_UNFOLDED = (_FINISHED, _COUNTED)
_DURABLE = (*_UNFOLDED, _FOLDED)

_ACCEPTANCE = "ebbtide:accepted"
"""In place of a target's identity, in a run that records an acceptance."""

_LISTED = [column for column in schema.runs.c if column.name != "policy"]
"""The columns of a `Run`. Policies may be long texts, so no list of runs reads them."""


@dataclass(frozen=True)
class Run:
    """A run as the ledger lists it; `Ledger.policy` has the text of its policy."""

    run_id: int
    target: str
    target_uid: str
    collector: str
    state: RunState
    now: datetime
    made_at: datetime
    finished_at: datetime | None
    plan_hash: str | None
    due_objects: int
    due_bytes: int
    error: str
    rehearsal: bool = False


@dataclass(frozen=True)
class RunMark:
    """The identity of a run: its number, and when it was recorded, in microseconds."""

    run_id: int
    made_at: int


@dataclass(frozen=True, order=True)
class FinishedAttempt:
    """An attempt at a batch whose outcomes are durable."""

    run_id: int
    batch: int
    attempt: int
    collector: str = field(default="", compare=False)
    is_counted: bool = field(default=True, compare=False)
    """Its table has a record of its rows; an earlier version of Ebbtide wrote none."""


class Ledger:
    """All runs of one state root. Every change is one transaction and leaves an event."""

    def __init__(self, url: str, *, clock: Clock = system_clock, rehearsal: bool = False) -> None:
        self._clock = clock
        self._database = Database(url, schema.SCHEMA, rehearsal=rehearsal)
        self.rehearsal = rehearsal
        """Whether all its runs are rehearsed."""

    @repeated
    def begin(self, target: str, target_uid: str, collector: str, policy: str, now: datetime) -> int:
        """Record a new run and return its number."""
        with self._database.writing() as connection:
            row = {
                "target": target,
                "target_uid": target_uid,
                "collector": collector,
                "state": RunState.PLANNING,
                "now": to_micros(now),
                "made_at": to_micros(self._clock()),
                "policy": policy,
            }
            key = connection.execute(insert(schema.runs).values(**row)).inserted_primary_key
            run_id = int(key[0]) if key else 0
            self._note(connection, run_id, f"planning {target} began ({_machine()})")
        return run_id

    @repeated
    def accept(self, run_id: int, why: str) -> int:
        """Record that a restored ledger or state root was accepted, as a run with an unused number."""
        now = to_micros(self._clock())
        row = {
            "run_id": run_id,
            "target": "state root",
            "target_uid": _ACCEPTANCE,
            "collector": "accept",
            "state": RunState.SUCCEEDED,
            "now": now,
            "made_at": now,
            "finished_at": now,
            "policy": "",
        }
        with self._database.writing() as connection:
            connection.execute(insert(schema.runs).values(**row))
            if self._database.is_postgres:
                # An explicit number does not advance the sequence, so do that here.
                sequence = func.pg_get_serial_sequence("runs", "run_id")
                connection.execute(select(func.setval(sequence, run_id)))
            self._note(connection, run_id, f"accepted: {why}")
        return run_id

    def acceptance(self) -> int:
        """Return the number of the last acceptance of a restored ledger or state root; 0 if there is none."""
        c = schema.runs.c
        query = select(func.max(c.run_id)).where(c.target_uid == _ACCEPTANCE)
        with self._database.reading() as connection:
            return int(connection.execute(query).scalar() or 0)

    def run_mark(self, run_id: int) -> RunMark | None:
        """Return the mark of a run; None if there is no such run."""
        c = schema.runs.c
        with self._database.reading() as connection:
            found = connection.execute(select(c.made_at).where(c.run_id == run_id)).scalar_one_or_none()
        return None if found is None else RunMark(run_id, int(found))

    def newest_run(self) -> RunMark | None:
        """Return the mark of the run with the highest number."""
        c = schema.runs.c
        query = select(c.run_id, c.made_at).order_by(c.run_id.desc()).limit(1)
        with self._database.reading() as connection:
            found = connection.execute(query).one_or_none()
        return None if found is None else RunMark(*found)

    def later_effect(self, run_id: int) -> int | None:
        """Return the first run after another one that has a plan or is a restore, so that it left files."""
        c = schema.runs.c
        without = (RunState.PLANNING, RunState.ABANDONED)
        query = select(func.min(c.run_id)).where(c.run_id > run_id, c.state.not_in(without))
        with self._database.reading() as connection:
            found = connection.execute(query).scalar()
        return None if found is None else int(found)

    def target_uids(self) -> list[str]:
        """List the identities of all targets that had a run."""
        with self._database.reading() as connection:
            return list(connection.execute(select(schema.runs.c.target_uid).distinct()).scalars())

    def planned(self, run_id: int, plan_hash: str, due_objects: int, due_bytes: int) -> None:
        """Record that the plan is durable."""
        self.move(run_id, RunState.PLANNED, plan_hash=plan_hash, due_objects=due_objects, due_bytes=due_bytes)

    @repeated
    def move(self, run_id: int, state: RunState, **values: Any) -> None:
        """Move a run to its next state; refuse to skip a state."""
        with self._database.writing() as connection:
            found = connection.execute(
                select(schema.runs.c.state).where(schema.runs.c.run_id == run_id).with_for_update()
            ).scalar_one_or_none()
            if found is None:
                raise _no_run(run_id)
            if state not in _NEXT[RunState(found)]:
                raise SafetyStop(
                    f"run {run_id} is {found}",
                    why=f"it cannot become {state} from there",
                    fix="see 'ebb runs'; make a new plan",
                )
            ended = state in {RunState.SUCCEEDED, RunState.FAILED, RunState.ABANDONED}
            values |= {"finished_at": to_micros(self._clock()) if ended else None, "state": state}
            connection.execute(update(schema.runs).where(schema.runs.c.run_id == run_id).values(**values))
            detail = f": {values['error']}" if values.get("error") else ""
            detail = f" ({_machine()})" if state is RunState.APPLYING else detail
            self._note(connection, run_id, f"{found} -> {state}{detail}")

    def run(self, run_id: int) -> Run:
        """Return a run."""
        with self._database.reading() as connection:
            query = select(*_LISTED).where(schema.runs.c.run_id == run_id)
            row = connection.execute(query).mappings().one_or_none()
        if row is None:
            raise _no_run(run_id)
        return _run(row, rehearsal=self.rehearsal)

    def policy(self, run_id: int) -> str:
        """Return the text of the policy that a run goes by."""
        c = schema.runs.c
        with self._database.reading() as connection:
            found = connection.execute(select(c.policy).where(c.run_id == run_id)).scalar_one_or_none()
        if found is None:
            raise _no_run(run_id)
        return str(found)

    def runs(self, target_uid: str | None = None, *, target: str | None = None) -> list[Run]:
        """List runs, oldest first: all of them, or those on a target, by its identity or its URL."""
        c = schema.runs.c
        query = select(*_LISTED).order_by(c.run_id)
        if target_uid is not None:
            query = query.where(c.target_uid == target_uid)
        if target is not None:
            query = query.where(c.target == target)
        with self._database.reading() as connection:
            rows = connection.execute(query).mappings()
            return [_run(row, rehearsal=self.rehearsal) for row in rows]

    def runs_in(self, target_uid: str, *states: RunState) -> list[Run]:
        """List a target's runs that are in one of these states, oldest first."""
        c = schema.runs.c
        query = select(*_LISTED).where(c.state.in_(states), c.target_uid == target_uid).order_by(c.run_id)
        with self._database.reading() as connection:
            rows = connection.execute(query).mappings()
            return [_run(row, rehearsal=self.rehearsal) for row in rows]

    def runs_since(self, target_uid: str, moment: datetime, collector: str | None = None) -> list[Run]:
        """List a target's runs that may have removed something at a moment or later, oldest first."""
        c = schema.runs.c
        ended = or_(c.finished_at.is_(None), c.finished_at >= to_micros(moment))
        query = select(*_LISTED).where(c.target_uid == target_uid, ended, c.state.not_in(_WITHOUT_DELETES))
        if collector is not None:
            query = query.where(c.collector == collector)
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(c.run_id)).mappings()
            return [_run(row, rehearsal=self.rehearsal) for row in rows]

    def later_run(self, target_uid: str, run_id: int, collector: str) -> int | None:
        """Return the first run of a collector on the target after another run, without abandoned ones."""
        c = schema.runs.c
        later = (c.target_uid == target_uid, c.run_id > run_id, c.collector == collector)
        query = select(func.min(c.run_id)).where(*later, c.state != RunState.ABANDONED)
        with self._database.reading() as connection:
            found = connection.execute(query).scalar()
        return None if found is None else int(found)

    def last_run(self, target_uid: str, state: RunState, collector: str) -> int | None:
        """Return the last run of a collector on the target that is in this state."""
        c = schema.runs.c
        same = (c.target_uid == target_uid, c.state == state, c.collector == collector)
        with self._database.reading() as connection:
            found = connection.execute(select(func.max(c.run_id)).where(*same)).scalar()
        return None if found is None else int(found)

    def interrupted_runs(self, target_uid: str) -> list[Run]:
        """List a target's runs that have an attempt which did not finish."""
        begun = select(schema.batch_attempts.c.run_id).where(schema.batch_attempts.c.state == _STARTED)
        c = schema.runs.c
        query = select(*_LISTED).where(c.run_id.in_(begun), c.target_uid == target_uid).order_by(c.run_id)
        with self._database.reading() as connection:
            rows = connection.execute(query).mappings()
            return [_run(row, rehearsal=self.rehearsal) for row in rows]

    def target_uid(self, target: str) -> str | None:
        """Return the identity that a target had in its last run; None if it had no run."""
        c = schema.runs.c
        query = select(c.target_uid).where(c.target == target).order_by(c.run_id.desc()).limit(1)
        with self._database.reading() as connection:
            found = connection.execute(query).scalar_one_or_none()
        return None if found is None else str(found)

    def latest_plan(self, target: str | None = None) -> int | None:
        """Return the number of the last run that has a plan, of one target or of all."""
        c = schema.runs.c
        query = select(func.max(c.run_id)).where(c.plan_hash.is_not(None))
        if target is not None:
            query = query.where(c.target == target)
        with self._database.reading() as connection:
            found = connection.execute(query).scalar()
        return None if found is None else int(found)

    def events(self, run_id: int) -> list[tuple[datetime, str, str]]:
        """Return the events of a run: when, who, what."""
        query = select(schema.events).where(schema.events.c.run_id == run_id).order_by(schema.events.c.id)
        with self._database.reading() as connection:
            rows = connection.execute(query).mappings().all()
        return [(from_micros(row["at"]), row["actor"], row["what"]) for row in rows]

    @repeated
    def start_batch(self, run_id: int, batch: int) -> int:
        """Record, before the first delete of a batch, that it is attempted; return the attempt's number."""
        c = schema.batch_attempts.c
        with self._database.writing() as connection:
            query = select(func.max(c.attempt)).where(c.run_id == run_id, c.batch == batch)
            attempt = (connection.execute(query).scalar() or 0) + 1
            row = {"run_id": run_id, "batch": batch, "attempt": attempt, "state": _STARTED}
            connection.execute(insert(schema.batch_attempts).values(**row))
        return int(attempt)

    @repeated
    def finish_batch(self, run_id: int, batch: int, attempt: int) -> None:
        """Record that the outcomes of a batch are durable, with a record of their rows."""
        c = schema.batch_attempts.c
        with self._database.writing() as connection:
            connection.execute(
                update(schema.batch_attempts)
                .where(c.run_id == run_id, c.batch == batch, c.attempt == attempt)
                .values(state=_COUNTED)
            )

    def batch_attempts(self, run_id: int) -> dict[int, list[tuple[int, bool]]]:
        """Return the attempts at each batch in order, each with whether it finished."""
        c = schema.batch_attempts.c
        query = select(c.batch, c.attempt, c.state).where(c.run_id == run_id).order_by(c.batch, c.attempt)
        found: dict[int, list[tuple[int, bool]]] = {}
        with self._database.reading() as connection:
            for batch, attempt, state in connection.execute(query):
                found.setdefault(batch, []).append((attempt, state in _DURABLE))
        return found

    def uncounted_attempts(self, run_id: int) -> set[tuple[int, int]]:
        """Return batch and attempt of outcomes that an earlier Ebbtide wrote without row counts."""
        c = schema.batch_attempts.c
        query = select(c.batch, c.attempt).where(c.run_id == run_id, c.state == _FINISHED)
        with self._database.reading() as connection:
            return {(batch, attempt) for batch, attempt in connection.execute(query)}

    def finished_attempts(self, target_uid: str, *, folded: bool) -> list[FinishedAttempt]:
        """List a target's finished attempts in run order: all of them, or only those not `folded` yet."""
        c, states = schema.batch_attempts.c, _DURABLE if folded else _UNFOLDED
        query = (
            select(c.run_id, c.batch, c.attempt, schema.runs.c.collector, c.state != _FINISHED)
            .join_from(schema.batch_attempts, schema.runs)
            .where(c.state.in_(states), schema.runs.c.target_uid == target_uid)
            .order_by(c.run_id, c.batch, c.attempt)
        )
        with self._database.reading() as connection:
            return [FinishedAttempt(*row) for row in connection.execute(query)]

    def count_attempts(self, target_uid: str, *, folded: bool) -> int:
        """Count a target's finished attempts: only those that are `folded`, or all of them."""
        c, states = schema.batch_attempts.c, (_FOLDED,) if folded else _DURABLE
        query = (
            select(func.count())
            .select_from(schema.batch_attempts.join(schema.runs))
            .where(c.state.in_(states), schema.runs.c.target_uid == target_uid)
        )
        with self._database.reading() as connection:
            return int(connection.execute(query).scalar_one())

    @repeated
    def mark_folded(self, attempts: Iterable[FinishedAttempt]) -> None:
        """Record that the table of removed items contains the outcomes of these attempts."""
        c = schema.batch_attempts.c
        with self._database.writing() as connection:
            for one in attempts:
                same = (c.run_id == one.run_id, c.batch == one.batch, c.attempt == one.attempt)
                change = (
                    update(schema.batch_attempts).where(*same, c.state.in_(_UNFOLDED)).values(state=_FOLDED)
                )
                connection.execute(change)

    @repeated
    def set_recycling(self, target: str, target_uid: str, days: int | None) -> None:
        """Set for how many days a target's runs keep removed items in a bin; None deletes at once."""
        table = schema.recycling
        with self._database.writing() as connection:
            connection.execute(delete(table).where(table.c.target_uid == target_uid))
            if days is not None:
                row = {"target": target, "target_uid": target_uid, "days": days, "actor": current_user()}
                connection.execute(insert(table).values(**row, set_at=to_micros(self._clock())))

    def recycling_days(self, target_uid: str) -> int | None:
        """Return for how many days a target's runs keep removed items in a bin; None without a bin."""
        query = select(schema.recycling.c.days).where(schema.recycling.c.target_uid == target_uid)
        with self._database.reading() as connection:
            found = connection.execute(query).scalar_one_or_none()
        return None if found is None else int(found)

    @repeated
    def note(self, run_id: int, what: str) -> None:
        """Add an event to a run."""
        with self._database.writing() as connection:
            self._note(connection, run_id, what)

    def close(self) -> None:
        """Close all idle connections."""
        self._database.close()

    def _note(self, connection: Connection, run_id: int, what: str) -> None:
        actor = signature(current_user(), rehearsal=self.rehearsal)
        row = {"run_id": run_id, "at": to_micros(self._clock()), "actor": actor, "what": what}
        connection.execute(insert(schema.events).values(**row))


def _machine() -> str:
    """Return version and host, for the events of a run."""
    return f"Ebbtide {__version__} on {socket.gethostname()}"


def _no_run(run_id: int) -> NotFound:
    return NotFound(f"there is no run {run_id}", fix="list them with 'ebb runs'")


def _run(row: Any, *, rehearsal: bool) -> Run:
    finished = row["finished_at"]
    return Run(
        run_id=row["run_id"],
        target=row["target"],
        target_uid=row["target_uid"],
        collector=row["collector"],
        state=RunState(row["state"]),
        now=from_micros(row["now"]),
        made_at=from_micros(row["made_at"]),
        finished_at=None if finished is None else from_micros(finished),
        plan_hash=row["plan_hash"],
        due_objects=row["due_objects"],
        due_bytes=row["due_bytes"],
        error=row["error"],
        rehearsal=rehearsal,
    )
