"""
Periods in the forms in which people write them; all of these are six months::

    {"months": 6}                      {"period": 6, "unit": "months"}
    {"period": "6 months"}             {"period": {"months": 6}}

and these never expire: ``{"never": true}``, ``{"period": "never"}``, ``{"unit": "never"}`` and
``{"days": null}``. A unit may be singular, and ``number``, ``value``, ``duration`` and ``expires_after``
stand for ``period``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ebbtide.errors import PolicyError
from ebbtide.rules.documents import nearest
from ebbtide.rules.images.fields import fields, flag, whole
from ebbtide.rules.images.period import Period, Unit

_UNITS = {name: unit for unit in Unit for name in (str(unit), unit.removesuffix("s"))}
_NEVER = "never"
PERIOD_FIELDS: Mapping[str, str] = MappingProxyType(
    {
        **{name: str(unit) for name, unit in _UNITS.items()},
        **dict.fromkeys(("period", "number", "value", "duration", "expires_after"), "period"),
        "unit": "unit",
        "never": _NEVER,
    }
)
_FIX = 'write one of "days": 5, "months": 6, "years": 1, "never": true'


def has_period(body: Mapping[str, Any]) -> bool:
    """Tell whether a policy says anything of its period."""
    return any(name in body for name in PERIOD_FIELDS.values())


def read_period(where: str, body: Mapping[str, Any]) -> Period | None:
    """Read the period of a policy from its fields; None is never."""
    given = [name for name in (*map(str, Unit), "period", _NEVER) if name in body]
    if body.get(_NEVER) is not None and not flag(f"{where}: never", body[_NEVER]):
        given.remove(_NEVER)
    unit = body.get("unit")
    if len(given) > 1:
        why = "nobody can say which of them is meant"
        raise PolicyError(f"{where} has {' and '.join(given)}", why=why, fix=_FIX)
    if not given and (unit is None or _word(unit) != _NEVER):
        raise PolicyError(f"{where} has no period", fix=_FIX)
    if not given or given == [_NEVER]:
        return None
    if given == ["period"]:
        return _period(where, body["period"], unit)
    if unit is not None:
        raise PolicyError(f"{where} has {given[0]} and a unit", fix="leave the unit out")
    return _counted(where, given[0], body[given[0]])


def _period(where: str, value: Any, unit: Any) -> Period | None:
    """Read what stands under `period`: a number with a unit beside it, words, or a table."""
    if isinstance(value, dict):
        return read_period(f"{where}: period", fields(f"{where}: period", value, PERIOD_FIELDS))
    if value is None or _word(value) == _NEVER or _word(unit) == _NEVER:
        return None
    if isinstance(value, str):
        words = re.fullmatch(r"([0-9]{1,10})\s*([a-z]+)", _word(value))
        if words is None or unit is not None:
            raise PolicyError(f"{where}: period is {value!r}", fix='write "6 months", or a number and a unit')
        return _counted(where, words[2], int(words[1]))
    if unit is None:
        raise PolicyError(f"{where} has a period without a unit", fix='add "unit": "days"')
    return _counted(where, _word(unit), value)


def _counted(where: str, unit: str, value: Any) -> Period | None:
    if unit not in _UNITS:
        raise PolicyError(f"{where}: {unit!r} is no unit", fix=nearest(unit, [*map(str, Unit), _NEVER]))
    if value is None or _word(value) == _NEVER:
        return None
    return Period(whole(f"{where}: {_UNITS[unit]}", value, what=str(_UNITS[unit])), _UNITS[unit])


def _word(value: Any) -> str:
    return value.strip().casefold() if isinstance(value, str) else str(value)
