"""Fields of policy documents: names in any usual spelling, and each value what it must be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ebbtide.errors import PolicyError
from ebbtide.rules.documents import nearest, whole_days


def spelled(name: object) -> str:
    """Give what spellings of a field have in common: ``canDeletePrior`` and ``can_delete_prior`` are one."""
    return re.sub(r"[-_\s]+", "", str(name)).casefold()


def fields(where: str, data: Any, known: Mapping[str, str]) -> dict[str, Any]:
    """Expect a table of known fields (spelling to name); give it by their names."""
    if not isinstance(data, dict):
        raise PolicyError(f"{where} is {data!r}, not a table", fix="write {...}")
    by_spelling = {spelled(name): meant for name, meant in known.items()}
    found: dict[str, Any] = {}
    for name, value in data.items():
        meant = by_spelling.get(spelled(name))
        if meant is None:
            raise PolicyError(
                f"{where}: unknown field {name!r}", fix=nearest(str(name), list({*known.values()}))
            )
        if meant in found:
            why = "only one of the two could be followed, and nobody can say which"
            raise PolicyError(f"{where}: {meant} is given twice", why=why, fix="remove one of them")
        found[meant] = value
    return found


def rows(where: str, data: Any) -> list[Any]:
    """Expect a list; nothing at all is an empty one."""
    if data is None:
        return []
    if not isinstance(data, list):
        raise PolicyError(f"{where} is {data!r}, not a list", fix="write [...]")
    return data


def flag(where: str, value: Any) -> bool:
    """Expect true or false."""
    if not isinstance(value, bool):
        raise PolicyError(f"{where} is {value!r}", fix="write true or false")
    return value


def text(where: str, value: Any) -> str:
    """Expect some text."""
    if not isinstance(value, str) or not value.strip():
        raise PolicyError(f"{where} is {value!r}", fix="write a name")
    return value.strip()


def whole(where: str, value: Any, *, what: str) -> int:
    """Expect a whole number that is at least one."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise PolicyError(f"{where} is {value!r}", fix=f"write a whole number of {what}")
    return whole_days(where, value, why="the least is 1", fix="use 1 or more, or leave it out")
