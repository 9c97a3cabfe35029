"""
Key ranges: how a bucket is divided so that tasks list it in parallel, and which ranges are missing. Pure.

A range begins after a key and ends with a key. Two ranges that meet at a key have nothing in common and leave
nothing out, whether that key exists or not. Any string can divide a range: a bad one makes the parts uneven,
but never wrong.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

Probe = Callable[[str, str], str | None]
"""Called with a prefix and a start: returns the first key with the prefix after the start."""
Folders = Callable[[str, str], Sequence[str]]
"""Called with a prefix and a start: returns the folders one level below the prefix after the start."""

_LOW, _HIGH, _LAST = 0x20, 0x7F, 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)
_SHRINKS = 12


@dataclass(frozen=True)
class Range:
    """The keys with a prefix after `after` and up to `up_to`, or to the end of the prefix without it."""

    prefix: str
    after: str = ""
    up_to: str = ""
    uploads: bool = False
    """The range is of the uploads below the prefix, which are always listed as a whole."""

    @property
    def name(self) -> str:
        """The unique name of its file."""
        text = json.dumps([self.uploads, self.prefix, self.after, self.up_to])
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def end(self) -> tuple[bool, str]:
        """Its end as a sort key: a range without an end is after every key."""
        return (not self.up_to, self.up_to)


def rest_of(whole: Range, last: str) -> Range | None:
    """Return the rest of a range whose keys up to `last` were listed."""
    return replace(whole, after=last) if (False, last) < whole.end else None


def cut(whole: Range, bounds: Iterable[str]) -> list[Range]:
    """Divide a range at strings inside it."""
    inside = sorted({place for place in bounds if place > whole.after and (False, place) < whole.end})
    starts = [whole.after, *inside]
    ends = [*inside, whole.up_to]
    return [replace(whole, after=after, up_to=up_to) for after, up_to in zip(starts, ends, strict=True)]


def around(whole: Range, prefixes: Iterable[str]) -> list[Range]:
    """
    Divide a range so that the keys below some prefixes are left out, as far as range ends can express it.

    A key that equals such a prefix, or continues it with the last Unicode character, stays.
    """
    parts = [whole]
    for prefix in sorted(prefix for prefix in prefixes if prefix.startswith(whole.prefix)):
        ends = prefix, prefix + chr(_LAST)
        parts = [part for one in parts for part in cut(one, ends) if (part.after, part.up_to) != ends]
    return parts


def missing(planned: Iterable[Range], finished: Iterable[Range]) -> list[Range]:
    """Return the parts of the planned ranges that no finished range covers."""
    done = sorted(finished, key=lambda one: one.after)
    return [gap for whole in planned for gap in _gaps(whole, [one for one in done if _same(one, whole)])]


def _same(one: Range, other: Range) -> bool:
    return (one.prefix, one.uploads) == (other.prefix, other.uploads)


def _gaps(whole: Range, done: Sequence[Range]) -> Iterator[Range]:
    """Yield the parts of a range between the finished ones."""
    place = (False, whole.after)
    for one in done:
        if place >= whole.end:
            return
        if one.end <= place:
            continue
        if (False, one.after) > place:
            gap_end = min((False, one.after), whole.end)
            yield replace(whole, after=place[1], up_to=gap_end[1])
        place = one.end
    if place < whole.end:
        yield replace(whole, after=place[1])


def split(whole: Range, folders: Folders, probe: Probe, wanted: int, *, probes: int = 64) -> list[Range]:
    """
    Divide a range into about `wanted` parts: at folders, preferably high ones, else between existing keys.

    The number of keys in a part is unknown before it is listed; a long part is split again later.
    """
    first = probe(whole.prefix, whole.after) if wanted > 1 and not whole.uploads else None
    if first is None or (False, first) > whole.end:
        return [whole]
    bounds = _folder_bounds(whole, first, folders, wanted - 1)
    if len(bounds) < wanted - 1:
        # Before the first division is the folder of the first key, which has no more folders.
        flat = replace(whole, after=first, up_to=min(bounds, default=whole.up_to))
        bounds += _probed_bounds(flat, probe, wanted - 1 - len(bounds), probes)
    return cut(whole, bounds)


def _folder_bounds(whole: Range, first: str, folders: Folders, wanted: int) -> list[str]:
    """Find folders after the first key, at the top and then on the path down to it."""
    bounds: list[str] = []
    levels = [whole.prefix]
    levels += [first[: at + 1] for at in range(len(whole.prefix), len(first)) if first[at] == "/"]
    for level in levels:
        found = [name for name in folders(level, first) if name > first and (False, name) < whole.end]
        bounds += _evenly(found, wanted - len(bounds))
        if len(bounds) >= wanted:
            break
    return bounds


def _evenly(names: Sequence[str], count: int) -> list[str]:
    """Choose `count` names at even distances, or all of them."""
    if len(names) <= count:
        return list(names)
    return [names[(at + 1) * len(names) // (count + 1)] for at in range(count)]


def _probed_bounds(flat: Range, probe: Probe, wanted: int, probes: int) -> list[str]:
    """Halve a range that begins at a known key, and its halves, until there are enough parts."""
    asked = 0

    def ask(place: str) -> str | None:
        nonlocal asked
        asked += 1
        found = probe(flat.prefix, place)
        return found if found is not None and (False, found) <= flat.end else None

    low = flat.after
    spans = deque([(low, _common_end(flat, ask), _SHRINKS)])
    bounds: list[str] = []
    while spans and len(bounds) < wanted and asked < probes:
        low, high, shrinks = spans.popleft()
        middle = between(low, high)
        if middle is None or not shrinks:
            continue
        found = ask(middle)
        if found is None or found > high:
            spans.appendleft((low, middle, shrinks - 1))
        else:
            bounds.append(middle)
            spans.extend([(low, middle, _SHRINKS), (found, high, _SHRINKS)])
    return bounds


def _common_end(flat: Range, ask: Callable[[str], str | None]) -> str:
    """Find the common prefix of all keys of the range, and return an end close after them."""
    shortest, longest = len(flat.prefix), len(flat.after)
    while shortest < longest:
        middle = (shortest + longest + 1) // 2
        if ask(flat.after[:middle] + chr(_LAST)) is None:
            shortest = middle
        else:
            longest = middle - 1
    return flat.after[:shortest] + chr(_LAST)


def between(low: str, high: str) -> str | None:
    """
    Return a string between two others, near the middle for ASCII keys; None if there is none.

    >>> between("logs/a", "logs/y")
    'logs/m'
    """
    at = 0
    while at < min(len(low), len(high)) and low[at] == high[at]:
        at += 1
    if at >= len(high):
        return None
    ceiling = ord(high[at])
    while True:
        floor = ord(low[at]) if at < len(low) else _LOW
        if floor < _HIGH - 1:
            ceiling = min(ceiling, _HIGH)
        middle = _real((floor + ceiling) // 2, floor)
        if floor < middle < ceiling:
            return low[:at] + chr(middle)
        if at >= len(low):
            return None
        at, ceiling = at + 1, _LAST


def _real(middle: int, floor: int) -> int:
    """Return a valid character near `middle`: not half of a surrogate pair."""
    if middle not in _SURROGATES:
        return middle
    below = _SURROGATES.start - 1
    return below if floor < below else _SURROGATES.stop
