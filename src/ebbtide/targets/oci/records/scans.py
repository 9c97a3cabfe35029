"""Scans of registries: notifications, snapshots, creation dates, and sources of running images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from sqlalchemy import Connection, delete, select

from ebbtide.core.instant import from_micros, to_micros
from ebbtide.state.database import new_rows, upsert
from ebbtide.targets.oci.client.names import check_digest, check_repository, check_tag
from ebbtide.targets.oci.records.base import AuditEntry, RecordsBase, check_holds, log_row
from ebbtide.targets.oci.records.model import Action, Event, LogKind, Role, Snapshot
from ebbtide.targets.oci.records.tables import creation_dates, events, running_sources, snapshots
from ebbtide.targets.oci.running_source import source_kind

_AT_ONCE = 1000

SUBJECT = "running images"
"""What the log calls the source."""


class EventRecords(RecordsBase):
    """The notifications and the last scans of all registries."""

    def add_events(self, uid: str, found: Iterable[Event]) -> None:
        """Record notifications, all or none, without duplicates, which registries send."""
        rest = (_row(uid, event) for event in found)
        # One writer at a time, so that ids become visible in order: a reader that forgets up to an id must
        # not miss one that was not committed yet.
        with self._changing(uid) as connection:
            while chunk := list(islice(rest, _AT_ONCE)):
                connection.execute(new_rows(connection, events).on_conflict_do_nothing(), chunk)

    def events(self, uid: str, *, after: int = 0) -> Iterator[Event]:
        """Yield the notifications of a registry in the order in which they were recorded."""
        query = select(events).where(events.c.uid == uid, events.c.id > after).order_by(events.c.id)
        with self._database.reading() as connection:
            for row in connection.execution_options(yield_per=_AT_ONCE).execute(query).mappings():
                yield Event(
                    Action(row["action"]),
                    row["repository"],
                    row["tag"],
                    row["digest"],
                    from_micros(row["at"]),
                    row["id"],
                )

    def forget_events(self, uid: str, up_to_id: int) -> None:
        """Remove notifications up to an id, when a scan includes them."""
        with self._changing(uid) as connection:
            connection.execute(delete(events).where(events.c.uid == uid, events.c.id <= up_to_id))

    def snapshot(self, uid: str) -> Snapshot | None:
        """Return the last scan of a registry; None before the first."""
        with self._database.reading() as connection:
            query = select(snapshots).where(snapshots.c.uid == uid)
            row = connection.execute(query).mappings().one_or_none()
        if row is None:
            return None
        scanned = from_micros(row["scanned_at"])
        return Snapshot(row["folder"], scanned, row["manifests"], row["tags"], row["last_event"])

    def record_snapshot(self, uid: str, snapshot: Snapshot) -> None:
        """Record the last scan of a registry."""
        row = {
            "uid": uid,
            "folder": snapshot.folder,
            "scanned_at": to_micros(snapshot.scanned_at),
            "manifests": snapshot.manifests,
            "tags": snapshot.tags,
            "last_event": snapshot.last_event,
        }
        with self._changing(uid) as connection:
            upsert(connection, snapshots, [row], ("uid",))


def _row(uid: str, event: Event) -> dict[str, Any]:
    """Return the row of a notification, with checked names, because they come from outside."""
    return {
        "uid": uid,
        "action": str(event.action),
        "repository": check_repository(event.repository),
        "tag": check_tag(event.tag) if event.tag else "",
        "digest": check_digest(event.digest) if event.digest else "",
        "at": to_micros(event.at),
    }


class CreationRecords(RecordsBase):
    """The creation dates of images of all registries."""

    def creation_dates(self, uid: str) -> Iterator[tuple[str, datetime | None]]:
        """Yield the digests of a registry whose dates were read, each with its date or None."""
        c = creation_dates.c
        query = select(c.digest, c.created_at).where(c.uid == uid).order_by(c.digest)
        with self._database.reading() as connection:
            for digest, at in connection.execution_options(yield_per=_AT_ONCE).execute(query):
                yield digest, None if at is None else from_micros(at)

    def creation_dates_of(self, uid: str, digests: Sequence[str]) -> dict[str, datetime]:
        """Return the dates of some images by digest, without those that have none."""
        c, found = creation_dates.c, dict[str, datetime]()
        with self._database.reading() as connection:
            for start in range(0, len(digests), _AT_ONCE):
                some = c.digest.in_(digests[start : start + _AT_ONCE])
                query = select(c.digest, c.created_at).where(c.uid == uid, some, c.created_at.is_not(None))
                found |= {digest: from_micros(at) for digest, at in connection.execute(query)}
        return found

    def record_creation_dates(self, uid: str, found: Mapping[str, datetime | None]) -> None:
        """Record the creation dates of images."""
        rows = [
            {"uid": uid, "digest": digest, "created_at": None if at is None else to_micros(at)}
            for digest, at in sorted(found.items())
        ]
        with self._changing(uid) as connection:
            upsert(connection, creation_dates, rows, ("uid", "digest"))


@dataclass(frozen=True)
class RecordedSource:
    """The source of running images of a registry by its canonical name; None if it has none."""

    name: str | None
    at: datetime
    by: str


class RunningRecords(RecordsBase):
    """The sources of running images of all registries."""

    def recorded_source(self, uid: str) -> RecordedSource | None:
        """Return the recorded source of a registry; None before its first plan."""
        with self._database.reading() as connection:
            return _recorded(connection, uid)

    def check_source(self, uid: str, name: str | None, by: str) -> None:
        """Raise Forbidden, and log it, unless a user may make this the source of a registry."""
        with self._doing(_deed(uid, name, by), None) as connection:
            _check(connection, uid, name, by)

    def record_source(self, uid: str, name: str | None, by: str) -> None:
        """Record the source of a registry and who chose it, if it is the first or another one."""
        entry = _deed(uid, name, by)
        with self._doing(entry, None) as connection:
            before = _check(connection, uid, name, by)
            if before is not None and before.name == name:
                return
            now = self._clock()
            row = {"uid": uid, "kind": source_kind(name), "name": name, "at": to_micros(now), "by": by}
            upsert(connection, running_sources, [row], ("uid",))
            if before is not None or name is not None:
                known = None if before is None else before.name
                self._note(connection, [log_row(entry, now, before=known, after=name)])


def _deed(uid: str, name: str | None, by: str) -> AuditEntry:
    what = "plan with running images from " + (name or "no source")
    return AuditEntry(uid, by, LogKind.IMAGE, SUBJECT, what)


def _check(connection: Connection, uid: str, name: str | None, by: str) -> RecordedSource | None:
    """Return the recorded source; only its removal or replacement needs the role."""
    before = _recorded(connection, uid)
    if before is not None and before.name is not None and before.name != name:
        what = f"{_deed(uid, name, by).what} instead of {before.name}"
        check_holds(connection, uid, Role.IMAGE_WRITER, by, what)
    return before


def _recorded(connection: Connection, uid: str) -> RecordedSource | None:
    query = select(running_sources).where(running_sources.c.uid == uid)
    row = connection.execute(query).mappings().one_or_none()
    return None if row is None else RecordedSource(row["name"], from_micros(row["at"]), row["by"])
