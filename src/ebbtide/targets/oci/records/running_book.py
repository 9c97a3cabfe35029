"""Which source of running images each registry is purged with, and who chose it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, select

from ebbtide.core.instant import from_micros, to_micros
from ebbtide.state.database import upsert
from ebbtide.targets.oci.records.guarding import check_holds
from ebbtide.targets.oci.records.model import LogKind, Role
from ebbtide.targets.oci.records.part import Deed, RecordsPart, log_row
from ebbtide.targets.oci.records.tables import running_sources
from ebbtide.targets.oci.running_source import source_kind

SUBJECT = "running images"
"""What the log calls the source."""


@dataclass(frozen=True)
class RecordedSource:
    """The source of running images of a registry by its canonical name; None if it has none."""

    name: str | None
    at: datetime
    by: str


class RunningBook(RecordsPart):
    """The sources of running images of all registries."""

    def recorded_source(self, uid: str) -> RecordedSource | None:
        """Return the recorded source of a registry; None before its first plan."""
        with self._database.reading() as connection:
            return _recorded(connection, uid)

    def check_source(self, uid: str, name: str | None, by: str) -> None:
        """Raise Forbidden, and log it, unless somebody may make this the source of a registry."""
        with self._doing(_deed(uid, name, by), None) as connection:
            _check(connection, uid, name, by)

    def record_source(self, uid: str, name: str | None, by: str) -> None:
        """Record the source of a registry, if it is another one or the first, with who chose it."""
        deed = _deed(uid, name, by)
        with self._doing(deed, None) as connection:
            before = _check(connection, uid, name, by)
            if before is not None and before.name == name:
                return
            now = self._clock()
            row = {"uid": uid, "kind": source_kind(name), "name": name, "at": to_micros(now), "by": by}
            upsert(connection, running_sources, [row], ("uid",))
            if before is not None or name is not None:
                known = None if before is None else before.name
                self._note(connection, [log_row(deed, now, before=known, after=name)])


def _deed(uid: str, name: str | None, by: str) -> Deed:
    what = "plan with running images from " + (name or "no source")
    return Deed(uid, by, LogKind.IMAGE, SUBJECT, what)


def _check(connection: Connection, uid: str, name: str | None, by: str) -> RecordedSource | None:
    """Return the recorded source; to give it up or replace it needs the role, to be the first does not."""
    before = _recorded(connection, uid)
    if before is not None and before.name is not None and before.name != name:
        what = f"{_deed(uid, name, by).what} instead of {before.name}"
        check_holds(connection, uid, Role.IMAGE_WRITER, by, what)
    return before


def _recorded(connection: Connection, uid: str) -> RecordedSource | None:
    query = select(running_sources).where(running_sources.c.uid == uid)
    row = connection.execute(query).mappings().one_or_none()
    return None if row is None else RecordedSource(row["name"], from_micros(row["at"]), row["by"])
