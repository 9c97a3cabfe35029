"""What all parts of the records share: the database, the clock, and how a change is made and logged."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, insert

from ebbtide.core.errors import Forbidden, Refused
from ebbtide.core.instant import Clock, system_clock, to_micros
from ebbtide.state.actors import signature
from ebbtide.state.database import Database, upsert
from ebbtide.targets.oci.records.guarding import check_role
from ebbtide.targets.oci.records.model import LogKind, Role
from ebbtide.targets.oci.records.tables import SCHEMA, log, registries


@dataclass(frozen=True)
class Deed:
    """What somebody is about to do, as the log says it whether it is done or refused."""

    uid: str
    by: str
    kind: LogKind
    subject: str
    what: str


class RecordsPart:
    """The base of all parts; `records.ImageRecords` is all of them in one."""

    def __init__(self, url: str, *, clock: Clock = system_clock, rehearsal: bool = False) -> None:
        self._clock, self._rehearsal = clock, rehearsal
        self._database = Database(url, SCHEMA)

    def close(self) -> None:
        """Close all idle connections."""
        self._database.close()

    @contextmanager
    def _changing(self, uid: str) -> Iterator[Connection]:
        """Open a transaction that is alone at work on a registry: others wait until it ends."""
        with self._database.writing() as connection:
            # A write comes first, so that what is read after it is what there is until the end: it takes the
            # row's lock on PostgreSQL and the database's on SQLite.
            row = {"changes": registries.c.changes + 1}
            upsert(connection, registries, [{"uid": uid, "changes": 1}], ("uid",), row)
            yield connection

    @contextmanager
    def _doing(self, deed: Deed, role: Role | None, *, locked: str = "") -> Iterator[Connection]:
        """Make a change if its doer has the role; what is refused is undone as a whole, and logged."""
        try:
            with self._changing(locked or deed.uid) as connection:
                if role is not None:
                    check_role(connection, deed.uid, role, deed.by, deed.what)
                yield connection
        except (Forbidden, Refused) as refused:
            reason = f"{refused.what}: {refused.why}" if refused.why else refused.what
            with self._changing(deed.uid) as connection:
                self._note(connection, [log_row(deed, self._clock(), refused=reason)])
            raise

    def _note(self, connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
        """Add entries to the log, in the transaction of what they tell."""
        if rows:
            signed = [row | {"by": signature(row["by"], rehearsal=self._rehearsal)} for row in rows]
            connection.execute(insert(log), signed)


def log_row(
    deed: Deed, now: datetime, *, before: Any = None, after: Any = None, refused: str = ""
) -> dict[str, Any]:
    """Make a row of the log."""
    return {
        "uid": deed.uid,
        "at": to_micros(now),
        "by": deed.by,
        "kind": str(deed.kind),
        "subject": deed.subject,
        "what": deed.what,
        "before": None if before is None else json.dumps(before, sort_keys=True),
        "after": None if after is None else json.dumps(after, sort_keys=True),
        "refused": refused,
    }
