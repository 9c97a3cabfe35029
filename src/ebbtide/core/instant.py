"""Instants, UTC moments to the microsecond, and durations as people write them (``40d``, ``12h``)."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta

from ebbtide.core.errors import BadInput

Clock = Callable[[], datetime]

NEVER = datetime.max.replace(tzinfo=UTC)
"""The moment that never comes: the largest instant, so ``max`` and ``min`` need no special case."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECONDS_A_DAY = 86_400_000_000


def system_clock() -> datetime:
    """Return the time; the only place where Ebbtide asks the machine."""
    return datetime.now(UTC)


def parse_instant(text: str) -> datetime:
    """Read ISO 8601: ``1998-01-20``, ``1998-01-20T00:00:00Z`` or with an offset. No zone means UTC."""
    try:
        found = datetime.fromisoformat(text.strip())
    except (ValueError, AttributeError):
        raise BadInput(
            f"{text!r} is not a time", fix="write it as 1998-01-20 or 1998-01-20T00:00:00Z"
        ) from None
    try:
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except OverflowError:
        raise BadInput(f"{text!r} lies outside the calendar", fix="use years 1 to 9999") from None


def format_instant(moment: datetime) -> str:
    """Write an instant as ``1998-01-20T00:00:00Z``, with a fraction only if it has one; never is 'never'."""
    if moment == NEVER:
        return "never"
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def format_second(moment: datetime) -> str:
    """Write an instant for people, to the second, in the form in which it can be given back to a command."""
    return format_instant(moment if moment == NEVER else moment.replace(microsecond=0))


def last_midnight(moment: datetime) -> datetime:
    """Return the midnight UTC at the start of this instant's day."""
    return datetime.combine(moment.astimezone(UTC).date(), time.min, UTC)


def next_midnight(moment: datetime) -> datetime:
    """Round up to midnight UTC; a midnight stays what it is."""
    floor = last_midnight(moment)
    return floor if floor == moment else days_after(floor, 1)


def days_after(moment: datetime, days: int) -> datetime:
    """Add whole days; a result beyond the calendar is `NEVER`."""
    try:
        return moment + timedelta(days=days)
    except OverflowError:
        return NEVER


def days_before(day: date, days: int) -> date:
    """Subtract whole days; a result before the calendar is its first day."""
    try:
        return day - timedelta(days=days)
    except OverflowError:
        return date.min


def to_micros(moment: datetime) -> int:
    """Count microseconds since 1970, exactly: the form in which instants cross into Arrow and Spark."""
    delta = moment - EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def from_micros(micros: int) -> datetime:
    """Turn microseconds since 1970 back into an instant."""
    return EPOCH + timedelta(microseconds=micros)


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
