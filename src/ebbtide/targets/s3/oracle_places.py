"""Where a version stands among those of its key: current or not, since when, behind how many, or in doubt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from ebbtide.core.instant import NEVER
from ebbtide.targets.s3.model import Hold, Upload, Version


@dataclass(frozen=True)
class Place:
    """A version's place; with a doubt it says only what the version may be, and no time can be counted."""

    current: bool
    noncurrent: bool
    alone: bool = False
    """It is all that there is of its key."""
    written: datetime | None = None
    replaced: datetime | None = None
    """When its successor was written: since then it is noncurrent."""
    newer: int | None = None
    """How many noncurrent versions of the key are newer; None if nobody knows."""
    doubt: Hold | None = None


def find_places(items: Sequence[Version | Upload]) -> dict[int, Place]:
    """Give each version, by its number in the sequence, its place among all that are given of its key."""
    keys: dict[str, list[int]] = {}
    for number, item in enumerate(items):
        if isinstance(item, Version):
            keys.setdefault(item.key, []).append(number)
    found: dict[int, Place] = {}
    for numbers in keys.values():
        versions = [item for item in (items[number] for number in numbers) if isinstance(item, Version)]
        found.update(zip(numbers, _places_of_key(versions), strict=True))
    return found


def _places_of_key(versions: Sequence[Version]) -> list[Place]:
    """Place the versions of one key, in the order in which they are given."""
    latest = [number for number, version in enumerate(versions) if version.is_latest]
    if len(latest) > 1:
        return [Place(bool(version.is_latest), True, doubt=Hold.UNKNOWN_RANK) for version in versions]
    if not latest and any(version.is_latest is False for version in versions):
        # The current version is not among them, so neither is the one that replaced the first of these.
        return [Place(False, True, doubt=Hold.UNKNOWN_RANK) for _ in versions]
    if not latest and len(versions) > 1 and any(version.last_modified is None for version in versions):
        return [Place(True, True, doubt=_own_doubt(version)) for version in versions]
    current = latest[0] if latest else _newest_first(versions, range(len(versions)))[0]
    return _places_behind(versions, current)


def _places_behind(versions: Sequence[Version], current: int) -> list[Place]:
    """Place the versions of a key of which the current one is known."""
    written = versions[current].last_modified
    doubt = Hold.UNKNOWN_TIME if written is None else None
    places = {current: Place(True, False, len(versions) == 1, written, doubt=doubt)}
    rest = [number for number in range(len(versions)) if number != current]
    if any(versions[number].last_modified is None for number in rest):
        # Any of them may be the successor of any other, and newer than it.
        places.update({number: Place(False, True, doubt=_own_doubt(versions[number])) for number in rest})
    else:
        order = [current, *_newest_first(versions, rest)]
        places.update(_places_in_order(versions, order))
    return [places[number] for number in range(len(versions))]


def _places_in_order(versions: Sequence[Version], order: Sequence[int]) -> Iterator[tuple[int, Place]]:
    """Place all but the first of an order: each was replaced by the one before it."""
    for newer, number in enumerate(order[1:]):
        replaced = versions[order[newer]].last_modified
        doubt = Hold.UNKNOWN_TIME if replaced is None else None
        written = versions[number].last_modified
        yield number, Place(False, True, written=written, replaced=replaced, newer=newer, doubt=doubt)


def _newest_first(versions: Sequence[Version], numbers: Sequence[int]) -> list[int]:
    """Sort by time; of equal ones the first comes first, for that is how S3 lists them."""
    return sorted(numbers, key=lambda number: versions[number].last_modified or NEVER, reverse=True)


def _own_doubt(version: Version) -> Hold:
    """Name why a version of a key without a known order is held: for its own time, or for a sibling's."""
    return Hold.UNKNOWN_TIME if version.last_modified is None else Hold.UNKNOWN_RANK
