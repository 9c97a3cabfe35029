"""The run ledger: which runs there were, in which state each is, and how far it got."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from ebbtide.errors import NotFound, SafetyStop
from ebbtide.ledger import schema
from ebbtide.ledger.actors import current_user
from ebbtide.ledger.database import Database
from ebbtide.rules.instant import Clock, from_micros, system_clock, to_micros


class RunState(StrEnum):
    """Where a run is on its way. Only `succeeded` moves what later runs build on."""

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


@dataclass(frozen=True)
class Run:
    """A run as the ledger knows it."""

    run_id: int
    target: str
    target_uid: str
    collector: str
    state: RunState
    now: datetime
    made_at: datetime
    finished_at: datetime | None
    policy: str
    plan_hash: str | None
    due_objects: int
    due_bytes: int
    error: str


class Ledger:
    """All runs of one state root. Every change is one transaction and leaves an event."""

    def __init__(self, url: str, *, clock: Clock = system_clock) -> None:
        self._clock = clock
        self._database = Database(url, schema.CONTENTS)

    def begin(self, target: str, target_uid: str, collector: str, policy: str, now: datetime) -> int:
        """Give a new run its number before there is anything to show for it."""
        with self._database.changing() as connection:
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
            self._note(connection, run_id, f"planning {target} began")
        return run_id

    def planned(self, run_id: int, plan_hash: str, due_objects: int, due_bytes: int) -> None:
        """Record that the plan is durable."""
        self.move(run_id, RunState.PLANNED, plan_hash=plan_hash, due_objects=due_objects, due_bytes=due_bytes)

    def move(self, run_id: int, state: RunState, **values: Any) -> None:
        """Move a run to its next state; a step that skips one is refused."""
        with self._database.changing() as connection:
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
            self._note(connection, run_id, f"{found} -> {state}{detail}")

    def run(self, run_id: int) -> Run:
        """Look up one run."""
        with self._database.reading() as connection:
            query = select(schema.runs).where(schema.runs.c.run_id == run_id)
            row = connection.execute(query).mappings().one_or_none()
        if row is None:
            raise _no_run(run_id)
        return _run(row)

    def runs(self, target_uid: str | None = None) -> list[Run]:
        """List runs, oldest first."""
        query = select(schema.runs).order_by(schema.runs.c.run_id)
        if target_uid is not None:
            query = query.where(schema.runs.c.target_uid == target_uid)
        with self._database.reading() as connection:
            return [_run(row) for row in connection.execute(query).mappings()]

    def events(self, run_id: int) -> list[tuple[datetime, str, str]]:
        """Tell a run's story: when, who, what."""
        query = select(schema.events).where(schema.events.c.run_id == run_id).order_by(schema.events.c.id)
        with self._database.reading() as connection:
            rows = connection.execute(query).mappings().all()
        return [(from_micros(row["at"]), row["actor"], row["what"]) for row in rows]

    def start_wave(self, run_id: int, wave: int) -> int:
        """Record, before the first delete of a wave, that it is attempted; give the attempt its number."""
        c = schema.waves.c
        with self._database.changing() as connection:
            query = select(func.max(c.attempt)).where(c.run_id == run_id, c.wave == wave)
            attempt = (connection.execute(query).scalar() or 0) + 1
            row = {"run_id": run_id, "wave": wave, "attempt": attempt, "state": "started"}
            connection.execute(insert(schema.waves).values(**row))
        return int(attempt)

    def finish_wave(self, run_id: int, wave: int, attempt: int) -> None:
        """Record that a wave's outcomes are durable."""
        c = schema.waves.c
        with self._database.changing() as connection:
            connection.execute(
                update(schema.waves)
                .where(c.run_id == run_id, c.wave == wave, c.attempt == attempt)
                .values(state="finished")
            )

    def wave_attempts(self, run_id: int) -> dict[int, list[tuple[int, bool]]]:
        """Give each wave's attempts in order, each with whether it finished."""
        c = schema.waves.c
        query = select(c.wave, c.attempt, c.state).where(c.run_id == run_id).order_by(c.wave, c.attempt)
        found: dict[int, list[tuple[int, bool]]] = {}
        with self._database.reading() as connection:
            for wave, attempt, state in connection.execute(query):
                found.setdefault(wave, []).append((attempt, state == "finished"))
        return found

    def set_recycling(self, target: str, target_uid: str, days: int | None) -> None:
        """Let a target's runs set aside for so many days what they would delete; None lets them delete."""
        table = schema.recycling
        with self._database.changing() as connection:
            connection.execute(delete(table).where(table.c.target_uid == target_uid))
            if days is not None:
                row = {"target": target, "target_uid": target_uid, "days": days, "actor": current_user()}
                connection.execute(insert(table).values(**row, set_at=to_micros(self._clock())))

    def recycling_days(self, target_uid: str) -> int | None:
        """Give for how many days a target's runs set aside what they would delete; None if they delete."""
        query = select(schema.recycling.c.days).where(schema.recycling.c.target_uid == target_uid)
        with self._database.reading() as connection:
            found = connection.execute(query).scalar_one_or_none()
        return None if found is None else int(found)

    def note(self, run_id: int, what: str) -> None:
        """Add an event to a run's story."""
        with self._database.changing() as connection:
            self._note(connection, run_id, what)

    def close(self) -> None:
        """Close all idle connections."""
        self._database.close()

    def _note(self, connection: Connection, run_id: int, what: str) -> None:
        row = {"run_id": run_id, "at": to_micros(self._clock()), "actor": current_user(), "what": what}
        connection.execute(insert(schema.events).values(**row))


def _no_run(run_id: int) -> NotFound:
    return NotFound(f"there is no run {run_id}", fix="list them with 'ebb runs'")


def _run(row: Any) -> Run:
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
        policy=row["policy"],
        plan_hash=row["plan_hash"],
        due_objects=row["due_objects"],
        due_bytes=row["due_bytes"],
        error=row["error"],
    )
