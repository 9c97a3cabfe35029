"""
The deleter: acts on the rows of a batch on an executor, in chunks of keys, with an outcome per row.

A chunk is listed, compared with the plan and acted on before the next one is listed, so that little can
happen between the check and the request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain, groupby
from operator import attrgetter
from threading import Lock
from typing import Any

import pyarrow.compute as pc

from ebbtide.core.decision import Outcome
from ebbtide.core.errors import EbbtideError
from ebbtide.engine.actor import Attempt, settle
from ebbtide.storage.rate_limit import Pace, in_turns, prefix_of
from ebbtide.storage.s3_bucket import VersionedBucket, open_bucket
from ebbtide.storage.s3_client import BUSY, CHANGED
from ebbtide.storage.s3_objects import result_of
from ebbtide.storage.store import DeleteResult, StoreSpec, key_problem
from ebbtide.targets.s3.actions.recheck import WIDEST, ListedVersions, VersionLister, find_changes, groups_of
from ebbtide.targets.s3.actions.requests import (
    CHANGED_CODE,
    Answer,
    PlannedItem,
    Requests,
    fits_page,
    planned_items,
)
from ebbtide.targets.s3.model import NULL, Action, Versioning, is_in_bin
from ebbtide.targets.s3.transition.mover import TransitionActor

Results = dict[int, DeleteResult]
"""Results by the numbers of items."""

_RETRIED = BUSY | CHANGED
_NOT_REACHED: Answer = ("ServiceUnavailable", "requests for other keys failed first")
_HOPELESS = 8
"""After this number of chunks in a row that failed, the store counts as down and the rest is not tried."""
_CHUNKS_AT_ONCE = 4
_REQUESTS_AT_ONCE = 8
_VERSION_ACTIONS = frozenset({Action.DELETE_VERSION, Action.REMOVE_DELETE_MARKER, Action.EXPIRE})


@dataclass(frozen=True)
class BucketActor:
    """Acts on the rows of one task: transitions with the mover, all others with the deleter."""

    deleter: BucketDeleter
    mover: TransitionActor

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Delete first, then move, and yield an outcome per row."""
        gathered = list(batches)
        moving = [pc.equal(batch.column("action"), str(Action.TRANSITION)) for batch in gathered]
        rest = [batch.filter(pc.invert(moved)) for batch, moved in zip(gathered, moving, strict=True)]
        yield from self.deleter(batch for batch in rest if batch.num_rows)
        moves = [batch.filter(moved) for batch, moved in zip(gathered, moving, strict=True)]
        yield from self.mover(batch for batch in moves if batch.num_rows)


@dataclass(frozen=True)
class BucketDeleter:
    """Deletes versions, expires objects, removes delete markers and aborts uploads of one bucket."""

    spec: StoreSpec
    attempt: Attempt
    versioning: Versioning
    """The versioning when the plan was made; it decides what an expiration does."""

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Act on the rows of one task, which has all rows of each key; yield an outcome per row."""
        gathered = list(batches)
        items = list(planned_items(gathered))
        results = self._with_hidden(items, self._do(items)) if items else {}
        first = 0
        for batch in gathered:
            numbers = range(first, first + batch.num_rows)
            first += batch.num_rows
            yield self.attempt.outcomes(batch, [results[number] for number in numbers])

    def _do(self, items: Sequence[PlannedItem]) -> Results:
        again = self.attempt.is_repeated()
        refused = {item.number: why for item in items if (why := _refuse(item, again=again)) is not None}
        open_items = [item for item in items if item.number not in refused]
        if not open_items:
            return refused
        try:
            blocked = self._check_versioning(open_items)
            bucket = open_bucket(self.spec)
        except EbbtideError as broken:
            return refused | {
                item.number: DeleteResult(item.key, Outcome.FAILED, str(broken)) for item in open_items
            }
        left = [item for item in open_items if item.number not in blocked]
        options = self.attempt.options
        rate = options.rate_for(self.spec, self.attempt.tasks)
        with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as requests, ThreadPoolExecutor(_CHUNKS_AT_ONCE) as chunks:
            deleter = ChunkDeleter(bucket, requests, rate, options.page, again=again)
            done = list(chunks.map(deleter.delete, self._chunks(left)))
        return refused | blocked | {n: result for part in done for n, result in part.items()}

    def _with_hidden(self, items: Sequence[PlannedItem], results: Results) -> Results:
        """Report `hidden` for objects that only got a delete marker."""
        hidden = {item.number for item in items if item.action == Action.EXPIRE and self._only_hides(item)}
        return {
            number: replace(result, outcome=Outcome.HIDDEN)
            if number in hidden and result.outcome is Outcome.DELETED
            else result
            for number, result in results.items()
        }

    def _only_hides(self, item: PlannedItem) -> bool:
        """Return True if a delete only adds a marker; a null marker replaces the null version for good."""
        if self.versioning is Versioning.SUSPENDED:
            return item.version != NULL
        return self.versioning is Versioning.ENABLED

    def _chunks(self, items: Sequence[PlannedItem]) -> Iterator[KeyChunk]:
        """Divide items into chunks, versions and uploads apart, and spread them over prefixes."""
        page = self.attempt.options.page
        versions = chunks_of([item for item in items if item.action in _VERSION_ACTIONS], page)
        uploads = chunks_of([item for item in items if item.action == Action.ABORT_UPLOAD], page)
        for chunks in (versions, uploads):
            yield from in_turns(chunks, lambda chunk: prefix_of(chunk.first))

    def _check_versioning(self, items: Sequence[PlannedItem]) -> Results:
        """Refuse to expire if versioning was changed: it could delete what should get a delete marker."""
        expired = [item for item in items if item.action == Action.EXPIRE]
        if not expired:
            return {}
        now = open_bucket(self.spec).versioning()
        if now == self.versioning:
            return {}
        why = f"the bucket's versioning is {now} now, and the plan was made for {self.versioning}"
        return {item.number: DeleteResult(item.key, Outcome.CHANGED, why) for item in expired}


def _refuse(item: PlannedItem, *, again: bool) -> DeleteResult | None:
    """Return the result of an item that must not reach the store; None if it may."""
    if item.action not in _VERSION_ACTIONS | {Action.ABORT_UPLOAD}:
        return DeleteResult(item.key, Outcome.DENIED, "not an action of this deleter")
    if is_in_bin(item.key) and item.action != Action.ABORT_UPLOAD:
        # Plans leave the bin out. If a plan has such an item anyway, it must not be touched.
        return DeleteResult(item.key, Outcome.DENIED, "it is in the recycle bin")
    if item.kept is not None and (not again or item.action == Action.ABORT_UPLOAD):
        # After an interrupted attempt it is checked, because that attempt may have deleted it.
        return DeleteResult(item.key, Outcome.CHANGED, item.kept)
    problem = key_problem(item.key)
    return DeleteResult(item.key, Outcome.FAILED, problem) if problem else None


def chunks_of(items: Sequence[PlannedItem], page: int) -> list[KeyChunk]:
    """Divide items into chunks of about a page; all items of a key are in one, near keys together."""
    by_key = {
        key: list(found) for key, found in groupby(sorted(items, key=_key_first), key=attrgetter("key"))
    }
    weights = {key: len(found) for key, found in by_key.items()}
    chunks: list[KeyChunk] = []
    groups: list[list[str]] = []
    weight = 0
    for group in groups_of(list(by_key), weights, min(WIDEST, 2 * page)):
        more = sum(weights[key] for key in group)
        if groups and weight + more > page:
            chunks.append(_chunk(groups, by_key))
            groups, weight = [], 0
        groups.append(group)
        weight += more
    return [*chunks, _chunk(groups, by_key)] if groups else chunks


def _chunk(groups: list[list[str]], by_key: dict[str, list[PlannedItem]]) -> KeyChunk:
    return KeyChunk(groups, {key: by_key[key] for group in groups for key in group})


def _key_first(item: PlannedItem) -> tuple[str, int]:
    return item.key, item.number


@dataclass(frozen=True)
class KeyChunk:
    """Some keys, in groups with a common prefix, and the items of each."""

    groups: Sequence[Sequence[str]]
    items: dict[str, list[PlannedItem]]

    @property
    def first(self) -> str:
        """Its first key, by which load is spread."""
        return self.groups[0][0]

    @property
    def all(self) -> list[PlannedItem]:
        """Its items in key order."""
        return list(chain.from_iterable(self.items.values()))


class ChunkDeleter:
    """Acts on the chunks of one task; its threads share the rate limit and what is known about the store."""

    def __init__(
        self, bucket: VersionedBucket, threads: Executor, rate: float, page: int, *, again: bool
    ) -> None:
        self._backoff, self._threads, self._page, self._again = bucket.backoff, threads, page, again
        self._lister, self._requests = VersionLister(bucket, threads), Requests(bucket)
        self._pace = Pace(rate)
        self._failed_chunks, self._lock = 0, Lock()

    def delete(self, chunk: KeyChunk) -> Results:
        """Act on all items of a chunk; retry those for which the store was busy or that just changed."""
        items = {item.number: item for item in chunk.all}
        results: Results = {}
        if self._failed_chunks >= _HOPELESS:
            hopeless = "all requests before failed, so this was not tried"
            return {n: DeleteResult(item.key, Outcome.FAILED, hopeless) for n, item in items.items()}
        last: dict[int, Answer] = {}
        for _ in self._backoff.attempts():
            left = [item for number, item in items.items() if number not in results]
            # Wait before the check, so that the request follows it at once.
            self._pace.wait(item.key for item in left)
            asked = {number for number, (code, _) in last.items() if code in BUSY}
            answers = self._act(chunk, left, results)
            for number in results.keys() & asked:
                # It was requested before, and the answer was lost.
                results[number] = settle(results[number], again=True)
            last |= answers
            for number, (code, message) in answers.items():
                if code not in _RETRIED:
                    results[number] = settle(result_of(items[number].key, code, message), again=self._again)
            if len(results) == len(items):
                break
        for number in items.keys() - results.keys():
            refused = result_of(items[number].key, *last.get(number, _NOT_REACHED))
            # An item that is `changed` is never tried again, so this outcome needs a listing that shows it.
            results[number] = replace(refused, outcome=Outcome.FAILED)
        self._count_failures(results)
        return results

    def _count_failures(self, results: Results) -> None:
        """Count the chunks in a row that failed."""
        hopeless = all(result.outcome is Outcome.FAILED for result in results.values())
        with self._lock:
            self._failed_chunks = self._failed_chunks + 1 if hopeless else 0

    def _act(self, chunk: KeyChunk, left: Sequence[PlannedItem], results: Results) -> dict[int, Answer]:
        """
        List the keys that are left, add results for what must stay or is gone, and send the other requests.

        Uploads are not listed: the request that aborts one checks that it is still there.
        """
        if left[0].action == Action.ABORT_UPLOAD:
            return self._each(left, self._requests.abort)
        keys = {item.key for item in left}
        groups = [[key for key in group if key in keys] for group in chunk.groups]
        weights = {key: len(chunk.items[key]) for key in keys}
        listed = self._lister.look([group for group in groups if group], weights)
        go = self._check(chunk, left, listed, results)
        by_id = [item for item in go if _is_by_id(item)]
        answers: dict[int, Answer] = {}
        for start in range(0, len(by_id), self._page):
            page = self._requests.delete_page(by_id[start : start + self._page])
            answers |= page
            if all(code in BUSY for code, _ in page.values()):
                # Stop: newer versions of a key must not go before older ones, and the store is busy.
                return answers
        careful = [item for item in go if item.action != Action.EXPIRE and not _is_by_id(item)]
        answers |= self._each(careful, lambda item: self._delete_carefully(item, chunk))
        expired = [item for item in go if item.action == Action.EXPIRE]
        return answers | self._each(expired, self._requests.expire)

    def _check(
        self, chunk: KeyChunk, left: Sequence[PlannedItem], listed: ListedVersions, results: Results
    ) -> list[PlannedItem]:
        """Add results for items that must not be touched; return the others, the oldest of a key first."""
        go: list[PlannedItem] = []
        by_key: dict[str, list[PlannedItem]] = {}
        for item in left:
            by_key.setdefault(item.key, []).append(item)
        for key, items in by_key.items():
            if key in listed.failed:
                results.update(
                    {i.number: DeleteResult(key, Outcome.FAILED, listed.failed[key]) for i in items}
                )
                continue
            found = listed.versions[key]
            verdicts = find_changes(items, chunk.items[key], found)
            results.update({n: settle(result, again=self._again) for n, result in verdicts.items()})
            place = {row.version_id: n for n, row in enumerate(found)}
            free = [item for item in items if item.number not in verdicts]
            go += sorted(free, key=lambda item: -place[item.version])
        return go

    def _delete_carefully(self, item: PlannedItem, chunk: KeyChunk) -> Answer:
        """Delete a version that could be overwritten under its id, directly after listing its key again."""
        try:
            found = self._lister.alone(item.key)
            verdict = find_changes([item], chunk.items[item.key], found).get(item.number)
            if verdict is not None:
                return (CHANGED_CODE, verdict.reason)
            answer = self._requests.delete_version(item)
            is_marker = any(row.version_id == item.version and row.is_delete_marker for row in found)
            if answer[0] or not is_marker:
                return answer
            # SeaweedFS reports the null delete marker as deleted and keeps it.
            left = any(row.version_id == item.version for row in self._lister.alone(item.key))
        except EbbtideError as broken:
            return "RequestTimeout", str(broken)
        return ("NotDeleted", "the store reports it as deleted and still lists it") if left else answer

    def _each(self, items: Iterable[PlannedItem], ask: Callable[[PlannedItem], Answer]) -> dict[int, Answer]:
        """Send a request per item, several at a time."""
        wanted = list(items)
        return dict(zip([item.number for item in wanted], self._threads.map(ask, wanted), strict=True))


def _is_by_id(item: PlannedItem) -> bool:
    """Return True if a bulk request can delete an item: its id is never reused, and XML can hold its key."""
    return item.action != Action.EXPIRE and item.version != NULL and fits_page(item.key)
