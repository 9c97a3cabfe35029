"""Notifications of registries, kept until a scan has folded them in, and where the last scan is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from sqlalchemy import delete, select

from ebbtide.core.instant import from_micros, to_micros
from ebbtide.state.database import new_rows, upsert
from ebbtide.targets.oci.names import check_digest, check_repository, check_tag
from ebbtide.targets.oci.records.model import Action, Event, Snapshot
from ebbtide.targets.oci.records.part import RecordsPart
from ebbtide.targets.oci.records.tables import events, snapshots

_AT_ONCE = 1000


class EventBook(RecordsPart):
    """The notifications and the last scans of all registries."""

    def add_events(self, uid: str, found: Iterable[Event]) -> None:
        """Record notifications, all or none; one that came before is left out, as registries send twice."""
        rest = (_row(uid, event) for event in found)
        # One at a time, so that ids become visible in their order: a reader who forgets up to an id must
        # not miss one that was on its way.
        with self._changing(uid) as connection:
            while chunk := list(islice(rest, _AT_ONCE)):
                connection.execute(new_rows(connection, events).on_conflict_do_nothing(), chunk)

    def events(self, uid: str, *, after: int = 0) -> Iterator[Event]:
        """Stream the notifications of a registry in the order in which they were recorded."""
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
        """Forget notifications up to an id, when what they say is kept elsewhere."""
        with self._changing(uid) as connection:
            connection.execute(delete(events).where(events.c.uid == uid, events.c.id <= up_to_id))

    def snapshot(self, uid: str) -> Snapshot | None:
        """Say where the last scan of a registry is, None before the first."""
        with self._database.reading() as connection:
            query = select(snapshots).where(snapshots.c.uid == uid)
            row = connection.execute(query).mappings().one_or_none()
        if row is None:
            return None
        scanned = from_micros(row["scanned_at"])
        return Snapshot(row["folder"], scanned, row["manifests"], row["tags"], row["last_event"])

    def record_snapshot(self, uid: str, snapshot: Snapshot) -> None:
        """Make this the last scan of a registry."""
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
    """Write a notification as a row; what it names comes from outside."""
    return {
        "uid": uid,
        "action": str(event.action),
        "repository": check_repository(event.repository),
        "tag": check_tag(event.tag) if event.tag else "",
        "digest": check_digest(event.digest) if event.digest else "",
        "at": to_micros(event.at),
    }
