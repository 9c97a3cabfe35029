"""
Merging the records of one registry that were kept under several uids.

Pins and marks are united, and of two for one image the stricter wins. Policies and roles must not contradict
each other: where two sides have some and they differ, nothing is merged, because each way of uniting them
would give somebody rights, or images dates, that nobody decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, exists, insert, inspect, select, text, update

from ebbtide.core.errors import MetadataError
from ebbtide.core.instant import NEVER
from ebbtide.targets.oci.model import QuarantineState
from ebbtide.targets.oci.records.mark_rows import mark_row, row_mark
from ebbtide.targets.oci.records.model import Mark
from ebbtide.targets.oci.records.tables import (
    adoptions,
    creation_dates,
    events,
    log,
    marks,
    registries,
    registry_names,
    roles,
    running_sources,
    snapshots,
)

_EVENT = ("action", "repository", "tag", "digest", "at")


def has_records(connection: Connection, uids: Sequence[str]) -> list[str]:
    """Give those uids that have records, the one with the newest scan first."""
    every = (registries, marks, roles, snapshots, log)
    wanted = list(dict.fromkeys(uids))
    found: set[str] = set()
    for table in every:
        found |= {
            *connection.execute(select(table.c.uid).where(table.c.uid.in_(wanted)).distinct()).scalars()
        }
    query = select(snapshots.c.uid, snapshots.c.scanned_at).where(snapshots.c.uid.in_(found))
    scanned = dict(connection.execute(query).tuples().all())
    return sorted(found, key=lambda uid: (-scanned.get(uid, -1), wanted.index(uid)))


def merge_records(connection: Connection, names: Mapping[str, str], now: datetime, into: str = "") -> str:
    """
    Merge the records of several uids, whose names are given, into one of them, and give it.

    The lasting scan is the newest, so the uid with that one stays unless another is wanted: scans are kept in
    folders named by the uid.
    """
    uid = into or next(iter(names))
    others = [one for one in names if one != uid]
    _check_alike(connection, names)
    _merge_marks(connection, uid, others, now)
    _merge_adoptions(connection, uid, others)
    for other in others:
        if not _has(connection, roles, uid):
            connection.execute(update(roles).where(roles.c.uid == other).values(uid=uid))
        connection.execute(delete(roles).where(roles.c.uid == other))
        _move_policies(connection, uid, other)
        _move_events(connection, uid, other)
        _move_creation_dates(connection, uid, other)
        _move_running_source(connection, uid, other)
        connection.execute(update(log).where(log.c.uid == other).values(uid=uid))
        connection.execute(update(registry_names).where(registry_names.c.uid == other).values(uid=uid))
        connection.execute(delete(snapshots).where(snapshots.c.uid == other))
        if inspect(connection).has_table("runs"):
            # Their outcomes are in the other's table of removed items; the next fold adds them to this one's.
            unfolded = text(
                "UPDATE waves SET state = 'counted' WHERE state = 'folded'"
                " AND run_id IN (SELECT run_id FROM runs WHERE target_uid = :other)"
            )
            connection.execute(unfolded, {"other": other})
            moved = text("UPDATE runs SET target_uid = :uid WHERE target_uid = :other")
            connection.execute(moved, {"uid": uid, "other": other})
    return uid


def stricter(one: Mark, other: Mark, now: datetime) -> Mark:
    """Give the mark that keeps an image longer; a check that is pending holds, whoever said so."""
    kept, rest = sorted((one, other), key=lambda mark: _rank(mark, now), reverse=True)
    newest = max((kept, rest), key=lambda mark: mark.at)
    pending = [
        mark.quarantine
        for mark in (kept, rest)
        if mark.quarantine is not None and mark.quarantine.state is QuarantineState.PENDING
    ]
    return replace(kept, quarantine=pending[0] if pending else newest.quarantine, earlier=newest.earlier)


def _rank(mark: Mark, now: datetime) -> tuple[bool, bool, datetime, datetime]:
    date = mark.assigned.expires_at or NEVER
    return mark.is_pinned(now), not mark.assigned.is_empty, date, mark.at


def _check_alike(connection: Connection, names: Mapping[str, str]) -> None:
    """Stop if two sides have policies, or roles, and they differ."""
    granted = {uid: _roles(connection, uid) for uid in names}
    documents = {uid: _hash(connection, uid) for uid in names}
    for what, sides in (("roles", granted), ("policies", documents)):
        told = {uid: side for uid, side in sides.items() if side}
        if len(set(told.values())) > 1:
            raise MetadataError(
                f"the {what} of one registry are recorded under several names and contradict each other",
                why="nobody can say which of them count",
                fix=f"make them alike under each of these names with 'ebb image {_COMMANDS[what]}'",
                details=[f"{names[uid]}: {side}" for uid, side in told.items()],
            )


_COMMANDS = {
    "roles": "role grant' and 'ebb image role revoke",
    "policies": "policy show' and 'ebb image policy load",
}


def _roles(connection: Connection, uid: str) -> str:
    query = select(roles.c.member, roles.c.role).where(roles.c.uid == uid)
    return ", ".join(sorted(f"{member} has {role}" for member, role in connection.execute(query)))


def _hash(connection: Connection, uid: str) -> str:
    query = select(registries.c.hash).where(registries.c.uid == uid)
    found = connection.execute(query).scalar()
    return f"policies {found[:12]}" if found else ""


def _merge_marks(connection: Connection, uid: str, others: Sequence[str], now: datetime) -> None:
    merged: dict[tuple[str, str, str], Mark] = {}
    for one in (uid, *others):
        for row in connection.execute(select(marks).where(marks.c.uid == one)).mappings():
            mark = row_mark(row)
            known = merged.get(mark.target.key)
            merged[mark.target.key] = mark if known is None else stricter(known, mark, now)
    connection.execute(delete(marks).where(marks.c.uid.in_([uid, *others])))
    if merged:
        connection.execute(insert(marks), [mark_row(uid, mark) for mark in merged.values()])


def _merge_adoptions(connection: Connection, uid: str, others: Sequence[str]) -> None:
    """Keep what was confirmed under all uids; for the rest the next plan asks again."""
    c = adoptions.c
    for other in others:
        theirs = select(c.repository).where(c.uid == other)
        confirmed = list(connection.execute(theirs).scalars())
        connection.execute(delete(adoptions).where(c.uid == uid, c.repository.not_in(confirmed)))
        connection.execute(delete(adoptions).where(c.uid == other))


def _move_creation_dates(connection: Connection, uid: str, other: str) -> None:
    """Keep every date that is known; a digest says the same for ever."""
    c = creation_dates.c
    known = set(connection.execute(select(c.digest).where(c.uid == uid)).scalars())
    rows = connection.execute(select(c.digest, c.created_at).where(c.uid == other)).all()
    new = [{"uid": uid, "digest": digest, "created_at": at} for digest, at in rows if digest not in known]
    connection.execute(delete(creation_dates).where(c.uid == other))
    if new:
        connection.execute(insert(creation_dates), new)


def _move_running_source(connection: Connection, uid: str, other: str) -> None:
    """Keep the source of the uid that stays; if it has none, the other's."""
    c = running_sources.c
    mine = exists().where(c.uid == uid, c.name.is_not(None))
    if not connection.execute(select(mine)).scalar() and _has(connection, running_sources, other):
        connection.execute(delete(running_sources).where(c.uid == uid))
        connection.execute(update(running_sources).where(c.uid == other).values(uid=uid))
    connection.execute(delete(running_sources).where(c.uid == other))


def _move_policies(connection: Connection, uid: str, other: str) -> None:
    c = registries.c
    theirs = connection.execute(select(registries).where(c.uid == other)).mappings().one_or_none()
    mine = connection.execute(select(registries).where(c.uid == uid)).mappings().one_or_none()
    if theirs is not None and theirs["policies"] is not None and (mine is None or mine["policies"] is None):
        values: dict[str, Any] = {
            name: theirs[name] for name in ("policies", "hash", "updated_at", "updated_by")
        }
        if mine is None:
            connection.execute(insert(registries).values(uid=uid, changes=1, **values))
        else:
            connection.execute(update(registries).where(c.uid == uid).values(**values))
    connection.execute(delete(registries).where(c.uid == other))


def _move_events(connection: Connection, uid: str, other: str) -> None:
    """Record notifications anew, with ids that no scan has passed; what both sides have counts once."""
    columns = [events.c[name] for name in _EVENT]
    known = {tuple(row) for row in connection.execute(select(*columns).where(events.c.uid == uid))}
    query = select(*columns).where(events.c.uid == other).order_by(events.c.id)
    rows = [
        dict(zip(_EVENT, row, strict=True)) for row in connection.execute(query) if tuple(row) not in known
    ]
    connection.execute(delete(events).where(events.c.uid == other))
    if rows:
        connection.execute(insert(events), [{"uid": uid, **row} for row in rows])


def _has(connection: Connection, table: Any, uid: str) -> bool:
    return bool(connection.execute(select(exists().where(table.c.uid == uid))).scalar())
