"""
Roles (requirement 11.0), checked where a change is made and in its transaction.

As long as nobody has a role in a registry, whoever can open the database may do everything. From the first
grant on only those may who have the role; whoever makes the first grant keeps the right to make others.
"""

from __future__ import annotations

from sqlalchemy import Connection, select

from ebbtide.core.errors import BadInput, Forbidden, Refused
from ebbtide.state.actors import LONGEST_USER, SYSTEM
from ebbtide.targets.oci.records.model import EVERYWHERE, Role
from ebbtide.targets.oci.records.tables import roles

Holder = tuple[str, str, Role]
"""The uid of a registry or ``*``, who, and what role."""


def check_role(connection: Connection, uid: str, role: Role, by: str, what: str) -> None:
    """Raise Forbidden unless somebody may do this; the purge itself may change images and no policies."""
    check_user(by)
    if by == SYSTEM:
        if role is not Role.IMAGE_WRITER:
            raise _forbidden(by, what, "the purge changes no policies and no roles")
        return
    held = [holder for holder in all_holders(connection) if holder[0] in (uid, EVERYWHERE)]
    _check(held, role, by, what)


def check_holds(connection: Connection, uid: str, role: Role, by: str, what: str) -> None:
    """Raise Forbidden unless somebody was given a role, also where nobody has any yet."""
    check_user(by)
    if not holds_role(connection, uid, role, by):
        raise _forbidden(by, what, f"it needs the role {role} in this registry, granted by name")


def holds_role(connection: Connection, uid: str, role: Role, by: str) -> bool:
    """Tell whether somebody was given a role in a registry, there or in all."""
    found = _in_registry(all_holders(connection), uid)
    return any((member, has) == (by, role) for _, member, has in found)


def check_may_grant(held: list[Holder], uid: str, by: str, what: str) -> None:
    """Raise Forbidden unless somebody may change the roles in a registry or, for ``*``, in every one."""
    check_user(by)
    if by == SYSTEM:
        raise _forbidden(by, what, "the purge changes no policies and no roles")
    # Who could grant for all without this would grant in registries that others have closed.
    for each in [uid] if uid != EVERYWHERE else sorted({EVERYWHERE, *(holder[0] for holder in held)}):
        _check(_in_registry(held, each), Role.POLICY_WRITER, by, what)


def check_somebody_may(held: list[Holder]) -> None:
    """Refuse roles of which nobody could change any more."""
    for uid in sorted({holder[0] for holder in held}):
        found = _in_registry(held, uid)
        if found and not any(role is Role.POLICY_WRITER for _, _, role in found):
            raise Refused(
                f"nobody would have the role {Role.POLICY_WRITER}",
                why="from the first grant on only those may change roles who have it, so nobody could",
                fix=f"grant {Role.POLICY_WRITER} to somebody first, and revoke the last one last",
            )


def all_holders(connection: Connection) -> list[Holder]:
    """Read who has which role where; there are few."""
    rows = connection.execute(select(roles.c.uid, roles.c.member, roles.c.role))
    return [(uid, member, Role(role)) for uid, member, role in rows]


def check_user(name: str) -> str:
    """Give the name of a user back, or raise BadInput."""
    if not name or name != name.strip() or not name.isprintable() or len(name) > LONGEST_USER:
        fix = f"use up to {LONGEST_USER} printable characters, no blank at either end"
        raise BadInput(f"{name!r} is no name of a user", fix=fix)
    return name


def _in_registry(held: list[Holder], uid: str) -> list[Holder]:
    return [holder for holder in held if holder[0] in (uid, EVERYWHERE)]


def _check(held: list[Holder], role: Role, by: str, what: str) -> None:
    if held and not any(member == by and has is role for _, member, has in held):
        raise _forbidden(by, what, f"it needs the role {role}")


def _forbidden(by: str, what: str, why: str) -> Forbidden:
    fix = f"ask somebody who has the role {Role.POLICY_WRITER} (see 'ebb image role ls')"
    return Forbidden(f"{by} may not {what}", why=why, fix=fix)
