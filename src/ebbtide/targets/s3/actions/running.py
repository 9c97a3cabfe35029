"""One run of keys: looked at, judged and acted on, and again while the store is too busy for some."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from itertools import chain
from threading import Lock

from ebbtide.core.decision import Outcome
from ebbtide.core.errors import EbbtideError
from ebbtide.engine.actor import settle
from ebbtide.storage.rate_limit import Pace
from ebbtide.storage.s3_client import BUSY, CHANGED
from ebbtide.storage.s3_objects import result_of
from ebbtide.storage.store import DeleteResult
from ebbtide.targets.s3.actions.connection import Connection
from ebbtide.targets.s3.actions.judging import judge
from ebbtide.targets.s3.actions.looking import Looker, Seen
from ebbtide.targets.s3.actions.planned import NULL, Planned
from ebbtide.targets.s3.actions.requests import CHANGED_CODE, Requests, Said, fits_page
from ebbtide.targets.s3.model import Action

Results = dict[int, DeleteResult]

_RETRIED = BUSY | CHANGED
_NOT_REACHED: Said = ("ServiceUnavailable", "the store failed at others before it")
_HOPELESS = 8
"""After so many runs in a row that came to nothing the store is taken to be down, and the rest not tried."""


@dataclass(frozen=True)
class Run:
    """Some keys, in groups that begin alike, and the items of each."""

    groups: Sequence[Sequence[str]]
    items: dict[str, list[Planned]]

    @property
    def first(self) -> str:
        """Its first key, which stands for all of them where load is spread."""
        return self.groups[0][0]

    @property
    def all(self) -> list[Planned]:
        """Its items in key order."""
        return list(chain.from_iterable(self.items.values()))


class Runner:
    """Does runs for one task; its threads share the pace, and what is learnt about the store."""

    def __init__(
        self, connection: Connection, threads: Executor, rate: float, page: int, *, again: bool
    ) -> None:
        self._backoff, self._threads, self._page, self._again = connection.backoff, threads, page, again
        self._looker, self._requests = Looker(connection, threads), Requests(connection)
        self._pace = Pace(rate)
        self._failed_runs, self._lock = 0, Lock()

    def change_versions(self, run: Run) -> Results:
        """Delete and expire what is as it was planned."""
        return self._patiently(run, lambda left, results: self._look_and_act(run, left, results))

    def abort_uploads(self, run: Run) -> Results:
        """Abort uploads, one by one."""
        return self._patiently(run, lambda left, _: self._each(left, self._requests.abort))

    def _patiently(self, run: Run, act: Callable[[list[Planned], Results], dict[int, Said]]) -> Results:
        """Act on all items, and again on those for which the store was too busy, or that just changed."""
        items = {item.number: item for item in run.all}
        results: Results = {}
        if self._failed_runs >= _HOPELESS:
            hopeless = "the store failed at all that was asked before, so this was not tried"
            return {n: DeleteResult(item.key, Outcome.FAILED, hopeless) for n, item in items.items()}
        last: dict[int, Said] = {}
        for _ in self._backoff.attempts():
            left = [item for number, item in items.items() if number not in results]
            # The waiting is done before the look, so that acting follows it at once.
            self._pace.wait(item.key for item in left)
            asked = {number for number, (code, _) in last.items() if code in BUSY}
            said = act(left, results)
            for number in results.keys() & asked:
                # It was asked for before, and the answer was lost.
                results[number] = settle(results[number], again=True)
            last |= said
            for number, (code, message) in said.items():
                if code not in _RETRIED:
                    results[number] = settle(result_of(items[number].key, code, message), again=self._again)
            if len(results) == len(items):
                break
        for number in items.keys() - results.keys():
            refused = result_of(items[number].key, *last.get(number, _NOT_REACHED))
            # What is `changed` is never tried again, so it is said only of what was seen to be.
            results[number] = replace(refused, outcome=Outcome.FAILED)
        self._note(results)
        return results

    def _note(self, results: Results) -> None:
        """Count the runs in a row that came to nothing."""
        hopeless = all(result.outcome is Outcome.FAILED for result in results.values())
        with self._lock:
            self._failed_runs = self._failed_runs + 1 if hopeless else 0

    def _look_and_act(self, run: Run, left: Sequence[Planned], results: Results) -> dict[int, Said]:
        """Look at the keys that are left, note what must stay or is gone, and ask for the rest."""
        keys = {item.key for item in left}
        groups = [[key for key in group if key in keys] for group in run.groups]
        weights = {key: len(run.items[key]) for key in keys}
        seen = self._looker.look([group for group in groups if group], weights)
        go = self._judge(run, left, seen, results)
        by_id = [item for item in go if _is_by_id(item)]
        said: dict[int, Said] = {}
        for start in range(0, len(by_id), self._page):
            answers = self._requests.delete_page(by_id[start : start + self._page])
            said |= answers
            if all(code in BUSY for code, _ in answers.values()):
                # Newer versions of a key do not go before older ones, and a store in trouble is left alone.
                return said
        careful = [item for item in go if item.action != Action.EXPIRE and not _is_by_id(item)]
        said |= self._each(careful, lambda item: self._delete_carefully(item, run))
        expired = [item for item in go if item.action == Action.EXPIRE]
        return said | self._each(expired, self._requests.expire)

    def _judge(self, run: Run, left: Sequence[Planned], seen: Seen, results: Results) -> list[Planned]:
        """Note the results of what must not be touched, and give the rest, the oldest of a key first."""
        go: list[Planned] = []
        by_key: dict[str, list[Planned]] = {}
        for item in left:
            by_key.setdefault(item.key, []).append(item)
        for key, items in by_key.items():
            if key in seen.failed:
                results.update({i.number: DeleteResult(key, Outcome.FAILED, seen.failed[key]) for i in items})
                continue
            found = seen.versions[key]
            verdicts = judge(items, run.items[key], found)
            results.update({n: settle(result, again=self._again) for n, result in verdicts.items()})
            place = {row.version_id: n for n, row in enumerate(found)}
            free = [item for item in items if item.number not in verdicts]
            go += sorted(free, key=lambda item: -place[item.version])
        return go

    def _delete_carefully(self, item: Planned, run: Run) -> Said:
        """Delete a version that can be replaced, directly after one more look at its key alone."""
        try:
            found = self._looker.alone(item.key)
            verdict = judge([item], run.items[item.key], found).get(item.number)
            if verdict is not None:
                return (CHANGED_CODE, verdict.reason)
            said = self._requests.delete_version(item)
            is_marker = any(row.version_id == item.version and row.is_delete_marker for row in found)
            if said[0] or not is_marker:
                return said
            # SeaweedFS says of the null delete marker that it is deleted, and leaves it where it is.
            left = any(row.version_id == item.version for row in self._looker.alone(item.key))
        except EbbtideError as broken:
            return "RequestTimeout", str(broken)
        return ("NotDeleted", "the store says that it is deleted and lists it still") if left else said

    def _each(self, items: Iterable[Planned], ask: Callable[[Planned], Said]) -> dict[int, Said]:
        """Ask for items one by one, several at once."""
        wanted = list(items)
        return dict(zip([item.number for item in wanted], self._threads.map(ask, wanted), strict=True))


def _is_by_id(item: Planned) -> bool:
    """Tell whether an item can be deleted in a page: its id names it for ever, and its key fits in."""
    return item.action != Action.EXPIRE and item.version != NULL and fits_page(item.key)
