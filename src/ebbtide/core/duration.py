"""Durations as people write them: ``40d``, ``12h``, ``90m``."""

from __future__ import annotations

import re
from datetime import timedelta

from ebbtide.core.errors import BadInput

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION = re.compile(r"([0-9]{1,9})([smhdw])", re.ASCII)


def parse_duration(text: str) -> timedelta:
    """
    Read a duration: a whole number and a unit.

    >>> parse_duration("90m")
    datetime.timedelta(seconds=5400)
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise BadInput(
            f"{text!r} is not a duration", fix="write it as 40d, 12h or 90m (units: s, m, h, d, w)"
        )
    try:
        return timedelta(**{_UNITS[found[2]]: int(found[1])})
    except OverflowError:
        raise BadInput(f"{text} is too long", fix="use a shorter duration") from None


def format_duration(duration: timedelta) -> str:
    """
    Write a duration in its largest units, to the second.

    >>> format_duration(timedelta(days=40, hours=3)), format_duration(timedelta())
    ('40d 3h', '0s')
    """
    left, parts = int(duration.total_seconds()), []
    for unit, seconds in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        number, left = divmod(left, seconds)
        parts += [f"{number}{unit}"] if number else []
    return " ".join(parts) or "0s"
