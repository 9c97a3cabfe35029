"""Roles in registries, and adoptions of registries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from ebbtide.core.errors import NotFound, Refused
from ebbtide.core.instant import from_micros, to_micros
from ebbtide.state.database import upsert
from ebbtide.state.users import SYSTEM
from ebbtide.targets.oci.model import WHOLE, Adoption, Confirmation
from ebbtide.targets.oci.records.base import (
    AuditEntry,
    Holder,
    RecordsBase,
    all_holders,
    check_granter_left,
    check_holds,
    check_may_grant,
    check_user,
    holds_role,
    log_row,
)
from ebbtide.targets.oci.records.model import EVERYWHERE, Grant, LogKind, Role
from ebbtide.targets.oci.records.tables import adoptions, roles

_KINDS = {Role.POLICY_WRITER: LogKind.POLICY, Role.IMAGE_WRITER: LogKind.IMAGE}


class RoleRecords(RecordsBase):
    """The roles in all registries."""

    def require(self, uid: str, role: Role, by: str, what: str, subject: str = "") -> None:
        """Raise Forbidden, and log it, unless a user may do this ("restore") to an image."""
        with self._doing(AuditEntry(uid, by, _KINDS[role], subject or what, what), role):
            pass

    def require_granted(self, uid: str, role: Role, by: str, what: str) -> None:
        """Raise Forbidden, and log it, unless a user has the role, even if no user has any role yet."""
        with self._doing(AuditEntry(uid, by, _KINDS[role], what, what), None) as connection:
            check_holds(connection, uid, role, by, what)

    def holds(self, uid: str, role: Role, by: str) -> bool:
        """Return True if a user has a role in a registry, granted there or for all registries."""
        with self._database.reading() as connection:
            return holds_role(connection, uid, role, by)

    def grants(self, uid: str) -> list[Grant]:
        """List the roles in a registry, granted there or for all; without any, every user may do all."""
        c = roles.c
        query = select(roles).where(c.uid.in_((uid, EVERYWHERE))).order_by(c.member, c.role, c.uid)
        with self._database.reading() as connection:
            rows = connection.execute(query).mappings().all()
        return [
            Grant(row["uid"], row["member"], Role(row["role"]), from_micros(row["at"]), row["by"])
            for row in rows
        ]

    def grant(self, uid: str, member: str, role: Role, by: str) -> tuple[list[Role], list[Role]]:
        """
        Grant a role in a registry or, with the uid ``*``, in all; return the roles before and after.

        The user who makes the first grant of a registry gets the role that allows granting, so that the
        registry can still be administered.
        """
        entry = AuditEntry(uid, by, LogKind.ROLE, check_user(member), f"grant {role}")
        # All changes of roles wait for each other, because a grant for all registries counts in each.
        with self._doing(entry, None, locked=EVERYWHERE) as connection:
            held = all_holders(connection)
            check_may_grant(held, uid, by, f"grant {role} to {member}")
            if member == SYSTEM:
                raise Refused(f"{SYSTEM} gets no role", why="it is the purge itself", fix="name a user")
            granted = _with_granter(held, (uid, member, role), by)
            after = sorted({*held, *granted})
            check_granter_left(after)
            at = to_micros(self._clock())
            for where, who, what in (holder for holder in granted if holder not in held):
                row = insert(roles).values(uid=where, member=who, role=str(what), at=at, by=by)
                connection.execute(row)
            for who, words in dict(_words(granted, entry)).items():
                if _theirs(held, uid, who) != _theirs(after, uid, who):
                    self._log(connection, replace(entry, subject=who, what=words), held, after)
        return _theirs(held, uid, member), _theirs(after, uid, member)

    def revoke(self, uid: str, member: str, role: Role, by: str) -> tuple[list[Role], list[Role]]:
        """Revoke a role; the last user who may change roles keeps that role while others have any."""
        entry = AuditEntry(uid, by, LogKind.ROLE, check_user(member), f"revoke {role}")
        with self._doing(entry, None, locked=EVERYWHERE) as connection:
            held = all_holders(connection)
            check_may_grant(held, uid, by, f"revoke {role} of {member}")
            if (uid, member, role) not in held:
                where = "all registries" if uid == EVERYWHERE else "this registry itself"
                raise NotFound(f"{member} does not have {role} in {where}", fix="see 'ebb image role ls'")
            after = sorted({*held} - {(uid, member, role)})
            check_granter_left(after)
            c = roles.c
            key = (c.uid == uid, c.member == member, c.role == str(role))
            connection.execute(delete(roles).where(*key))
            self._log(connection, entry, held, after)
        return _theirs(held, uid, member), _theirs(after, uid, member)

    def _log(
        self, connection: Connection, entry: AuditEntry, held: list[Holder], after: list[Holder]
    ) -> None:
        before, now = (_theirs(side, entry.uid, entry.subject) for side in (held, after))
        self._note(connection, [log_row(entry, self._clock(), before=before, after=now)])


def _with_granter(held: list[Holder], wanted: Holder, by: str) -> list[Holder]:
    """Add the role that allows granting to the first grant of a registry."""
    first = not any(holder[0] in (wanted[0], EVERYWHERE) for holder in held)
    own = (wanted[0], by, Role.POLICY_WRITER)
    return [own, wanted] if first and wanted != own else [wanted]


def _words(granted: list[Holder], entry: AuditEntry) -> Iterator[tuple[str, str]]:
    """Return the text of the log for each user who gets a role."""
    for _, member, role in granted:
        own = member == entry.by and member != entry.subject
        yield member, f"grant {role} (with the first grant)" if own else entry.what


def _theirs(held: list[Holder], uid: str, member: str) -> list[Role]:
    return sorted(role for where, who, role in held if (where, who) == (uid, member))


class AdoptionRecords(RecordsBase):
    """The adoptions of all registries."""

    def adoption(self, uid: str) -> Adoption:
        """Return which parts of a registry were adopted; none before the first plan."""
        c = adoptions.c
        with self._database.reading() as connection:
            rows = connection.execute(select(c.repository, c.at, c.by).where(c.uid == uid)).all()
        return Adoption({repository: Confirmation(from_micros(at), by) for repository, at, by in rows})

    def adopt(self, uid: str, by: str, repository: str = WHOLE, seen: Any = None) -> None:
        """Record that a user confirmed what the policies do; `seen` is what the user was shown."""
        what = f"adopt repository {repository}" if repository else "adopt the registry"
        entry = AuditEntry(uid, by, LogKind.POLICY, "adoption", what)
        with self._doing(entry, Role.POLICY_WRITER) as connection:
            now = self._clock()
            row = {"uid": uid, "repository": repository, "at": to_micros(now), "by": by}
            upsert(connection, adoptions, [row], ("uid", "repository"))
            self._note(connection, [log_row(entry, now, after=seen)])
