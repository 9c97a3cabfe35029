"""
Restoring: items of the recycle bin go back to their places, as a run of its own in the ledger.

What is to be moved is written down page by page before it is. Who is killed leaves at most one page of which
it is unknown how far it got: it is finished by the next restore or plan of the target, before anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ebbtide.engine.bins import Bin, BinItem
from ebbtide.engine.freezing import OnStep, no_step
from ebbtide.engine.layout import RunFolder, make_durable, run_folder
from ebbtide.errors import EbbtideError, NotFound, SafetyStop, StalePlan
from ebbtide.ledger.runs import Ledger, Run, RunState
from ebbtide.plan.decision import RESTORE, Outcome
from ebbtide.plan.manifest import Manifest, Tally
from ebbtide.plan.recycling import Label
from ebbtide.rules.instant import Clock
from ebbtide.store.base import DeleteResult, MoveRequest
from ebbtide.tables.digest import hash_addresses

PAGE = 1_000
MOST_NAMED = 20
_WAY = (RunState.PLANNED, RunState.APPROVED, RunState.APPLYING)
_WANTED = pa.schema(
    [("folder", pa.string()), ("run", pa.int64()), ("address", pa.string()), ("size", pa.int64())]
)
_OUTCOMES = pa.schema(
    [
        ("hash", pa.int64()),
        ("address", pa.string()),
        ("version", pa.string()),
        ("outcome", pa.string()),
        ("reason", pa.string()),
        ("rules", pa.list_(pa.string())),
        ("size", pa.int64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("wave", pa.int32()),
        ("attempt", pa.int32()),
    ]
)

BeforePage = Callable[[Sequence[BinItem], int], None]
"""Called with a page and the number of the run before anything of it is moved."""


MovePage = Callable[[Sequence[BinItem]], Sequence[DeleteResult]]
"""Moves a page's items to where they were: a result for each, in order, as of `Store.move`."""


def nothing_before(page: Sequence[BinItem], run_id: int) -> None:
    """Prepare nothing."""


@dataclass(frozen=True)
class RestoreChoice:
    """What is to come back: all of a folder of the bin, or single items of one or of all."""

    folder: str | None = None
    items: tuple[str, ...] = ()
    """Keys or addresses; none means everything in the folder."""


@dataclass(frozen=True)
class Restored:
    """What a restore did, by outcome, and the first items that are not back."""

    run_id: int
    outcomes: dict[str, Tally]
    troubles: tuple[str, ...]

    @property
    def back(self) -> Tally:
        """What is in its place again."""
        return self.outcomes.get(Outcome.RESTORED, Tally(str(Outcome.RESTORED), 0, 0))

    @property
    def left(self) -> int:
        """How many items are not."""
        return sum(tally.objects for name, tally in self.outcomes.items() if name != Outcome.RESTORED)


@dataclass(frozen=True)
class Restorer:
    """Brings items of one target's bin back; the caller holds the target's lock."""

    root: Path
    ledger: Ledger
    bin: Bin
    clock: Clock
    moves: MovePage
    """Moves a page's items back, and says of each what became of it."""
    before: BeforePage = nothing_before
    on_step: OnStep = no_step

    def restore(self, target: str, asked: str, items: Iterable[BinItem]) -> Restored:
        """Bring items back, none over another content; `asked` says what was asked for, for the ledger."""
        self.finish_interrupted()
        run_id = self.ledger.begin(target, self.bin.target_uid, RESTORE, asked, self.clock())
        folder = run_folder(self.root, run_id)
        folder.wanted.mkdir(parents=True)
        self.on_step("restore begun")
        for state in _WAY:
            self.ledger.move(run_id, state)
        tallies: dict[str, Tally] = {}
        troubles: list[str] = []
        try:
            for number, page in enumerate(_paged(items)):
                _want(folder, number, page)
                self.on_step(f"page {number} wanted")
                for item, result in zip(page, self._move(folder, number, page), strict=True):
                    _count(tallies, item, result)
                    if result.outcome is not Outcome.RESTORED and len(troubles) < MOST_NAMED:
                        troubles.append(f"{item.address}: {result.outcome} {result.reason}".rstrip())
        except EbbtideError as broken:
            self.ledger.move(run_id, RunState.FAILED, error=broken.what)
            raise
        self._end(run_id, tallies)
        return Restored(run_id, tallies, tuple(troubles))

    def finish_interrupted(self) -> None:
        """Finish the page that a killed restore may have left half-way, and note that it was interrupted."""
        for run in self.ledger.runs(self.bin.target_uid):
            if run.collector != RESTORE or run.state not in _WAY:
                continue
            folder = run_folder(self.root, run.run_id)
            done = {wave for wave, tries in self.ledger.wave_attempts(run.run_id).items() if tries[-1][1]}
            for number, page in _pages(folder):
                if number not in done:
                    list(self._move(folder, number, page))
            for state in _WAY[_WAY.index(run.state) + 1 :]:
                self.ledger.move(run.run_id, state)
            error = "it was interrupted; what it had begun is finished, restore the rest again"
            self.ledger.move(run.run_id, RunState.FAILED, error=error)

    def _move(self, folder: RunFolder, number: int, page: Sequence[BinItem]) -> list[DeleteResult]:
        """Move one page's items and make durable what became of each."""
        self.before(page, folder.run_id)
        attempt = self.ledger.start_wave(folder.run_id, number)
        results = [_settled(result) for result in self.moves(page)]
        self.on_step(f"page {number} moved")
        place = folder.outcomes(number, attempt)
        place.mkdir(parents=True, exist_ok=True)
        pq.write_table(_outcomes(page, results, self.clock(), number, attempt), place / "part-0.parquet")
        make_durable(place)
        self.ledger.finish_wave(folder.run_id, number, attempt)
        self.on_step(f"page {number} finished")
        return results

    def _end(self, run_id: int, tallies: dict[str, Tally]) -> None:
        left = sum(tally.objects for name, tally in tallies.items() if name != Outcome.RESTORED)
        if left:
            self.ledger.move(run_id, RunState.FAILED, error=f"{left} items could not be restored")
        else:
            self.ledger.move(run_id, RunState.SUCCEEDED)
        self.on_step("restore ended")


def to_addresses(contents: Bin, page: Sequence[BinItem]) -> Sequence[DeleteResult]:
    """Move items to the addresses that they had, by the store's own moves."""
    requests = [MoveRequest(contents.place_of(one.folder, one.address), one.address) for one in page]
    return contents.store.move(requests)


def chosen_labels(contents: Bin, choice: RestoreChoice) -> list[Label]:
    """Give the folders to look into, the newest run first; a damaged one that nobody named is no matter."""
    if choice.folder is not None:
        label = contents.label(choice.folder)
        if label.target_uid != contents.target_uid:
            raise NotFound(f"{choice.folder!r} is in the bin of another target: {label.target}")
        return [label]
    return contents.labels(lambda _broken: None)[::-1]


def restored_since(ledger: Ledger, target_uid: str, run_id: int) -> Run | None:
    """Find a restore on the target that began after a run did."""
    later = [run for run in ledger.runs(target_uid) if run.collector == RESTORE and run.run_id > run_id]
    return next((run for run in later if run.state is not RunState.ABANDONED), None)


def check_not_restored_since(ledger: Ledger, manifest: Manifest) -> None:
    """
    Stop if something was restored after the plan was made.

    It was for a reason that the plan does not know of. And what happened to an item last is told by the
    numbers of the runs, so an older one must not act again.
    """
    later = restored_since(ledger, manifest.target_uid, manifest.run_id)
    if later is not None:
        raise StalePlan(
            f"items of {manifest.target} were restored after this plan was made (run {later.run_id})",
            why="it may take again what was just brought back",
            fix="make a new plan",
        )


def check_none_interrupted(ledger: Ledger, target_uid: str, whole: int | None) -> None:
    """
    Stop if an apply was interrupted: what it did since its last record would never be recorded.

    To restore all of that very run (`whole`) is as good as to finish it.
    """
    for run in ledger.runs(target_uid):
        attempts = ledger.wave_attempts(run.run_id).values()
        half = run.collector != RESTORE and any(not tries[-1][1] for tries in attempts)
        if half and run.run_id != whole and restored_since(ledger, target_uid, run.run_id) is None:
            raise SafetyStop(
                f"run {run.run_id} on {run.target} was interrupted and is not finished",
                why="after a restore no earlier run may act, and what it has done is not all recorded",
                fix=f"finish it with 'ebb apply {run.run_id}', or bring all of it back with"
                f" 'ebb restore {run.run_id}'",
            )


def _paged(items: Iterable[BinItem]) -> Iterator[list[BinItem]]:
    rest = iter(items)
    while page := list(islice(rest, PAGE)):
        yield page


def _want(folder: RunFolder, number: int, page: Sequence[BinItem]) -> None:
    """Write down what is to be moved; it is there whole or not at all."""
    file = folder.wanted / f"page-{number:05d}.parquet"
    fresh = file.with_suffix(".tmp")
    pq.write_table(pa.Table.from_pylist([asdict(one) for one in page], _WANTED), fresh)
    make_durable(folder.wanted)
    fresh.replace(file)
    make_durable(folder.wanted)


def _pages(folder: RunFolder) -> Iterator[tuple[int, list[BinItem]]]:
    for file in sorted(folder.wanted.glob("page-*.parquet")):
        rows = pq.read_table(file, schema=_WANTED).to_pylist()
        yield int(file.stem.removeprefix("page-")), [BinItem(**row) for row in rows]


def _settled(moved: DeleteResult) -> DeleteResult:
    return replace(moved, outcome=Outcome.RESTORED) if moved.outcome is Outcome.DELETED else moved


def _count(tallies: dict[str, Tally], item: BinItem, result: DeleteResult) -> None:
    label = str(result.outcome)
    known = tallies.get(label, Tally(label, 0, 0))
    tallies[label] = Tally(label, known.objects + 1, known.bytes + item.size)


def _outcomes(
    page: Sequence[BinItem], results: Sequence[DeleteResult], now: datetime, number: int, attempt: int
) -> pa.Table:
    rows = len(page)
    columns = {
        "hash": pa.array(hash_addresses(one.address for one in page), pa.int64()),
        "address": pa.array([one.address for one in page], pa.string()),
        "version": pa.nulls(rows, pa.string()),
        "outcome": pa.array([str(result.outcome) for result in results], pa.string()),
        "reason": pa.array([result.reason for result in results], pa.string()),
        "rules": pa.array([[f"run {one.run}"] for one in page], pa.list_(pa.string())),
        "size": pa.array([one.size for one in page], pa.int64()),
        "at": pa.array([now] * rows, pa.timestamp("us", tz="UTC")),
        "wave": pa.array([number] * rows, pa.int32()),
        "attempt": pa.array([attempt] * rows, pa.int32()),
    }
    return pa.table(columns, schema=_OUTCOMES)
