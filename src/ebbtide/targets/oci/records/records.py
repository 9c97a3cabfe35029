"""Image records: everything that is kept of registries, and the log of its changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sqlalchemy import select, union_all

from ebbtide.core.errors import BadInput
from ebbtide.core.instant import from_micros
from ebbtide.state.users import SYSTEM
from ebbtide.targets.oci.records.base import AuditEntry, RecordsBase, log_row
from ebbtide.targets.oci.records.identity import IdentityRecords
from ebbtide.targets.oci.records.marks import MarkRecords
from ebbtide.targets.oci.records.model import EVERYWHERE, LogEntry, LogKind, Role
from ebbtide.targets.oci.records.policies import PolicyRecords
from ebbtide.targets.oci.records.roles import AdoptionRecords, RoleRecords
from ebbtide.targets.oci.records.scans import CreationRecords, EventRecords, RunningRecords
from ebbtide.targets.oci.records.tables import log

_AT_ONCE = 1000


class LogRecords(RecordsBase):
    """The log of all registries."""

    def log(
        self, uid: str, *, subject: str = "", kind: LogKind | None = None, limit: int | None = None
    ) -> Iterator[LogEntry]:
        """Yield the log of a registry, newest first, with grants for all registries."""
        if limit is not None and limit < 1:
            raise BadInput(f"a limit of {limit} entries shows nothing", fix="use 1 or more")
        return self._entries(log_query(uid, subject, kind, limit))

    def note_purge(self, uid: str, run_id: int, text: str, by: str = SYSTEM) -> None:
        """Add a summary of a purge to the log."""
        entry = AuditEntry(uid, by, LogKind.PURGE, f"run {run_id}", text)
        with self._doing(entry, Role.IMAGE_WRITER) as connection:
            self._note(connection, [log_row(entry, self._clock())])

    def note_image(self, uid: str, by: str, image: str, what: str) -> None:
        """Add to the log what a user did to an image in the registry itself, such as a restore."""
        entry = AuditEntry(uid, by, LogKind.IMAGE, image, what)
        with self._doing(entry, Role.IMAGE_WRITER) as connection:
            self._note(connection, [log_row(entry, self._clock())])

    def note_refusal(self, uid: str, by: str, image: str, what: str, why: str) -> None:
        """Add to the log that a change to an image was refused."""
        entry = AuditEntry(uid, by, LogKind.IMAGE, image, what)
        with self._changing(uid) as connection:
            self._note(connection, [log_row(entry, self._clock(), refused=why)])

    def _entries(self, query: Any) -> Iterator[LogEntry]:
        with self._database.reading() as connection:
            for row in connection.execution_options(yield_per=_AT_ONCE).execute(query).mappings():
                yield LogEntry(
                    row["id"],
                    from_micros(row["at"]),
                    row["by"],
                    LogKind(row["kind"]),
                    row["subject"],
                    row["what"],
                    _plain(row["before"]),
                    _plain(row["after"]),
                    row["refused"],
                )


def log_query(uid: str, subject: str, kind: LogKind | None, limit: int | None) -> Any:
    """
    Select entries, newest first.

    A registry's own entries and those of all registries come from an index in their order and are merged:
    with `uid IN (...)` a database would read and sort the whole log, however few entries are asked for.
    """
    parts = []
    for owner in (uid, EVERYWHERE):
        part = select(log).where(log.c.uid == owner)
        if subject:
            part = part.where(log.c.subject == subject)
        if kind is not None:
            part = part.where(log.c.kind == str(kind))
        parts.append(part)
    both = union_all(*parts).subquery()
    return select(both).order_by(both.c.id.desc()).limit(limit)


def _plain(text: str | None) -> Any:
    return None if text is None else json.loads(text)


class ImageRecords(
    PolicyRecords,
    MarkRecords,
    LogRecords,
    RoleRecords,
    EventRecords,
    AdoptionRecords,
    CreationRecords,
    RunningRecords,
    IdentityRecords,
):
    """
    All that is kept of registries, by uid: policies, marks, log, roles, events, adoptions, names, scans.

    >>> records = ImageRecords("sqlite:////tmp/ledger.db")  # doctest: +SKIP
    >>> records.put_policy(uid, Policy("Prod", Period(6, Unit.MONTHS), False), by="alice")  # doctest: +SKIP
    >>> records.change_mark(uid, target, assigning("Prod"), "alice", "assign Prod")  # doctest: +SKIP

    Every change is one transaction together with its entry in the log, and checks the role of the user
    in that transaction. Changes of one registry wait for each other; readers never wait.
    """
