"""
Looking again: all versions that some keys have now, in few requests whether the keys lie close or far apart.

Keys that begin alike are listed together by what they have in common. A page that does not hold all of that
shows that too much lies between them; then smaller groups are tried, down to single keys, and what was learnt
goes for the next groups too. Of a server that keeps no key order only a listing of one page is trusted:
behind the end of a page it may lose keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from operator import attrgetter

from ebbtide.core.errors import EbbtideError, StoreError
from ebbtide.storage.s3_listing import untrusted_listing
from ebbtide.storage.s3_versions import MOST, Question, VersionPage, VersionRow, newest_first, one_page
from ebbtide.targets.s3.actions.connection import Connection

WIDEST = MOST // 2
"""How many planned versions a group may have: beside them a page has room for others of the same keys."""

_SHRINK, _GROW = 4, 1.05
"""A page in vain costs as much as many requests for single keys, so groups grow slowly."""
_FEW = 128
"""A page that shows fewer of the keys than its size by this is worse than asking for each."""


@dataclass
class Seen:
    """What the store has of each key, the newest version first, and why of some it could not be found out."""

    versions: dict[str, list[VersionRow]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def groups_of(keys: Sequence[str], weights: Mapping[str, int], most: float) -> list[list[str]]:
    """Part sorted keys into such that begin alike and weigh no more than `most` together, in key order."""
    done: list[list[str]] = []
    todo = [list(keys)] if keys else []
    while todo:
        group = todo.pop()
        if len(group) == 1 or sum(weights[key] for key in group) <= most:
            done.append(group)
        else:
            todo += reversed(_split(group))
    return done


def _split(group: Sequence[str]) -> list[list[str]]:
    """Part sorted keys by the first character in which they differ."""
    end = len(_in_common(group[0], group[-1])) + 1
    return [list(part) for _, part in groupby(group, key=lambda key: key[:end])]


def _in_common(one: str, two: str) -> str:
    """Give the beginning that two keys share."""
    end = next((place for place, pair in enumerate(zip(one, two, strict=False)) if len(set(pair)) > 1), None)
    return one[:end] if end is not None else min(one, two, key=len)


class Looker:
    """Lists keys of one bucket; the threads of a task share one, and what it learns."""

    def __init__(self, connection: Connection, threads: Executor, *, page: int = MOST) -> None:
        self._connection, self._threads, self._most = connection, threads, page
        self._widest = page / 2

    def look(self, groups: Iterable[Sequence[str]], weights: Mapping[str, int]) -> Seen:
        """Find all versions of the keys; weights say how many of each are planned. Nothing raises."""
        seen = Seen()
        todo = [part for group in groups for part in groups_of(group, weights, self._widest)]
        single: list[str] = []
        while todo:
            group = todo.pop()
            if len(group) == 1:
                single.append(group[0])
                continue
            try:
                left = self._list(group, seen)
            except EbbtideError as broken:
                seen.failed.update(dict.fromkeys(group, str(broken)))
            else:
                todo += [part for one in left for part in groups_of(one, weights, self._widest)]
        for key, found in zip(single, self._threads.map(self._alone_or_why, single), strict=True):
            if isinstance(found, str):
                seen.failed[key] = found
            else:
                seen.versions[key] = found
        return seen

    def alone(self, key: str) -> list[VersionRow]:
        """Find all versions of one key."""
        rows: list[VersionRow] = []
        after = version = ""
        places: set[str] = set()
        # What lies in folders of the key's name is none of our business.
        asked = Question(self._connection.bucket, key, delimiter="/", most=self._most)
        while True:
            page = self._page(asked, after, version)
            rows += [row for row in page.rows if row.key == key]
            others = len(page.folders) + sum(row.key != key for row in page.rows)
            # The key comes before all that only begins with it, so on a server with order this is its end.
            if not page.truncated or (others and self._connection.ordered):
                self._learn(wide=page.truncated)
                return _settled(rows)
            after, version = page.next_key, page.next_version
            if after != key or not version or version in places:
                raise _lossy(key)
            places.add(version)

    def _list(self, group: Sequence[str], seen: Seen) -> list[list[str]]:
        """List what the keys have in common, and give back those of them that are still to be looked at."""
        asked = Question(self._connection.bucket, _in_common(group[0], group[-1]), most=self._most)
        ordered = self._connection.ordered
        page = self._page(asked, just_before(group[0]) if ordered else "", "")
        if not page.truncated:
            self._learn(wide=False)
            _take(page, group, seen)
            return []
        whole = [key for key in group if key < page.rows[-1].key] if ordered else []
        _take(page, whole, seen)
        self._learn(wide=len(whole) < self._most / _FEW)
        rest = group[len(whole) :]
        if not ordered:
            return _split(rest)
        return [part for part in ([list(rest)] if whole else [[rest[0]], list(rest[1:])]) if part]

    def _page(self, asked: Question, after: str, version: str) -> VersionPage:
        connection = self._connection
        page = one_page(connection.client, asked, connection.backoff, after=after, version=version)
        if page.truncated and not page.rows and not page.folders:
            raise untrusted_listing(connection.bucket, "that there is more, but not where")
        if connection.ordered and any(one.key > two.key for one, two in pairwise(page.rows)):
            raise untrusted_listing(
                connection.bucket, "keys out of order; open it with the option ordered=no"
            )
        return page

    def _learn(self, *, wide: bool) -> None:
        """Remember whether the last group was too wide."""
        self._widest = max(1.0, self._widest / _SHRINK) if wide else min(self._most / 2, self._widest * _GROW)

    def _alone_or_why(self, key: str) -> list[VersionRow] | str:
        try:
            return self.alone(key)
        except EbbtideError as broken:
            return str(broken)


def just_before(key: str) -> str:
    """Give a place before a key with little between the two: listings go on behind a place, never at it."""
    head, last = key[:-1], key[-1]
    return head + chr(ord(last) - 1) if "!" < last <= "~" else head


def _take(page: VersionPage, keys: Iterable[str], seen: Seen) -> None:
    """Note the versions of keys that are on a page whole."""
    wanted: dict[str, list[VersionRow]] = {key: [] for key in keys}
    for key, rows in groupby(page.rows, key=attrgetter("key")):
        if key in wanted:
            wanted[key] += rows
    seen.versions.update({key: _settled(rows) for key, rows in wanted.items()})


def _settled(rows: list[VersionRow]) -> list[VersionRow]:
    """Bring the current version to the front; else the server's order is better than what times say."""
    return rows if not rows or rows[0].is_latest else newest_first(rows)


def _lossy(key: str) -> StoreError:
    return StoreError(
        f"the store cannot list all versions of {key!r} for certain",
        why="it keeps no key order, and too many keys begin like this one to be listed at once",
        fix="give the object a name that is not the beginning of others",
    )
