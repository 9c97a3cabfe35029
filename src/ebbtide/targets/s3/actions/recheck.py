"""
The check directly before acting: list the keys again, and compare what is there with the plan.

Keys with a common prefix are listed together. If a page does not show all of them, there are too many other
keys in between, and smaller groups are tried, down to single keys; the next groups start with that size. If a
server does not list in key order, only listings of one page are trusted: it may lose keys between pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from operator import attrgetter

from ebbtide.core.decision import Outcome
from ebbtide.core.errors import EbbtideError, StoreError
from ebbtide.storage.s3_bucket import VersionedBucket
from ebbtide.storage.s3_listing import untrusted_listing
from ebbtide.storage.s3_versions import MOST, Question, VersionPage, VersionRow, newest_first, one_page
from ebbtide.storage.store import DeleteResult
from ebbtide.targets.s3.actions.requests import PlannedItem, same_moment
from ebbtide.targets.s3.model import Action

WIDEST = MOST // 2
"""The most planned versions of a group; the rest of a page is for other versions of the same keys."""

_SHRINK, _GROW = 4, 1.05
"""A useless page costs as much as many requests for single keys, so groups grow slowly."""
_FEW = 128
"""If a page shows fewer keys than its size divided by this, single requests are cheaper."""


@dataclass
class ListedVersions:
    """The versions of each key, the newest first, and the errors of keys that could not be listed."""

    versions: dict[str, list[VersionRow]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def groups_of(keys: Sequence[str], weights: Mapping[str, int], most: float) -> list[list[str]]:
    """Divide sorted keys into groups with common prefixes whose weights add up to at most `most`."""
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
    """Divide sorted keys by the first character in which they differ."""
    end = len(_in_common(group[0], group[-1])) + 1
    return [list(part) for _, part in groupby(group, key=lambda key: key[:end])]


def _in_common(one: str, two: str) -> str:
    """Return the common prefix of two keys."""
    end = next((place for place, pair in enumerate(zip(one, two, strict=False)) if len(set(pair)) > 1), None)
    return one[:end] if end is not None else min(one, two, key=len)


class VersionLister:
    """Lists keys of one bucket. The threads of a task share one, with the group size that works."""

    def __init__(self, bucket: VersionedBucket, threads: Executor, *, page: int = MOST) -> None:
        self._bucket, self._threads, self._most = bucket, threads, page
        self._widest = page / 2

    def look(self, groups: Iterable[Sequence[str]], weights: Mapping[str, int]) -> ListedVersions:
        """Find all versions of the keys; weights are the numbers of planned versions. Errors are returned."""
        listed = ListedVersions()
        todo = [part for group in groups for part in groups_of(group, weights, self._widest)]
        single: list[str] = []
        while todo:
            group = todo.pop()
            if len(group) == 1:
                single.append(group[0])
                continue
            try:
                left = self._list(group, listed)
            except EbbtideError as broken:
                listed.failed.update(dict.fromkeys(group, str(broken)))
            else:
                todo += [part for one in left for part in groups_of(one, weights, self._widest)]
        for key, found in zip(single, self._threads.map(self._alone_or_why, single), strict=True):
            if isinstance(found, str):
                listed.failed[key] = found
            else:
                listed.versions[key] = found
        return listed

    def alone(self, key: str) -> list[VersionRow]:
        """Find all versions of one key."""
        rows: list[VersionRow] = []
        after = version = ""
        places: set[str] = set()
        # Keys in a folder of the same name do not matter.
        asked = Question(self._bucket.name, key, delimiter="/", most=self._most)
        while True:
            page = self._page(asked, after, version)
            rows += [row for row in page.rows if row.key == key]
            others = len(page.folders) + sum(row.key != key for row in page.rows)
            # In key order the key comes before longer keys, so its versions end here.
            if not page.truncated or (others and self._bucket.ordered):
                self._learn(wide=page.truncated)
                return _settled(rows)
            after, version = page.next_key, page.next_version
            if after != key or not version or version in places:
                raise _cannot_list(key)
            places.add(version)

    def _list(self, group: Sequence[str], listed: ListedVersions) -> list[list[str]]:
        """List the common prefix of a group; return the keys that the page did not show, in groups."""
        asked = Question(self._bucket.name, _in_common(group[0], group[-1]), most=self._most)
        ordered = self._bucket.ordered
        page = self._page(asked, just_before(group[0]) if ordered else "", "")
        if not page.truncated:
            self._learn(wide=False)
            _take(page, group, listed)
            return []
        whole = [key for key in group if key < page.rows[-1].key] if ordered else []
        _take(page, whole, listed)
        self._learn(wide=len(whole) < self._most / _FEW)
        rest = group[len(whole) :]
        if not ordered:
            return _split(rest)
        return [part for part in ([list(rest)] if whole else [[rest[0]], list(rest[1:])]) if part]

    def _page(self, asked: Question, after: str, version: str) -> VersionPage:
        bucket = self._bucket
        page = one_page(bucket.client, asked, bucket.backoff, after=after, version=version)
        if page.truncated and not page.rows and not page.folders:
            raise untrusted_listing(bucket.name, "that there is more, but not where")
        if bucket.ordered and any(one.key > two.key for one, two in pairwise(page.rows)):
            raise untrusted_listing(bucket.name, "keys out of order; open it with the option ordered=no")
        return page

    def _learn(self, *, wide: bool) -> None:
        """Adapt the group size to whether the last group was too wide."""
        self._widest = max(1.0, self._widest / _SHRINK) if wide else min(self._most / 2, self._widest * _GROW)

    def _alone_or_why(self, key: str) -> list[VersionRow] | str:
        try:
            return self.alone(key)
        except EbbtideError as broken:
            return str(broken)


def just_before(key: str) -> str:
    """Return a string shortly before a key, because a listing starts after its start, not at it."""
    head, last = key[:-1], key[-1]
    return head + chr(ord(last) - 1) if "!" < last <= "~" else head


def _take(page: VersionPage, keys: Iterable[str], listed: ListedVersions) -> None:
    """Add the versions of keys that a page shows completely."""
    wanted: dict[str, list[VersionRow]] = {key: [] for key in keys}
    for key, rows in groupby(page.rows, key=attrgetter("key")):
        if key in wanted:
            wanted[key] += rows
    listed.versions.update({key: _settled(rows) for key, rows in wanted.items()})


def _settled(rows: list[VersionRow]) -> list[VersionRow]:
    """Put the current version first; if it is, keep the order of the server, which is better than times."""
    return rows if not rows or rows[0].is_latest else newest_first(rows)


def _cannot_list(key: str) -> StoreError:
    return StoreError(
        f"the store cannot list all versions of {key!r} for certain",
        why="it does not list in key order, and too many keys begin with this one",
        fix="rename the object so that its key is not a prefix of many others",
    )


UNCLEAR = "the store does not say which version is current"
PROMOTED = "it is the current version now"
OVERTAKEN = "it is no longer the current version"
REWRITTEN = "the content differs from the plan"
RETIMED = "it was written at another time than planned"


def find_changes(
    items: Iterable[PlannedItem], siblings: Sequence[PlannedItem], found: Sequence[VersionRow]
) -> dict[int, DeleteResult]:
    """
    Return results for the items of a key that must not be touched. Items without a result may be.

    `siblings` are all items of the key in this chunk. Those that are gone were deleted by this attempt or an
    earlier one, and count as newer versions anyway. `found` are all versions of the key, the newest first.
    """
    places = {row.version_id: place for place, row in enumerate(found)}
    if found and sum(row.is_latest for row in found) != 1:
        return {item.number: DeleteResult(item.key, Outcome.FAILED, UNCLEAR) for item in items}
    gone = [
        item.micros
        for item in siblings
        if item.action == Action.DELETE_VERSION and item.version not in places and item.micros is not None
    ]
    results = {}
    for item in items:
        result = _change(item, found, places.get(item.version), gone)
        if item.kept is not None and (result is None or result.outcome is Outcome.CHANGED):
            result = DeleteResult(item.key, Outcome.CHANGED, item.kept)
        if result is not None:
            results[item.number] = result
    return results


def _change(
    item: PlannedItem, found: Sequence[VersionRow], place: int | None, gone: Sequence[int]
) -> DeleteResult | None:
    if item.action == Action.EXPIRE and (not found or found[0].is_delete_marker):
        # A marker over a marker has no effect, and every run would add one.
        return DeleteResult(item.key, Outcome.ABSENT)
    if place is None:
        outcome, why = (Outcome.CHANGED, OVERTAKEN) if item.action == Action.EXPIRE else (Outcome.ABSENT, "")
        return DeleteResult(item.key, outcome, why)
    why = _content_change(item, found[place]) or _place_change(item, found, place, gone)
    return DeleteResult(item.key, Outcome.CHANGED, why) if why else None


def _content_change(item: PlannedItem, row: VersionRow) -> str:
    """Describe how the content of a version differs from the plan."""
    if item.action == Action.REMOVE_DELETE_MARKER and not row.is_delete_marker:
        return "it is a version now and not a delete marker"
    if row.is_delete_marker and (item.action == Action.EXPIRE or item.etag):
        return "it is a delete marker now"
    if item.etag and row.etag != item.etag:
        return REWRITTEN
    return "" if same_moment(item.micros, row.micros) else RETIMED


def _place_change(item: PlannedItem, found: Sequence[VersionRow], place: int, gone: Sequence[int]) -> str:
    """Describe how the position of a version among the others differs from the plan."""
    row = found[place]
    top = item.latest or item.action in {Action.EXPIRE, Action.REMOVE_DELETE_MARKER}
    if row.is_latest != top:
        return PROMOTED if row.is_latest else OVERTAKEN
    if item.action == Action.REMOVE_DELETE_MARKER and len(found) > 1:
        return "its key has other versions, which would become visible without it"
    if not top:
        # The first is current. Of versions that are gone, only those that were certainly newer count.
        newer = place - 1 + sum(micros > row.micros for micros in gone)
        if newer < item.newer:
            return f"it has {newer} newer noncurrent versions, and {item.newer} are required"
    return ""
