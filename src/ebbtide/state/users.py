"""Users: the name under which changes are recorded and roles are looked up."""

from __future__ import annotations

import getpass
import os

from ebbtide.core.errors import ConfigError

SYSTEM = "system"
"""The name of the purge itself; no person or service may have it."""
LONGEST_USER = 256
_REHEARSAL = " (rehearsal)"


def current_user() -> str:
    """Return the user of this process: EBBTIDE_USER, which a service sets, or the user of the machine."""
    given = os.environ.get("EBBTIDE_USER", "")
    if given:
        _check(given)
        return given
    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        return "unknown"
    return f"user {name}" if name == SYSTEM else name


def signature(user: str, *, rehearsal: bool) -> str:
    """Return the name under which a change is recorded; changes of a rehearsal are marked as such."""
    return f"{user[: LONGEST_USER - len(_REHEARSAL)]}{_REHEARSAL}" if rehearsal else user


def _check(name: str) -> None:
    if name == SYSTEM:
        why = "that is the name under which the purge records what it does"
        raise ConfigError(f"EBBTIDE_USER is {SYSTEM!r}", why=why, fix="use the name of a person or service")
    if name != name.strip() or not name.isprintable() or len(name) > LONGEST_USER:
        fix = f"use up to {LONGEST_USER} printable characters, no blank at either end"
        raise ConfigError(f"EBBTIDE_USER is {name!r}", why="it is written into logs", fix=fix)
