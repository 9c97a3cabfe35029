"""What people assigned to tags and manifests: read as a stream, changed in one transaction with its log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from types import MappingProxyType

from sqlalchemy import Connection, delete, select, tuple_

from ebbtide.core.errors import BadInput, Forbidden
from ebbtide.state.actors import SYSTEM
from ebbtide.state.database import upsert
from ebbtide.targets.oci.policies.policy import Assigned, Policies
from ebbtide.targets.oci.records.mark_rows import KEY, key_of, mark_row, row_mark
from ebbtide.targets.oci.records.marking import Operation, loosens
from ebbtide.targets.oci.records.model import EVERYWHERE, Change, LogKind, Mark, Role, Target
from ebbtide.targets.oci.records.part import Deed, RecordsPart, log_row
from ebbtide.targets.oci.records.policy_book import read_stored
from ebbtide.targets.oci.records.tables import marks

_AT_ONCE = 1000
_MANY = "several images"

Edit = Callable[[Mark | None], Mark | None]
Edits = Iterable[tuple[Target, Edit]]
Key = tuple[str, str, str]
Seen = Mapping[Key, Assigned]
"""What a scan had copied onto tags and manifests of which nobody has said anything."""
_NOTHING: Seen = MappingProxyType({})


class MarkBook(RecordsPart):
    """The marks of all registries."""

    def mark(self, uid: str, target: Target) -> Mark | None:
        """Give the mark of a tag or manifest, None if there is none."""
        with self._database.reading() as connection:
            return _read(connection, uid, [target]).get(target.key)

    def marks_of(self, uid: str, targets: Sequence[Target]) -> dict[tuple[str, str, str], Mark]:
        """Give the marks of some tags and manifests by their keys; those that have none are not in it."""
        found: dict[tuple[str, str, str], Mark] = {}
        with self._database.reading() as connection:
            for start in range(0, len(targets), _AT_ONCE):
                found |= _read(connection, uid, targets[start : start + _AT_ONCE])
        return found

    def marks(self, uid: str) -> Iterator[Mark]:
        """Stream all marks of a registry as they are at one moment, in the order of their names."""
        c = marks.c
        query = select(marks).where(c.uid == uid).order_by(c.repository, c.tag, c.manifest)
        with self._database.reading() as connection:
            rows = connection.execution_options(yield_per=_AT_ONCE).execute(query).mappings()
            yield from map(row_mark, rows)

    def change_mark(
        self, uid: str, target: Target, operation: Operation, by: str, what: str, seen: Seen = _NOTHING
    ) -> Change:
        """
        Do something to one tag or manifest, and give its mark before and after.

        Where it had none, what counted for it until now is what was `seen`, and the log says so.
        """
        deed = Deed(uid, by, LogKind.IMAGE, str(target), what)
        with self._doing(deed, Role.IMAGE_WRITER) as connection:
            edits = self._operations(connection, uid, [target], operation, seen)
            [change] = self._make(connection, deed, edits, seen)
        return change

    def change_marks(
        self, uid: str, targets: Iterable[Target], operation: Operation, by: str, what: str
    ) -> int:
        """Do the same to many, all or none, and count them; each is logged by itself."""
        deed = Deed(uid, by, LogKind.IMAGE, _MANY, what)
        with self._doing(deed, Role.IMAGE_WRITER) as connection:
            edits = self._operations(connection, uid, targets, operation)
            return sum(1 for _ in self._make(connection, deed, edits))

    def put_marks(self, uid: str, wanted: Iterable[Mark], by: str, why: str, seen: Seen = _NOTHING) -> int:
        """Write marks as they are given, all or none, and count them; each is logged with what was before."""
        deed = Deed(uid, by, LogKind.IMAGE, _MANY, why)
        with self._doing(deed, Role.IMAGE_WRITER) as connection:
            edits = ((mark.target, _always(mark)) for mark in wanted)
            return sum(1 for _ in self._make(connection, deed, edits, seen))

    def remove_mark(self, uid: str, target: Target, by: str, why: str) -> Change:
        """Forget what was assigned to a tag or manifest; it is fine if nothing was."""
        deed = Deed(uid, by, LogKind.IMAGE, str(target), why)
        with self._doing(deed, Role.IMAGE_WRITER) as connection:
            [change] = self._make(connection, deed, [(target, _always(None))])
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
            # What a manifest got for having lost its tags is not meant for the day when it has some again.
            begun = Mark(target, seen.get(target.key, Assigned()) if target.tag else Assigned())
            yield target, _by(operation, begun, policies, now)

    def _make(
        self, connection: Connection, deed: Deed, edits: Edits, seen: Seen = _NOTHING
    ) -> Iterator[Change]:
        """Make changes and their log entries, so many at once that neither memory nor a statement is full."""
        if deed.uid == EVERYWHERE:
            raise BadInput("images are in one registry, not in all", fix="name the registry")
        now, rest = self._clock(), iter(edits)
        while chunk := list(islice(rest, _AT_ONCE)):
            known = _read(connection, deed.uid, [target for target, _ in chunk])
            changes = [_change(deed, target, edit, known, now) for target, edit in chunk]
            changes = [_with_seen(change, seen.get(change.target.key)) for change in changes]
            self._write(connection, deed, changes, now)
            yield from changes

    def _write(self, connection: Connection, deed: Deed, changes: list[Change], now: datetime) -> None:
        last = {change.target.key: change for change in changes}.values()
        kept = [mark_row(deed.uid, change.after) for change in last if change.after is not None]
        gone = [change.target for change in last if change.after is None]
        upsert(connection, marks, kept, KEY)
        for target in gone:
            key = [marks.c[name] == value for name, value in key_of(deed.uid, target).items()]
            connection.execute(delete(marks).where(*key))
        rows = [
            log_row(
                replace(deed, subject=str(change.target)),
                now,
                before=change.before and change.before.plain(),
                after=change.after and change.after.plain(),
            )
            for change in changes
            if (change.before, change.after) != (None, None)
        ]
        self._note(connection, rows)


def _with_seen(change: Change, seen: Assigned | None) -> Change:
    """Say what counted before: what people had said or, if they had said nothing, what the scan copied."""
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
    """Give the mark that is there, as one on what a tag stands for now, or the one to begin with."""
    return begun if before is None else replace(before, target=begun.target)


def _change(
    deed: Deed, target: Target, edit: Edit, known: dict[tuple[str, str, str], Mark], now: datetime
) -> Change:
    """Work out one change; `known` follows, as a thing may come twice."""
    before = known.get(target.checked().key)
    after = edit(before)
    if after is not None:
        after = None if after.is_empty else replace(after, target=target, at=now, by=deed.by)
    if deed.by == SYSTEM and loosens(before, after, now):
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
    """Read the marks of some things by their keys."""
    c = marks.c
    keys = [target.key for target in targets]
    query = select(marks).where(c.uid == uid, tuple_(c.repository, c.tag, c.manifest).in_(keys))
    found = (row_mark(row) for row in connection.execute(query).mappings())
    return {mark.target.key: mark for mark in found}
