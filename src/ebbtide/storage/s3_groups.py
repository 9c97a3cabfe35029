"""The versions of one key belong together: joined over the pages of a listing, and newest first."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from operator import attrgetter

from ebbtide.core.errors import StoreError
from ebbtide.storage.s3_version_pages import VersionRow

_key = attrgetter("key")


def grouped(
    pages: Iterable[Sequence[VersionRow]], *, after: str = "", up_to: str = ""
) -> Iterator[list[VersionRow]]:
    """
    Pass on the rows of pages in key order, with a key that ends a page held back until the next one.

    Whoever stops between two lists has whole keys. Rows out of order raise: a range of keys would miss some.
    """
    held: list[VersionRow] = []
    last = ""
    for found in pages:
        # Some servers begin with the marker itself; it belongs to the range before this one.
        page = [row for row in found if row.key != after]
        if not page:
            continue
        last = _check_order(page, last, after)
        if up_to and last > up_to:
            yield _settled([*held, *(row for row in page if row.key <= up_to)])
            return
        cut = bisect_left(page, last, key=_key)
        if not cut and held and held[0].key == last:
            held.extend(page)
            continue
        if held or cut:
            yield _settled([*held, *page[:cut]])
        held = page[cut:]
    if held:
        yield _settled(held)


def newest_first(rows: Iterable[VersionRow]) -> list[VersionRow]:
    """Order the versions of one key; those of the same second stay in the server's order."""
    return sorted(rows, key=lambda row: (not row.is_latest, -row.micros))


def numbered(rows: Sequence[VersionRow]) -> list[int]:
    """Count the versions of each key from 0."""
    numbers: list[int] = []
    key: str | None = None
    number = 0
    for row in rows:
        number = number + 1 if row.key == key else 0
        key = row.key
        numbers.append(number)
    return numbers


def _settled(rows: list[VersionRow]) -> list[VersionRow]:
    """
    Bring keys into order whose newest version does not come first; all others are as the server has them.

    Times alone do not say it: that of a large object is when its upload began.
    """
    if not any(row.is_latest and number for row, number in zip(rows, numbered(rows), strict=True)):
        return rows
    settled: list[VersionRow] = []
    for _, found in groupby(rows, key=_key):
        group = list(found)
        settled += group if group[0].is_latest else newest_first(group)
    return settled


def _check_order(page: Sequence[VersionRow], last: str, after: str) -> str:
    """Make sure that keys do not go back, and that nothing comes which lies before the start."""
    keys = [row.key for row in page]
    if keys[0] < last or keys[0] < after or any(one > two for one, two in pairwise(keys)):
        raise _disorder()
    return keys[-1]


def _disorder() -> StoreError:
    return StoreError(
        "the store does not list in key order",
        why="a listing that relies on the order would miss versions",
        fix="open the bucket with the option ordered=no",
    )
