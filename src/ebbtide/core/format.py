"""Numbers, times and names as people read them; pure, for the page and the command line alike."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime

from ebbtide.core.instant import NEVER

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_NARROW_SPACE = "\u202f"
_ELLIPSIS = "…"
_UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Controls, invisible and direction-changing characters, lone surrogates, line separators."""


_plain: ContextVar[bool] = ContextVar("plain", default=False)
"""Whether numbers are written for programs: all digits and nothing between them."""


@contextmanager
def numbers(*, plain: bool) -> Iterator[None]:
    """Write numbers in the block for programs, or for people."""
    before = _plain.set(plain)
    try:
        yield
    finally:
        _plain.reset(before)


def human_bytes(size: int) -> str:
    """
    Write a size in binary units with one decimal; what would round up to 1024 takes the next unit.

    For programs it is the number of bytes.

    >>> human_bytes(512), human_bytes(1536), human_bytes(10**12)
    ('512 B', '1.5 KiB', '931.3 GiB')
    """
    if abs(size) < 1024 or _plain.get():
        return f"{size} B"
    value, unit = size / 1024, 1
    while round(abs(value), 1) >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {_UNITS[unit]}"


def count(number: int) -> str:
    """Write a number; for people with narrow no-break spaces between thousands."""
    return str(number) if _plain.get() else f"{number:,}".replace(",", _NARROW_SPACE)


def plural(number: int, one: str, many: str = "") -> str:
    """
    Write a number with its noun.

    >>> plural(1, "object"), plural(2, "object"), plural(0, "entry", "entries")
    ('1 object', '2 objects', '0 entries')
    """
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def percent(part: int, whole: int) -> str:
    """
    Write a share of a whole; only nothing is 0%, and only all of it is 100%.

    >>> percent(1, 8), percent(1, 10**6), percent(10**6 - 1, 10**6), percent(0, 0)
    ('12.5%', '< 0.1%', '> 99.9%', '0%')
    """
    if part <= 0 or whole <= 0:
        return "0%"
    if part >= whole:
        return "100%"
    value = 100 * part / whole
    if value < 0.1:
        return "< 0.1%"
    return "> 99.9%" if value > 99.9 else f"{value:.1f}%"


def moment(at: datetime | None) -> str:
    """Write a time in UTC to the second; no time and the last year of the calendar both mean never."""
    if at is None or at.year == NEVER.year:
        return "never"
    known = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    text = known.replace(tzinfo=None).isoformat(sep=" ", timespec="seconds")
    return f"{text.removesuffix(':00')} UTC"


def printable(text: str) -> str:
    r"""
    Escape invisible characters: terminal controls, and those that make a key look like another key.

    >>> printable("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return "".join(_seen(character) for character in text)


def shorten(text: str, limit: int) -> str:
    """
    Cut a long name in its middle, because keys differ at their start and at their end.

    >>> shorten("abcdefghij", 7)
    'abc…hij'
    """
    if len(text) <= limit:
        return text
    tail = (limit - 1) // 2
    return text[: limit - 1 - tail] + _ELLIPSIS + text[len(text) - tail :]


def _seen(character: str) -> str:
    if unicodedata.category(character) not in _UNSEEN:
        return character
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
