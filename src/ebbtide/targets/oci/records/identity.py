"""Names of registries, and the merge of records that were kept under several names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import (
    Connection,
    column,
    delete,
    exists,
    insert,
    inspect,
    select,
    table,
    text,
    update,
)

from ebbtide.core.errors import MetadataError, Refused
from ebbtide.core.instant import NEVER, from_micros, to_micros
from ebbtide.state.database import upsert
from ebbtide.state.users import SYSTEM
from ebbtide.targets.oci.client.address import earlier_uids, name_uid
from ebbtide.targets.oci.model import QuarantineState
from ebbtide.targets.oci.records.base import AuditEntry, RecordsBase, all_holders, check_may_grant, log_row
from ebbtide.targets.oci.records.marks import mark_row, row_mark
from ebbtide.targets.oci.records.model import EVERYWHERE, LogKind, Mark
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

_COMMANDS = {
    "roles": "role grant' and 'ebb image role revoke",
    "policies": "policy show' and 'ebb image policy load",
}


def has_records(connection: Connection, uids: Sequence[str]) -> list[str]:
    """Return the uids that have records, the one with the newest scan first."""
    every = (registries, marks, roles, snapshots, log)
    wanted = list(dict.fromkeys(uids))
    found: set[str] = set()
    for one in every:
        found |= {*connection.execute(select(one.c.uid).where(one.c.uid.in_(wanted)).distinct()).scalars()}
    query = select(snapshots.c.uid, snapshots.c.scanned_at).where(snapshots.c.uid.in_(found))
    scanned = dict(connection.execute(query).tuples().all())
    return sorted(found, key=lambda uid: (-scanned.get(uid, -1), wanted.index(uid)))


def merge_records(connection: Connection, names: Mapping[str, str], now: datetime, into: str = "") -> str:
    """
    Merge the records of several uids, given with their names, into one of them, and return it.

    The newest scan is kept, so its uid stays unless another is wanted: scans are kept in
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
            # Their outcomes are in the other uid's removed items; the next fold adds them to this one's.
            # A ledger that has not been opened since an upgrade of Ebbtide has the earlier table.
            upgraded = inspect(connection).has_table("batch_attempts")
            attempts = table("batch_attempts" if upgraded else "waves", column("run_id"), column("state"))
            theirs = text("run_id IN (SELECT run_id FROM runs WHERE target_uid = :other)")
            unfolded = update(attempts).where(attempts.c.state == "folded", theirs).values(state="counted")
            connection.execute(unfolded, {"other": other})
            moved = text("UPDATE runs SET target_uid = :uid WHERE target_uid = :other")
            connection.execute(moved, {"uid": uid, "other": other})
    return uid


def stricter(one: Mark, other: Mark, now: datetime) -> Mark:
    """Return the mark that keeps an image longer; a pending check of either side holds it."""
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
    """Stop if both sides have policies, or roles, and these differ."""
    granted = {uid: _roles(connection, uid) for uid in names}
    documents = {uid: _hash(connection, uid) for uid in names}
    for what, sides in (("roles", granted), ("policies", documents)):
        told = {uid: side for uid, side in sides.items() if side}
        if len(set(told.values())) > 1:
            raise MetadataError(
                f"the {what} of one registry are recorded under several names and contradict each other",
                why="it is unknown which of them count",
                fix=f"make them alike under each of these names with 'ebb image {_COMMANDS[what]}'",
                details=[f"{names[uid]}: {side}" for uid, side in told.items()],
            )


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
    """Keep adoptions that were confirmed under all uids; for others the next plan asks again."""
    c = adoptions.c
    for other in others:
        theirs = select(c.repository).where(c.uid == other)
        confirmed = list(connection.execute(theirs).scalars())
        connection.execute(delete(adoptions).where(c.uid == uid, c.repository.not_in(confirmed)))
        connection.execute(delete(adoptions).where(c.uid == other))


def _move_creation_dates(connection: Connection, uid: str, other: str) -> None:
    """Keep every known date; the date of a digest never changes."""
    c = creation_dates.c
    known = set(connection.execute(select(c.digest).where(c.uid == uid)).scalars())
    rows = connection.execute(select(c.digest, c.created_at).where(c.uid == other)).all()
    new = [{"uid": uid, "digest": digest, "created_at": at} for digest, at in rows if digest not in known]
    connection.execute(delete(creation_dates).where(c.uid == other))
    if new:
        connection.execute(insert(creation_dates), new)


def _move_running_source(connection: Connection, uid: str, other: str) -> None:
    """Keep the source of the uid that stays; if it has none, take the other one."""
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
    """Record notifications again, with ids that no scan has passed; duplicates count once."""
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


@dataclass(frozen=True)
class Identity:
    """A canonical name of a registry, the uid of its records, and its marker, empty if it has none."""

    name: str
    uid: str
    marker: str
    address: str
    """The address at which it was last reached by this name."""
    at: datetime
    by: str


class IdentityRecords(RecordsBase):
    """The names of all registries."""

    def identity(self, name: str) -> Identity | None:
        """Return the identity recorded for a canonical name; None if the name is unknown."""
        found = self._identities(registry_names.c.name == name)
        return found[0] if found else None

    def names_of_marker(self, marker: str) -> list[Identity]:
        """Return the names of the registry with a marker, oldest first."""
        return self._identities(registry_names.c.marker == marker)

    def names_of(self, uid: str) -> list[Identity]:
        """Return the names whose records are kept under a uid, oldest first."""
        return self._identities(registry_names.c.uid == uid)

    def uid_of(self, name: str) -> str:
        """
        Return the uid under which the records of a name are kept, without asking the registry.

        Records that earlier versions kept under several spellings of the name are merged first;
        MetadataError if they contradict each other.
        """
        known = self.identity(name)
        if known is not None:
            return known.uid
        with self._database.reading() as connection:
            found = _with_records(connection, name)
        if len(found) < 2:
            return found[0] if found else name_uid(name)
        with self._changing(EVERYWHERE) as connection:
            found = _with_records(connection, name)
            uid = merge_records(connection, {one: earlier_uids(name)[one] for one in found}, self._clock())
            self._log_name(connection, uid, name, f"merge the records of {len(found)} spellings of {name}")
        return uid

    def check_known(self, name: str, uid: str, by: str, what: str, *, adopt: bool = False) -> None:
        """
        Refuse to change something at an unknown registry while others have roles.

        An unknown name may be one more name of a registry whose roles forbid it.
        """
        entry = AuditEntry(uid, by, LogKind.ROLE, name, what)
        with self._doing(entry, None, locked=EVERYWHERE) as connection:
            if adopt or _is_known(connection, name, uid):
                return
            if any(where not in (EVERYWHERE, uid) for where, _, _ in all_holders(connection)):
                raise Refused(
                    f"{name} is not known, so {by} may not {what}",
                    why="other registries have roles, and this could be another name of one of them",
                    fix=f"if it is a registry of its own, adopt it first: ebb image adopt {name}",
                )

    def check_may_adopt(self, name: str, uid: str, by: str) -> None:
        """Raise Forbidden, and log it, unless a user may make the first grant of a registry."""
        with self._doing(AuditEntry(uid, by, LogKind.ROLE, name, "adopt the registry"), None) as connection:
            check_may_grant(all_holders(connection), uid, by, f"adopt {name}")

    def remember(self, name: str, uid: str, marker: str, address: str, by: str, what: str) -> None:
        """
        Record a name of a registry; log it if `what` is given.

        Records under another uid of that name are merged into these; MetadataError if the
        two contradict each other.
        """
        with self._changing(EVERYWHERE) as connection:
            query = select(registry_names.c.uid).where(registry_names.c.name == name)
            known = connection.execute(query).scalar()
            before = _with_records(connection, name) if known is None else [known]
            if others := [one for one in before if one != uid]:
                spelled = {one: earlier_uids(name).get(one, name) for one in (uid, *others)}
                merge_records(connection, spelled, self._clock(), into=uid)
            self._write_name(connection, Identity(name, uid, marker, address, self._clock(), by), what)

    def renew_identity(self, name: str, uid: str, marker: str, address: str, by: str) -> None:
        """Return a name new records, because another registry answers there than was recorded."""
        with self._changing(EVERYWHERE) as connection:
            connection.execute(delete(registry_names).where(registry_names.c.name == name))
            found = Identity(name, uid, marker, address, self._clock(), by)
            self._write_name(connection, found, "adopt the registry as a new one")

    def _write_name(self, connection: Connection, found: Identity, what: str) -> None:
        row = asdict(found) | {"at": to_micros(found.at)}
        upsert(connection, registry_names, [row], ("name",))
        if what:
            self._log_name(connection, found.uid, found.name, what, found.by)

    def _log_name(self, connection: Connection, uid: str, name: str, what: str, by: str = SYSTEM) -> None:
        entry = AuditEntry(uid, by, LogKind.ROLE, name, what)
        self._note(connection, [log_row(entry, self._clock())])

    def _identities(self, wanted: Any) -> list[Identity]:
        query = select(registry_names).where(wanted).order_by(registry_names.c.at, registry_names.c.name)
        with self._database.reading() as connection:
            rows = connection.execute(query).mappings().all()
        return [
            Identity(
                row["name"], row["uid"], row["marker"], row["address"], from_micros(row["at"]), row["by"]
            )
            for row in rows
        ]


def _with_records(connection: Connection, name: str) -> list[str]:
    """Return the uids of a name's spellings that have records, the one to keep first."""
    return has_records(connection, [name_uid(name), *earlier_uids(name)])


def _is_known(connection: Connection, name: str, uid: str) -> bool:
    """Return True if a name is recorded, or has assignments, grants or settings."""
    queries: Sequence[Any] = (
        exists().where(registry_names.c.name == name),
        exists().where(registry_names.c.uid == uid),
        exists().where(adoptions.c.uid == uid),
        exists().where(marks.c.uid == uid),
        exists().where(roles.c.uid == uid),
        exists().where(registries.c.uid == uid, registries.c.policies.is_not(None)),
    )
    return any(connection.execute(select(query)).scalar() for query in queries)
