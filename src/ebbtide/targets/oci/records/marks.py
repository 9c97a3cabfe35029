"""Marks: what people assigned to tags and manifests; each change of one is logged."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection, delete, select, tuple_

from ebbtide.core.errors import BadInput, Forbidden
from ebbtide.core.instant import from_micros, to_micros
from ebbtide.state.database import upsert
from ebbtide.state.users import SYSTEM
from ebbtide.targets.oci.model import Quarantine, QuarantineState
from ebbtide.targets.oci.policies.policy import (
    Assigned,
    Policies,
)
from ebbtide.targets.oci.records.base import AuditEntry, RecordsBase, log_row
from ebbtide.targets.oci.records.mark_operations import Operation, loosens
from ebbtide.targets.oci.records.model import EVERYWHERE, Change, LogKind, Mark, Role, Target
from ebbtide.targets.oci.records.policies import read_stored
from ebbtide.targets.oci.records.tables import marks

KEY = ("uid", "repository", "tag", "manifest")
_AT_ONCE = 1000
_MANY = "several images"
Edit = Callable[[Mark | None], Mark | None]
Edits = Iterable[tuple[Target, Edit]]
Key = tuple[str, str, str]
Seen = Mapping[Key, Assigned]
"""Values that a scan copied to tags and manifests without marks."""
_NOTHING: Seen = MappingProxyType({})


def mark_row(uid: str, mark: Mark) -> dict[str, Any]:
    """Return the row of a mark."""
    state = mark.quarantine
    return {
        **key_of(uid, mark.target),
        "digest": mark.target.digest,
        **_assigned_row(mark.assigned),
        "quarantine": None if state is None else str(state.state),
        "quarantine_since": _micros(state.since if state else None),
        "at": to_micros(mark.at),
        "updated_by": mark.by,
        "earlier": None if mark.earlier is None else json.dumps(_assigned_row(mark.earlier)),
    }


def key_of(uid: str, target: Target) -> dict[str, str]:
    """Return the key columns of a marked tag or manifest."""
    return dict(zip(KEY, (uid, *target.key), strict=True))


def row_mark(row: Mapping[Any, Any]) -> Mark:
    """Return the mark of a row."""
    state = row["quarantine"]
    since = None if row["quarantine_since"] is None else from_micros(row["quarantine_since"])
    return Mark(
        Target(row["repository"], row["tag"], row["digest"]),
        _assigned(row),
        None if state is None else Quarantine(QuarantineState(state), since),
        from_micros(row["at"]),
        row["updated_by"],
        None if row["earlier"] is None else _assigned(json.loads(row["earlier"])),
    )


def _assigned_row(values: Assigned) -> dict[str, Any]:
    return {
        "policy": values.policy,
        "expires_at": _micros(values.expires_at),
        "can_delete_prior": values.can_delete_prior,
        "recycle": values.recycle,
    }


def _assigned(row: Mapping[Any, Any]) -> Assigned:
    date = None if row["expires_at"] is None else from_micros(row["expires_at"])
    return Assigned(row["policy"], date, row["can_delete_prior"], row["recycle"])


def _micros(at: Any) -> int | None:
    return None if at is None else to_micros(at)


class MarkRecords(RecordsBase):
    """The marks of all registries."""

    def mark(self, uid: str, target: Target) -> Mark | None:
        """Return the mark of a tag or manifest; None if there is none."""
        with self._database.reading() as connection:
            return _read(connection, uid, [target]).get(target.key)

    def marks_of(self, uid: str, targets: Sequence[Target]) -> dict[tuple[str, str, str], Mark]:
        """Return the marks of some tags and manifests by key, without those that have none."""
        found: dict[tuple[str, str, str], Mark] = {}
        with self._database.reading() as connection:
            for start in range(0, len(targets), _AT_ONCE):
                found |= _read(connection, uid, targets[start : start + _AT_ONCE])
        return found

    def marks(self, uid: str) -> Iterator[Mark]:
        """Yield all marks of a registry as of one moment, in the order of their names."""
        c = marks.c
        query = select(marks).where(c.uid == uid).order_by(c.repository, c.tag, c.manifest)
        with self._database.reading() as connection:
            rows = connection.execution_options(yield_per=_AT_ONCE).execute(query).mappings()
            yield from map(row_mark, rows)

    def change_mark(
        self, uid: str, target: Target, operation: Operation, by: str, what: str, seen: Seen = _NOTHING
    ) -> Change:
        """
        Apply an operation to one tag or manifest, and return its mark before and after.

        If it had none, the values that were `seen` counted for it until now, and the log says so.
        """
        entry = AuditEntry(uid, by, LogKind.IMAGE, str(target), what)
        with self._doing(entry, Role.IMAGE_WRITER) as connection:
            edits = self._operations(connection, uid, [target], operation, seen)
            [change] = self._make(connection, entry, edits, seen)
        return change

    def change_marks(
        self, uid: str, targets: Iterable[Target], operation: Operation, by: str, what: str
    ) -> int:
        """Apply an operation to many, all or none, and count them; each has its own log entry."""
        entry = AuditEntry(uid, by, LogKind.IMAGE, _MANY, what)
        with self._doing(entry, Role.IMAGE_WRITER) as connection:
            edits = self._operations(connection, uid, targets, operation)
            return sum(1 for _ in self._make(connection, entry, edits))

    def put_marks(self, uid: str, wanted: Iterable[Mark], by: str, why: str, seen: Seen = _NOTHING) -> int:
        """Write marks as given, all or none, and count them; each is logged with the mark before."""
        entry = AuditEntry(uid, by, LogKind.IMAGE, _MANY, why)
        with self._doing(entry, Role.IMAGE_WRITER) as connection:
            edits = ((mark.target, _always(mark)) for mark in wanted)
            return sum(1 for _ in self._make(connection, entry, edits, seen))

    def remove_mark(self, uid: str, target: Target, by: str, why: str) -> Change:
        """Remove the mark of a tag or manifest, if there is one."""
        entry = AuditEntry(uid, by, LogKind.IMAGE, str(target), why)
        with self._doing(entry, Role.IMAGE_WRITER) as connection:
            [change] = self._make(connection, entry, [(target, _always(None))])
        return change

    def _operations(
        self,
        connection: Connection,
        uid: str,
        targets: Iterable[Target],
        operation: Operation,
        seen: Seen = _NOTHING,
    ) -> Edits:
        policies, now = read_stored(connection, uid).policies, self._clock()
        for target in targets:
            # Values that a manifest got because it lost its tags must not count when it has tags again.
            begun = Mark(target, seen.get(target.key, Assigned()) if target.tag else Assigned())
            yield target, _by(operation, begun, policies, now)

    def _make(
        self, connection: Connection, entry: AuditEntry, edits: Edits, seen: Seen = _NOTHING
    ) -> Iterator[Change]:
        """Make changes and their log entries, in parts that fit in memory and in a statement."""
        if entry.uid == EVERYWHERE:
            raise BadInput("images are in one registry, not in all", fix="name the registry")
        now, rest = self._clock(), iter(edits)
        while chunk := list(islice(rest, _AT_ONCE)):
            known = _read(connection, entry.uid, [target for target, _ in chunk])
            changes = [_change(entry, target, edit, known, now) for target, edit in chunk]
            changes = [_with_seen(change, seen.get(change.target.key)) for change in changes]
            self._write(connection, entry, changes, now)
            yield from changes

    def _write(self, connection: Connection, entry: AuditEntry, changes: list[Change], now: datetime) -> None:
        last = {change.target.key: change for change in changes}.values()
        kept = [mark_row(entry.uid, change.after) for change in last if change.after is not None]
        gone = [change.target for change in last if change.after is None]
        upsert(connection, marks, kept, KEY)
        for target in gone:
            key = [marks.c[name] == value for name, value in key_of(entry.uid, target).items()]
            connection.execute(delete(marks).where(*key))
        rows = [
            log_row(
                replace(entry, subject=str(change.target)),
                now,
                before=change.before and change.before.plain(),
                after=change.after and change.after.plain(),
            )
            for change in changes
            if (change.before, change.after) != (None, None)
        ]
        self._note(connection, rows)


def _with_seen(change: Change, seen: Assigned | None) -> Change:
    """Return the change with the values that counted before: those of the mark, or those of the scan."""
    before = Mark(change.target) if change.before is None else change.before
    silent = change.after is None or change.after.assigned == Assigned()
    if seen is None or silent or before.assigned != Assigned():
        return change
    return replace(change, before=replace(before, assigned=seen))


def _always(mark: Mark | None) -> Edit:
    return lambda _: mark


def _by(operation: Operation, begun: Mark, policies: Policies, now: datetime) -> Edit:
    return lambda before: operation(_on(before, begun), policies, now)


def _on(before: Mark | None, begun: Mark) -> Mark:
    """Return the existing mark with the tag's current digest, or the mark to begin with."""
    return begun if before is None else replace(before, target=begun.target)


def _change(
    entry: AuditEntry, target: Target, edit: Edit, known: dict[tuple[str, str, str], Mark], now: datetime
) -> Change:
    """Return one change, and update `known`, because a target may occur twice."""
    before = known.get(target.checked().key)
    after = edit(before)
    if after is not None:
        after = None if after.is_empty else replace(after, target=target, at=now, by=entry.by)
    if entry.by == SYSTEM and loosens(before, after, now):
        raise Forbidden(
            f"{SYSTEM} may not unpin {target}",
            why="the purge renews what runs and takes no pin away",
            fix="unpin it under your own name",
        )
    if after is None:
        known.pop(target.key, None)
    else:
        known[target.key] = after
    return Change(target, before, after)


def _read(connection: Connection, uid: str, targets: Sequence[Target]) -> dict[tuple[str, str, str], Mark]:
    """Read the marks of some targets by their keys."""
    c = marks.c
    keys = [target.key for target in targets]
    query = select(marks).where(c.uid == uid, tuple_(c.repository, c.tag, c.manifest).in_(keys))
    found = (row_mark(row) for row in connection.execute(query).mappings())
    return {mark.target.key: mark for mark in found}
