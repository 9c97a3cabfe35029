"""
Ranges of keys: how a bucket is cut into parts that tasks list side by side, and which are missing. Pure.

A range begins behind a key and ends with one, so that two ranges with one key between them share nothing and
leave nothing out, whether that key exists or not. Any text will do as a cut: a bad one makes parts uneven,
never wrong.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

Probe = Callable[[str, str], str | None]
"""Called with a prefix and a place: gives the first key behind the place that has the prefix."""
Folders = Callable[[str, str], Sequence[str]]
"""Called with a prefix and a place: gives folders one step below the prefix that lie behind the place."""

_LOW, _HIGH, _LAST = 0x20, 0x7F, 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)
_SHRINKS = 12


@dataclass(frozen=True)
class Range:
    """Keys with a prefix behind `after` and up to `up_to`; without `up_to`, to the end of the prefix."""

    prefix: str
    after: str = ""
    up_to: str = ""
    uploads: bool = False
    """Whether this is about the uploads below the prefix, which are always listed whole."""

    @property
    def name(self) -> str:
        """A name for its file, which no other range has."""
        text = json.dumps([self.uploads, self.prefix, self.after, self.up_to])
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def end(self) -> tuple[bool, str]:
        """Where it ends, to be compared: no end is behind every key."""
        return (not self.up_to, self.up_to)


def rest_of(whole: Range, last: str) -> Range | None:
    """Give what is left of a range of which all keys up to this one were listed."""
    return replace(whole, after=last) if (False, last) < whole.end else None


def cut(whole: Range, places: Iterable[str]) -> list[Range]:
    """Cut a range at places inside it."""
    inside = sorted({place for place in places if place > whole.after and (False, place) < whole.end})
    starts = [whole.after, *inside]
    ends = [*inside, whole.up_to]
    return [replace(whole, after=after, up_to=up_to) for after, up_to in zip(starts, ends, strict=True)]


def around(whole: Range, prefixes: Iterable[str]) -> list[Range]:
    """
    Leave the keys below some prefixes out of a range, as far as its ends can say that.

    A key that is such a prefix itself, or goes on with the last character there is, stays.
    """
    parts = [whole]
    for prefix in sorted(prefix for prefix in prefixes if prefix.startswith(whole.prefix)):
        ends = prefix, prefix + chr(_LAST)
        parts = [part for one in parts for part in cut(one, ends) if (part.after, part.up_to) != ends]
    return parts


def missing(planned: Iterable[Range], finished: Iterable[Range]) -> list[Range]:
    """Give what of the planned ranges no finished one covers."""
    done = sorted(finished, key=lambda one: one.after)
    return [gap for whole in planned for gap in _gaps(whole, [one for one in done if _same(one, whole)])]


def _same(one: Range, other: Range) -> bool:
    return (one.prefix, one.uploads) == (other.prefix, other.uploads)


def _gaps(whole: Range, done: Sequence[Range]) -> Iterator[Range]:
    """Walk along a range and give what lies between those that are done."""
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
    Cut a range into about so many parts: at folders, the higher the better, else between keys that are there.

    What lies in each part nobody knows before it is listed; one that turns out long is split again.
    """
    first = probe(whole.prefix, whole.after) if wanted > 1 and not whole.uploads else None
    if first is None or (False, first) > whole.end:
        return [whole]
    places = _folder_places(whole, first, folders, wanted - 1)
    if len(places) < wanted - 1:
        # The folder of the first key ends where the first cut is: below that there are no more folders.
        flat = replace(whole, after=first, up_to=min(places, default=whole.up_to))
        places += _probed_places(flat, probe, wanted - 1 - len(places), probes)
    return cut(whole, places)


def _folder_places(whole: Range, first: str, folders: Folders, wanted: int) -> list[str]:
    """Look for folders behind the first key, at the top and then on the way down to it."""
    places: list[str] = []
    levels = [whole.prefix]
    levels += [first[: at + 1] for at in range(len(whole.prefix), len(first)) if first[at] == "/"]
    for level in levels:
        found = [name for name in folders(level, first) if name > first and (False, name) < whole.end]
        places += _evenly(found, wanted - len(places))
        if len(places) >= wanted:
            break
    return places


def _evenly(names: Sequence[str], count: int) -> list[str]:
    """Choose so many names at even distances, or all of them."""
    if len(names) <= count:
        return list(names)
    return [names[(at + 1) * len(names) // (count + 1)] for at in range(count)]


def _probed_places(flat: Range, probe: Probe, wanted: int, probes: int) -> list[str]:
    """Halve a range that begins at a known key, and its halves, until there are parts enough."""
    asked = 0

    def ask(place: str) -> str | None:
        nonlocal asked
        asked += 1
        found = probe(flat.prefix, place)
        return found if found is not None and (False, found) <= flat.end else None

    low = flat.after
    spans = deque([(low, _common_end(flat, ask), _SHRINKS)])
    places: list[str] = []
    while spans and len(places) < wanted and asked < probes:
        low, high, shrinks = spans.popleft()
        middle = between(low, high)
        if middle is None or not shrinks:
            continue
        found = ask(middle)
        if found is None or found > high:
            spans.appendleft((low, middle, shrinks - 1))
        else:
            places.append(middle)
            spans.extend([(low, middle, _SHRINKS), (found, high, _SHRINKS)])
    return places


def _common_end(flat: Range, ask: Callable[[str], str | None]) -> str:
    """Find how much of the first key all keys of the range begin with, and give an end close behind them."""
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
    Give a text between two others, about in the middle if keys are made of ASCII; None if there is no room.

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
    """Give a character that exists; halves of surrogate pairs do not."""
    if middle not in _SURROGATES:
        return middle
    below = _SURROGATES.start - 1
    return below if floor < below else _SURROGATES.stop
