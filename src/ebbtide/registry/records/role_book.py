"""Who has which role in which registry, or in all; every grant and every refusal is in the log."""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert, select

from ebbtide.errors import NotFound, Refused
from ebbtide.ledger.actors import SYSTEM
from ebbtide.registry.records.guarding import (
    Holder,
    all_holders,
    check_may_grant,
    check_somebody_may,
    check_user,
)
from ebbtide.registry.records.model import EVERYWHERE, Grant, LogKind, Role
from ebbtide.registry.records.part import Deed, RecordsPart, log_row
from ebbtide.registry.records.tables import roles
from ebbtide.rules.instant import from_micros, to_micros


class RoleBook(RecordsPart):
    """The roles in all registries."""

    def require(self, uid: str, role: Role, by: str, what: str, subject: str = "") -> None:
        """Raise Forbidden, and log it, unless somebody may do this ("restore") to an image or another."""
        with self._doing(Deed(uid, by, _KINDS[role], subject or what, what), role):
            pass

    def grants(self, uid: str) -> list[Grant]:
        """List who has a role in a registry, there or in all; nobody means that everybody may."""
        c = roles.c
        query = select(roles).where(c.uid.in_((uid, EVERYWHERE))).order_by(c.member, c.role, c.uid)
        with self._database.reading() as connection:
            rows = connection.execute(query).mappings().all()
        return [
            Grant(row["uid"], row["member"], Role(row["role"]), from_micros(row["at"]), row["by"])
            for row in rows
        ]

    def grant(self, uid: str, member: str, role: Role, by: str) -> tuple[list[Role], list[Role]]:
        """Give somebody a role in a registry or, with the uid ``*``, in all; give theirs before and after."""
        deed = Deed(uid, by, LogKind.ROLE, check_user(member), f"grant {role}")
        # All changes of roles wait for each other, for those in all registries count in each.
        with self._doing(deed, None, locked=EVERYWHERE) as connection:
            held = all_holders(connection)
            check_may_grant(held, uid, by, f"grant {role} to {member}")
            if member == SYSTEM:
                raise Refused(f"{SYSTEM} gets no role", why="it is the purge itself", fix="name a user")
            after = sorted({*held, (uid, member, role)})
            check_somebody_may(after)
            if (uid, member, role) not in held:
                at = to_micros(self._clock())
                row = insert(roles).values(uid=uid, member=member, role=str(role), at=at, by=by)
                connection.execute(row)
                self._log(connection, deed, held, after)
        return _theirs(held, uid, member), _theirs(after, uid, member)

    def revoke(self, uid: str, member: str, role: Role, by: str) -> tuple[list[Role], list[Role]]:
        """Take a role away; the last one who may change roles keeps it while others have any."""
        deed = Deed(uid, by, LogKind.ROLE, check_user(member), f"revoke {role}")
        with self._doing(deed, None, locked=EVERYWHERE) as connection:
            held = all_holders(connection)
            check_may_grant(held, uid, by, f"revoke {role} of {member}")
            if (uid, member, role) not in held:
                where = "all registries" if uid == EVERYWHERE else "this registry itself"
                raise NotFound(f"{member} does not have {role} in {where}", fix="see 'ebb image role ls'")
            after = sorted({*held} - {(uid, member, role)})
            check_somebody_may(after)
            c = roles.c
            key = (c.uid == uid, c.member == member, c.role == str(role))
            connection.execute(delete(roles).where(*key))
            self._log(connection, deed, held, after)
        return _theirs(held, uid, member), _theirs(after, uid, member)

    def _log(self, connection: Connection, deed: Deed, held: list[Holder], after: list[Holder]) -> None:
        before, now = (_theirs(side, deed.uid, deed.subject) for side in (held, after))
        self._note(connection, [log_row(deed, self._clock(), before=before, after=now)])


_KINDS = {Role.POLICY_WRITER: LogKind.POLICY, Role.IMAGE_WRITER: LogKind.IMAGE}


def _theirs(held: list[Holder], uid: str, member: str) -> list[Role]:
    return sorted(role for where, who, role in held if (where, who) == (uid, member))
