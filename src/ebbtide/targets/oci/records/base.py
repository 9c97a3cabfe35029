"""The base of image records: the database, roles that are checked, and changes that are logged."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, insert, select

from ebbtide.core.errors import BadInput, Forbidden, Refused
from ebbtide.core.instant import Clock, system_clock, to_micros
from ebbtide.state.database import Database, upsert
from ebbtide.state.users import LONGEST_USER, SYSTEM, signature
from ebbtide.targets.oci.records.model import EVERYWHERE, LogKind, Role
from ebbtide.targets.oci.records.tables import SCHEMA, log, registries, roles

Holder = tuple[str, str, Role]
"""The uid of a registry or ``*``, the user, and the role."""


def check_role(connection: Connection, uid: str, role: Role, by: str, what: str) -> None:
    """Raise Forbidden unless a user may do this; the purge itself may change images but no policies."""
    check_user(by)
    if by == SYSTEM:
        if role is not Role.IMAGE_WRITER:
            raise _forbidden(by, what, "the purge changes no policies and no roles")
        return
    held = [holder for holder in all_holders(connection) if holder[0] in (uid, EVERYWHERE)]
    _check(held, role, by, what)


def check_holds(connection: Connection, uid: str, role: Role, by: str, what: str) -> None:
    """Raise Forbidden unless a user has a role, even if no user has any role yet."""
    check_user(by)
    if not holds_role(connection, uid, role, by):
        raise _forbidden(by, what, f"it needs the role {role} in this registry, granted by name")


def holds_role(connection: Connection, uid: str, role: Role, by: str) -> bool:
    """Return True if a user has a role in a registry, granted there or for all registries."""
    found = _in_registry(all_holders(connection), uid)
    return any((member, has) == (by, role) for _, member, has in found)


def check_may_grant(held: list[Holder], uid: str, by: str, what: str) -> None:
    """Raise Forbidden unless a user may change the roles in a registry or, for ``*``, in all of them."""
    check_user(by)
    if by == SYSTEM:
        raise _forbidden(by, what, "the purge changes no policies and no roles")
    # Without this, a grant for all registries would bypass those that have roles of their own.
    for each in [uid] if uid != EVERYWHERE else sorted({EVERYWHERE, *(holder[0] for holder in held)}):
        _check(_in_registry(held, each), Role.POLICY_WRITER, by, what)


def check_granter_left(held: list[Holder]) -> None:
    """Refuse a change after which no user could change roles any more."""
    for uid in sorted({holder[0] for holder in held}):
        found = _in_registry(held, uid)
        if found and not any(role is Role.POLICY_WRITER for _, _, role in found):
            raise Refused(
                f"no user would have the role {Role.POLICY_WRITER}",
                why="from the first grant on only users with this role may change roles, so no user could",
                fix=f"grant {Role.POLICY_WRITER} to another user first, and revoke the last one last",
            )


def all_holders(connection: Connection) -> list[Holder]:
    """Return all grants; there are few."""
    rows = connection.execute(select(roles.c.uid, roles.c.member, roles.c.role))
    return [(uid, member, Role(role)) for uid, member, role in rows]


def check_user(name: str) -> str:
    """Return the name of a user, or raise BadInput."""
    if not name or name != name.strip() or not name.isprintable() or len(name) > LONGEST_USER:
        fix = f"use up to {LONGEST_USER} printable characters, no blank at either end"
        raise BadInput(f"{name!r} is not a valid name for a user", fix=fix)
    return name


def _in_registry(held: list[Holder], uid: str) -> list[Holder]:
    return [holder for holder in held if holder[0] in (uid, EVERYWHERE)]


def _check(held: list[Holder], role: Role, by: str, what: str) -> None:
    if held and not any(member == by and has is role for _, member, has in held):
        raise _forbidden(by, what, f"it needs the role {role}")


def _forbidden(by: str, what: str, why: str) -> Forbidden:
    fix = f"ask a user who has the role {Role.POLICY_WRITER} (see 'ebb image role ls')"
    return Forbidden(f"{by} may not {what}", why=why, fix=fix)


@dataclass(frozen=True)
class AuditEntry:
    """An entry of the audit log: a change that a user asks for, whether it is made or refused."""

    uid: str
    by: str
    kind: LogKind
    subject: str
    what: str


class RecordsBase:
    """The base of all parts; `records.ImageRecords` combines them."""

    def __init__(self, url: str, *, clock: Clock = system_clock, rehearsal: bool = False) -> None:
        self._clock, self._rehearsal = clock, rehearsal
        self._database = Database(url, SCHEMA)

    def close(self) -> None:
        """Close all idle connections."""
        self._database.close()

    @contextmanager
    def _changing(self, uid: str) -> Iterator[Connection]:
        """Open a write transaction that is alone at work on a registry: others wait until it ends."""
        with self._database.writing() as connection:
            # A write comes first and takes the row's lock on PostgreSQL, so that nothing that is read after
            # it can change until the end.
            row = {"changes": registries.c.changes + 1}
            upsert(connection, registries, [{"uid": uid, "changes": 1}], ("uid",), row)
            yield connection

    @contextmanager
    def _doing(self, entry: AuditEntry, role: Role | None, *, locked: str = "") -> Iterator[Connection]:
        """Make a change if the user has the role; a refused change is undone as a whole, and logged."""
        try:
            with self._changing(locked or entry.uid) as connection:
                if role is not None:
                    check_role(connection, entry.uid, role, entry.by, entry.what)
                yield connection
        except (Forbidden, Refused) as refused:
            reason = f"{refused.what}: {refused.why}" if refused.why else refused.what
            with self._changing(entry.uid) as connection:
                self._note(connection, [log_row(entry, self._clock(), refused=reason)])
            raise

    def _note(self, connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
        """Add entries to the log, in the transaction of the change."""
        if rows:
            signed = [row | {"by": signature(row["by"], rehearsal=self._rehearsal)} for row in rows]
            connection.execute(insert(log), signed)


def log_row(
    entry: AuditEntry, now: datetime, *, before: Any = None, after: Any = None, refused: str = ""
) -> dict[str, Any]:
    """Return a row of the log."""
    return {
        "uid": entry.uid,
        "at": to_micros(now),
        "by": entry.by,
        "kind": str(entry.kind),
        "subject": entry.subject,
        "what": entry.what,
        "before": None if before is None else json.dumps(before, sort_keys=True),
        "after": None if after is None else json.dumps(after, sort_keys=True),
        "refused": refused,
    }
