"""
Restoring: items of the recycle bin go back to their places, as a run of its own in the ledger.

What is to be moved is written down page by page before it is. Who is killed leaves at most one page of which
it is unknown how far it got: it is finished by the next restore or plan of the target, before anything else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ebbtide.core.decision import RESTORE, Outcome
from ebbtide.core.errors import EbbtideError, NotFound, SafetyStop, StalePlan
from ebbtide.core.instant import Clock, days_after
from ebbtide.core.manifest import Manifest, Tally
from ebbtide.core.recycling import Label
from ebbtide.engine.bins import Bin, BinItem
from ebbtide.engine.durability import make_durable
from ebbtide.engine.layout import OnStep, RunFolder, no_step, run_folder
from ebbtide.engine.newest_run import begin_run, check_newest_run
from ebbtide.engine.removed_table import RemovedTable, fold_if_possible
from ebbtide.engine.tables.digest import hash_addresses
from ebbtide.engine.tables.row_counts import record_counts
from ebbtide.state.runs import Ledger, RunState
from ebbtide.storage.store import DeleteResult, MoveRequest

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
        ("until", pa.timestamp("us", tz="UTC")),
    ]
)

BeforePage = Callable[[Sequence[BinItem], int], None]
"""Called with a page and the number of the run before anything of it is moved."""


@dataclass(frozen=True)
class Returned:
    """What became of an item of the bin, and which item of the target it is now."""

    result: DeleteResult
    """As of `Store.move`."""
    address: str
    version: str | None = None
    """The version that is in place now; None stands for every version."""


MovePage = Callable[[Sequence[BinItem]], Sequence[Returned]]
"""Moves a page's items to where they were: an answer for each, in order."""


def nothing_before(page: Sequence[BinItem], run_id: int) -> None:
    """Prepare nothing."""


@dataclass(frozen=True)
class RestoreChoice:
    """What is to come back: all of a folder of the bin, or single items of one or of all."""

    folder: str | None = None
    items: tuple[str, ...] = ()
    """Keys or addresses; none means everything in the folder."""
    days: int | None = None
    """For how many days no run takes the items again; None is as long as the bin keeps them."""

    def asked(self) -> str:
        """Say what was asked for, for the ledger; an interrupted restore is finished by it."""
        asked = {"folder": self.folder, "items": len(self.items) or "all", "days": self.days}
        return json.dumps({"restore": asked})


@dataclass(frozen=True)
class Restored:
    """What a restore did, by outcome, and the first items that are not back."""

    run_id: int
    outcomes: dict[str, Tally]
    troubles: tuple[str, ...]
    held_until: datetime | None = None
    """Until when no run takes any of them again; None if nothing came back or nothing is held."""
    gone: int = 0
    """How many items were asked for that a run had set aside, and the bin does not have any more."""

    @property
    def back(self) -> Tally:
        """What is in its place again."""
        return self.outcomes.get(Outcome.RESTORED, Tally(str(Outcome.RESTORED), 0, 0))

    @property
    def left(self) -> int:
        """How many items are not."""
        back = Outcome.RESTORED
        return self.gone + sum(tally.objects for name, tally in self.outcomes.items() if name != back)

    def with_gone(self, reasons: Sequence[str]) -> Restored:
        """Add items that the bin does not have any more, each with what became of it."""
        return replace(self, troubles=(*self.troubles, *reasons)[:MOST_NAMED], gone=len(reasons))


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
    _days: dict[str, int] = field(default_factory=dict)
    """For how many days each folder of the bin keeps its items."""

    def restore(self, target: str, asked: str, items: Iterable[BinItem]) -> Restored:
        """Bring items back, none over another content; `asked` is as of `RestoreChoice.asked`."""
        self.finish_interrupted()
        run_id = begin_run(self.root, self.ledger, target, self.bin.target_uid, RESTORE, asked, self.clock())
        folder = run_folder(self.root, run_id)
        folder.wanted.mkdir(parents=True)
        self.on_step("restore begun")
        for state in _WAY:
            self.ledger.move(run_id, state)
        done = Restored(run_id, {}, ())
        try:
            for number, page in enumerate(_paged(items)):
                _want(folder, number, page)
                self.on_step(f"page {number} wanted")
                done = _added(done, page, self._move(folder, number, page, days_asked(asked)))
        except EbbtideError as broken:
            self.ledger.move(run_id, RunState.FAILED, error=broken.what)
            raise
        self._end(run_id, done.outcomes)
        return done

    def finish_interrupted(self) -> None:
        """Finish the page that a killed restore may have left half-way, and note that it was interrupted."""
        check_newest_run(self.root, self.ledger)
        for run in self.ledger.runs_in(self.bin.target_uid, *_WAY):
            if run.collector != RESTORE:
                continue
            folder = run_folder(self.root, run.run_id)
            done = {wave for wave, tries in self.ledger.wave_attempts(run.run_id).items() if tries[-1][1]}
            for number, page in _pages(folder):
                if number not in done:
                    self._move(folder, number, page, days_asked(self.ledger.policy(run.run_id)))
            for state in _WAY[_WAY.index(run.state) + 1 :]:
                self.ledger.move(run.run_id, state)
            error = "it was interrupted; what it had begun is finished, restore the rest again"
            self.ledger.move(run.run_id, RunState.FAILED, error=error)

    def _move(
        self, folder: RunFolder, number: int, page: Sequence[BinItem], days: int | None
    ) -> list[_Outcome]:
        """Move one page's items and make durable what became of each."""
        self.before(page, folder.run_id)
        attempt = self.ledger.start_wave(folder.run_id, number)
        moved = [_settled(one) for one in self.moves(page)]
        self.on_step(f"page {number} moved")
        now = self.clock()
        done = [
            _Outcome(one, self._held_until(item, days, now) if _is_back(one) else None)
            for item, one in zip(page, moved, strict=True)
        ]
        place = folder.outcomes(number, attempt)
        place.mkdir(parents=True, exist_ok=True)
        rows = _outcomes(page, done, now, number, attempt)
        pq.write_table(rows, place / "part-0.parquet", write_page_checksum=True)
        record_counts(place, len(page))
        make_durable(place)
        self.ledger.finish_wave(folder.run_id, number, attempt)
        self.on_step(f"page {number} finished")
        return done

    def _held_until(self, item: BinItem, days: int | None, now: datetime) -> datetime | None:
        """Return until when a restored item is held: as asked, or for as long as its folder keeps items."""
        if days is None:
            days = self._days_of(item.folder)
        return days_after(now, days) if days else None

    def _days_of(self, folder: str) -> int:
        if folder not in self._days:
            try:
                self._days[folder] = self.bin.label(folder).days
            except EbbtideError:
                self._days[folder] = self.ledger.recycling_days(self.bin.target_uid) or 0
        return self._days[folder]

    def _end(self, run_id: int, tallies: dict[str, Tally]) -> None:
        left = sum(tally.objects for name, tally in tallies.items() if name != Outcome.RESTORED)
        if left:
            self.ledger.move(run_id, RunState.FAILED, error=f"{left} items could not be restored")
        else:
            self.ledger.move(run_id, RunState.SUCCEEDED)
        self.on_step("restore ended")
        fold_if_possible(self.root, self.ledger, self.bin.target_uid, self.clock())


@dataclass(frozen=True)
class _Outcome:
    """What became of an item, and until when it is held if it is back."""

    returned: Returned
    until: datetime | None

    @property
    def result(self) -> DeleteResult:
        """What became of it."""
        return self.returned.result


def days_asked(asked: str) -> int | None:
    """Read for how many days the items of a restore are held; an earlier version did not ask."""
    try:
        days = json.loads(asked)["restore"].get("days")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return days if isinstance(days, int) else None


def to_addresses(contents: Bin, page: Sequence[BinItem]) -> Sequence[Returned]:
    """Move items to the addresses that they had, by the store's own moves."""
    requests = [MoveRequest(contents.place_of(one.folder, one.address), one.address) for one in page]
    moved = contents.store.move(requests)
    return [Returned(result, item.address) for item, result in zip(page, moved, strict=True)]


def fate_outside_bin(table: RemovedTable, address: str) -> str | None:
    """Say why the bin does not have an item that a run took away; None if no run did."""
    for row in table.find(address):
        if row["outcome"] == Outcome.RESTORED:
            return f"already restored by run {row['run_id']}"
        if row["outcome"] == Outcome.RECYCLED:
            return f"gone from the bin, where run {row['run_id']} had set it aside"
        return f"not in the bin: run {row['run_id']} left it {row['outcome']}"
    return None


def chosen_labels(contents: Bin, choice: RestoreChoice) -> list[Label]:
    """Give the folders to look into, the newest run first; a damaged one that nobody named is no matter."""
    if choice.folder is not None:
        label = contents.label(choice.folder)
        if label.target_uid != contents.target_uid:
            raise NotFound(f"{choice.folder!r} is in the bin of another target: {label.target}")
        return [label]
    return contents.labels(lambda _broken: None)[::-1]


def restored_since(ledger: Ledger, target_uid: str, run_id: int) -> int | None:
    """Return the number of a restore on the target that began after a run did."""
    return ledger.later_run(target_uid, run_id, RESTORE)


def check_not_restored_since(ledger: Ledger, manifest: Manifest) -> None:
    """
    Stop if something was restored after the plan was made.

    It was for a reason that the plan does not know of. And what happened to an item last is told by the
    numbers of the runs, so an older one must not act again.
    """
    later = restored_since(ledger, manifest.target_uid, manifest.run_id)
    if later is not None:
        raise StalePlan(
            f"items of {manifest.target} were restored after this plan was made (run {later})",
            why="it may take again what was just brought back",
            fix="make a new plan",
        )


def check_none_interrupted(ledger: Ledger, target_uid: str, whole: int | None) -> None:
    """
    Stop if an apply was interrupted: what it did since its last record would never be recorded.

    To restore all of that very run (`whole`) is as good as to finish it.
    """
    accepted = ledger.acceptance()
    for run in ledger.interrupted_runs(target_uid):
        if run.run_id < accepted:
            continue
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


def _settled(one: Returned) -> Returned:
    if one.result.outcome is not Outcome.DELETED:
        return one
    return replace(one, result=replace(one.result, outcome=Outcome.RESTORED))


def _is_back(one: Returned) -> bool:
    return one.result.outcome is Outcome.RESTORED


def _added(done: Restored, page: Sequence[BinItem], outcomes: Sequence[_Outcome]) -> Restored:
    """Count a page."""
    tallies, troubles, held = dict(done.outcomes), list(done.troubles), done.held_until
    for item, one in zip(page, outcomes, strict=True):
        label = str(one.result.outcome)
        known = tallies.get(label, Tally(label, 0, 0))
        tallies[label] = Tally(label, known.objects + 1, known.bytes + item.size)
        if one.until is not None:
            held = min(held or one.until, one.until)
        if not _is_back(one.returned) and len(troubles) < MOST_NAMED:
            troubles.append(f"{item.address}: {one.result.outcome} {one.result.reason}".rstrip())
    return replace(done, outcomes=tallies, troubles=tuple(troubles), held_until=held)


def _outcomes(
    page: Sequence[BinItem], done: Sequence[_Outcome], now: datetime, number: int, attempt: int
) -> pa.Table:
    rows = len(page)
    addresses = [one.returned.address for one in done]
    columns = {
        "hash": pa.array(hash_addresses(addresses), pa.int64()),
        "address": pa.array(addresses, pa.string()),
        "version": pa.array([one.returned.version for one in done], pa.string()),
        "outcome": pa.array([str(one.result.outcome) for one in done], pa.string()),
        "reason": pa.array([one.result.reason for one in done], pa.string()),
        "rules": pa.array([[f"run {one.run}"] for one in page], pa.list_(pa.string())),
        "size": pa.array([one.size for one in page], pa.int64()),
        "at": pa.array([now] * rows, pa.timestamp("us", tz="UTC")),
        "wave": pa.array([number] * rows, pa.int32()),
        "attempt": pa.array([attempt] * rows, pa.int32()),
        "until": pa.array([one.until for one in done], pa.timestamp("us", tz="UTC")),
    }
    return pa.table(columns, schema=_OUTCOMES)
