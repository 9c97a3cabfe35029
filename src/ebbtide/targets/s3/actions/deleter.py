"""Doing a wave of a bucket's plan on an executor: look, judge and act, run by run, with an outcome a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Any

from ebbtide.core.decision import Outcome
from ebbtide.core.errors import EbbtideError
from ebbtide.engine.actor import Attempt
from ebbtide.storage.rate_limit import in_turns, prefix_of
from ebbtide.storage.s3_bucket import open_bucket
from ebbtide.storage.store import DeleteResult, StoreSpec, key_problem
from ebbtide.targets.s3.actions.connection import connection_to
from ebbtide.targets.s3.actions.looking import WIDEST, groups_of
from ebbtide.targets.s3.actions.planned import NULL, Planned, planned_items
from ebbtide.targets.s3.actions.running import Results, Run, Runner
from ebbtide.targets.s3.bin_place import is_in_bin
from ebbtide.targets.s3.model import Action, Versioning

_RUNS_AT_ONCE = 4
_REQUESTS_AT_ONCE = 8
_VERSION_ACTIONS = frozenset({Action.DELETE_VERSION, Action.REMOVE_DELETE_MARKER, Action.EXPIRE})


@dataclass(frozen=True)
class BucketDeleter:
    """Deletes versions, expires objects, removes delete markers and aborts uploads of one bucket."""

    spec: StoreSpec
    attempt: Attempt
    versioning: Versioning
    """The bucket's versioning when the plan was made: it decides what expiring an object does."""

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Do what the rows of one task ask for, which are all the rows of their keys."""
        gathered = list(batches)
        items = list(planned_items(gathered))
        results = self._told(items, self._do(items)) if items else {}
        first = 0
        for batch in gathered:
            numbers = range(first, first + batch.num_rows)
            first += batch.num_rows
            yield self.attempt.outcomes(batch, [results[number] for number in numbers])

    def _do(self, items: Sequence[Planned]) -> Results:
        again = self.attempt.is_repeated()
        refused = {item.number: why for item in items if (why := _refuse(item, again=again)) is not None}
        open_items = [item for item in items if item.number not in refused]
        if not open_items:
            return refused
        try:
            blocked = self._check_versioning(open_items)
            connection = connection_to(self.spec)
        except EbbtideError as broken:
            return refused | {
                item.number: DeleteResult(item.key, Outcome.FAILED, str(broken)) for item in open_items
            }
        left = [item for item in open_items if item.number not in blocked]
        options = self.attempt.options
        rate = options.rate_for(self.spec, self.attempt.tasks)
        with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as requests, ThreadPoolExecutor(_RUNS_AT_ONCE) as runs:
            runner = Runner(connection, requests, rate, options.page, again=again)
            done = list(runs.map(lambda one: one[0](one[1]), self._by_action(runner, left)))
        return refused | blocked | {n: result for part in done for n, result in part.items()}

    def _told(self, items: Sequence[Planned], results: Results) -> Results:
        """Report `hidden` for objects that only got a delete marker."""
        hidden = {item.number for item in items if item.action == Action.EXPIRE and self._only_hides(item)}
        return {
            number: replace(result, outcome=Outcome.HIDDEN)
            if number in hidden and result.outcome is Outcome.DELETED
            else result
            for number, result in results.items()
        }

    def _only_hides(self, item: Planned) -> bool:
        """Return True if a delete only adds a marker; a null marker replaces the null version for good."""
        if self.versioning is Versioning.SUSPENDED:
            return item.version != NULL
        return self.versioning is Versioning.ENABLED

    def _by_action(
        self, runner: Runner, items: Sequence[Planned]
    ) -> Iterator[tuple[Callable[[Run], Results], Run]]:
        """Deal items into runs, each with what does it; who moves objects has a deleter of its own."""
        page = self.attempt.options.page
        versions = runs_of([item for item in items if item.action in _VERSION_ACTIONS], page)
        uploads = runs_of([item for item in items if item.action == Action.ABORT_UPLOAD], page)
        for run in in_turns(versions, lambda run: prefix_of(run.first)):
            yield runner.change_versions, run
        for run in in_turns(uploads, lambda run: prefix_of(run.first)):
            yield runner.abort_uploads, run

    def _check_versioning(self, items: Sequence[Planned]) -> Results:
        """Refuse to expire if versioning was switched: it might delete what was to get a delete marker."""
        expired = [item for item in items if item.action == Action.EXPIRE]
        if not expired:
            return {}
        now = open_bucket(self.spec).versioning()
        if now == self.versioning:
            return {}
        why = f"the bucket's versioning is {now} now, and the plan was made for {self.versioning}"
        return {item.number: DeleteResult(item.key, Outcome.CHANGED, why) for item in expired}


def _refuse(item: Planned, *, again: bool) -> DeleteResult | None:
    """Give the result of an item that never reaches the store."""
    if item.action not in _VERSION_ACTIONS | {Action.ABORT_UPLOAD}:
        return DeleteResult(item.key, Outcome.DENIED, "not an action of this deleter")
    if is_in_bin(item.key) and item.action != Action.ABORT_UPLOAD:
        # Planning leaves the bin out; a plan that has such an item all the same must not reach it.
        return DeleteResult(item.key, Outcome.DENIED, "it lies in the recycle bin")
    if item.kept is not None and (not again or item.action == Action.ABORT_UPLOAD):
        # After an interrupted attempt it is looked at: that one may have deleted it.
        return DeleteResult(item.key, Outcome.CHANGED, item.kept)
    problem = key_problem(item.key)
    return DeleteResult(item.key, Outcome.FAILED, problem) if problem else None


def runs_of(items: Sequence[Planned], page: int) -> list[Run]:
    """Deal items into runs of about a page, with whole keys that begin alike together."""
    by_key = {
        key: list(found) for key, found in groupby(sorted(items, key=_key_first), key=attrgetter("key"))
    }
    weights = {key: len(found) for key, found in by_key.items()}
    runs: list[Run] = []
    groups: list[list[str]] = []
    weight = 0
    for group in groups_of(list(by_key), weights, min(WIDEST, 2 * page)):
        more = sum(weights[key] for key in group)
        if groups and weight + more > page:
            runs.append(_run(groups, by_key))
            groups, weight = [], 0
        groups.append(group)
        weight += more
    return [*runs, _run(groups, by_key)] if groups else runs


def _run(groups: list[list[str]], by_key: dict[str, list[Planned]]) -> Run:
    return Run(groups, {key: by_key[key] for group in groups for key in group})


def _key_first(item: Planned) -> tuple[str, int]:
    return item.key, item.number
