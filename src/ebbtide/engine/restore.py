"""
Restore: move items of a recycle bin back to their places.

Where plans depend on removed items, a restore is a run in the ledger: each page of items is recorded before
it is moved. A killed restore leaves at most one unfinished page, which the next restore or plan of the target
finishes before anything else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ebbtide.core.decision import RESTORE, Outcome
from ebbtide.core.display import Explanation
from ebbtide.core.errors import EbbtideError, NotFound, SafetyStop, StalePlan, StoreError
from ebbtide.core.format import plural
from ebbtide.core.instant import Clock, days_after
from ebbtide.core.manifest import Manifest, Tally
from ebbtide.engine import log
from ebbtide.engine.bin import BinItem, RecycleBin, RestoreChoice, Returned
from ebbtide.engine.files import make_durable
from ebbtide.engine.newest_run import begin_run, check_newest_run
from ebbtide.engine.removed_table import fold_if_possible
from ebbtide.engine.run_folder import OnStep, RunFolder, no_step, run_folder
from ebbtide.engine.tables.digest import hash_addresses
from ebbtide.engine.tables.row_counts import record_counts
from ebbtide.state.locks import target_lock
from ebbtide.state.runs import Ledger, RunState
from ebbtide.storage.store import DeleteResult, check_key

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
        ("batch", pa.int32()),
        ("attempt", pa.int32()),
        ("until", pa.timestamp("us", tz="UTC")),
    ]
)


@dataclass(frozen=True)
class Restored:
    """What a restore did, by outcome, and the first items that are not back."""

    run_id: int | None
    """The number of the restore in the ledger; None where the target records it."""
    outcomes: dict[str, Tally]
    troubles: tuple[str, ...]
    """Why items are not back, or what failed although they are."""
    held_until: datetime | None = None
    """Until when all restored items are held; None if nothing was restored or nothing is held."""
    gone: int = 0
    """How many of the chosen items are no longer in the bin."""
    notes: tuple[Explanation, ...] = ()
    """What the target reports about items."""

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
        """Add items that are no longer in the bin, each with the reason."""
        return replace(self, troubles=(*self.troubles, *reasons)[:MOST_NAMED], gone=len(reasons))


def restore(bin_: RecycleBin, choice: RestoreChoice, on_step: OnStep = no_step) -> Restored:
    """Restore the chosen items, never over other content, and remove labels of empty folders."""
    bin_.check_restore(choice)
    context, owner = bin_.context, bin_.identity
    with (
        target_lock(context.root, owner.uid, f"ebb restore {owner.url}"),
        log.bound(target=owner.url, collector=RESTORE),
    ):
        work = Restorer(bin_, log.steps(on_step))
        # This comes first, so that items which it has restored are not looked for in the bin.
        work.finish_interrupted()
        wanted = bin_.wanted(choice)
        if bin_.records_restores:
            check_none_interrupted(context.ledger, owner.uid, wanted.whole.run_id if wanted.whole else None)
        done = work.restore(choice, wanted.items).with_gone(wanted.gone)
        bin_.after_restore(choice, wanted, done.back.objects)
        outcomes = {name: tally.objects for name, tally in done.outcomes.items()}
        log.write("restore ends", run=done.run_id, outcomes=outcomes, gone=done.gone)
    return done


def copy_out(bin_: RecycleBin, choice: RestoreChoice, folder: Path) -> int:
    """Copy items to a folder of this machine, each under its address; nothing there is overwritten."""
    wanted = bin_.wanted(choice)
    if wanted.gone:
        raise NotFound(
            wanted.gone[0], why="nothing was copied", fix="see 'ebb recycle ls' for what the bin has"
        )
    copied = 0
    for item in wanted.items:
        check_key(item.address)
        # A key that begins with a slash must not lead out of the folder.
        place = folder / item.address.lstrip("/")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("xb") as file:
                file.write(bin_.read(item))
        except OSError as broken:
            raise StoreError(
                f"{place} cannot be written: {broken.strerror}",
                why=f"{plural(copied, 'object')} were copied before; all are in the bin still",
                fix="choose another folder",
            ) from None
        copied += 1
    return copied


@dataclass(frozen=True)
class Restorer:
    """Restores items of one target's bin; the caller holds the target's lock."""

    bin: RecycleBin
    on_step: OnStep = no_step
    _days: dict[str, int] = field(default_factory=dict)
    """For how many days each folder of the bin keeps its items."""

    @property
    def root(self) -> Path:
        """The state root."""
        return self.bin.context.root

    @property
    def ledger(self) -> Ledger:
        """The ledger."""
        return self.bin.context.ledger

    @property
    def clock(self) -> Clock:
        """The clock of what is recorded."""
        return self.bin.context.clock

    def restore(self, choice: RestoreChoice, items: Iterable[BinItem]) -> Restored:
        """Restore items, never over other content, as a run in the ledger if the bin records restores."""
        if not self.bin.records_restores:
            return self._unrecorded(choice, items)
        self.finish_interrupted()
        identity, asked = self.bin.identity, choice.asked()
        run_id = begin_run(self.root, self.ledger, identity.url, identity.uid, RESTORE, asked, self.clock())
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
                done = _added(done, page, self._move(folder, number, page, choice))
        except EbbtideError as broken:
            self.ledger.move(run_id, RunState.FAILED, error=broken.what)
            raise
        self._end(run_id, done.outcomes)
        return done

    def _unrecorded(self, choice: RestoreChoice, items: Iterable[BinItem]) -> Restored:
        """Restore items of a bin whose target records restores itself and can repeat each of them."""
        done = Restored(None, {}, ())
        for page in _paged(items):
            moved = [_settled(one) for one in self.bin.bring_back(page, choice)]
            done = _added(done, page, [_Outcome(one, None) for one in moved])
        return done

    def finish_interrupted(self) -> None:
        """Finish the page that a killed restore may have left unfinished, and record the interruption."""
        check_newest_run(self.root, self.ledger)
        for run in self.ledger.runs_in(self.bin.identity.uid, *_WAY):
            if run.collector != RESTORE:
                continue
            folder = run_folder(self.root, run.run_id)
            done = {batch for batch, tries in self.ledger.batch_attempts(run.run_id).items() if tries[-1][1]}
            for number, page in _pages(folder):
                if number not in done:
                    self._move(
                        folder, number, page, RestoreChoice(days=days_asked(self.ledger.policy(run.run_id)))
                    )
            for state in _WAY[_WAY.index(run.state) + 1 :]:
                self.ledger.move(run.run_id, state)
            error = "it was interrupted; what it had begun is finished, restore the rest again"
            self.ledger.move(run.run_id, RunState.FAILED, error=error)

    def _move(
        self, folder: RunFolder, number: int, page: Sequence[BinItem], choice: RestoreChoice
    ) -> list[_Outcome]:
        """Move the items of one page and make their outcomes durable."""
        self.bin.before_page(page, folder.run_id)
        attempt = self.ledger.start_batch(folder.run_id, number)
        moved = [_settled(one) for one in self.bin.bring_back(page, choice)]
        self.on_step(f"page {number} moved")
        now = self.clock()
        done = [
            _Outcome(one, self._held_until(item, choice.days, now) if _is_back(one) else None)
            for item, one in zip(page, moved, strict=True)
        ]
        place = folder.outcomes(number, attempt)
        place.mkdir(parents=True, exist_ok=True)
        rows = _outcomes(page, done, now, number, attempt)
        pq.write_table(rows, place / "part-0.parquet", write_page_checksum=True)
        record_counts(place, len(page))
        make_durable(place)
        self.ledger.finish_batch(folder.run_id, number, attempt)
        self.on_step(f"page {number} finished")
        return done

    def _held_until(self, item: BinItem, days: int | None, now: datetime) -> datetime | None:
        """Return until when a restored item is held: as asked, or for as long as its folder keeps items."""
        if days is None:
            days = self._days_of(item.folder)
        return days_after(now, days) if days else None

    def _days_of(self, folder: str) -> int:
        if folder not in self._days:
            self._days[folder] = self.bin.days_of(folder)
        return self._days[folder]

    def _end(self, run_id: int, tallies: dict[str, Tally]) -> None:
        left = sum(tally.objects for name, tally in tallies.items() if name != Outcome.RESTORED)
        if left:
            self.ledger.move(run_id, RunState.FAILED, error=f"{left} items could not be restored")
        else:
            self.ledger.move(run_id, RunState.SUCCEEDED)
        self.on_step("restore ended")
        fold_if_possible(self.root, self.ledger, self.bin.identity.uid, self.clock())


@dataclass(frozen=True)
class _Outcome:
    """The result for an item, and until when it is held if it was restored."""

    returned: Returned
    until: datetime | None

    @property
    def result(self) -> DeleteResult:
        """The result of the move."""
        return self.returned.result


def days_asked(asked: str) -> int | None:
    """Return for how many days a restore holds its items; earlier versions did not record that."""
    try:
        days = json.loads(asked)["restore"].get("days")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return days if isinstance(days, int) else None


def restored_since(ledger: Ledger, target_uid: str, run_id: int) -> int | None:
    """Return the number of a restore on the target that began after a run did."""
    return ledger.later_run(target_uid, run_id, RESTORE)


def check_not_restored_since(ledger: Ledger, manifest: Manifest) -> None:
    """
    Stop if something was restored after the plan was made.

    The plan does not know the reason for the restore. And the highest run number decides what happened last
    to an item, so an older run must not act after a newer one.
    """
    later = restored_since(ledger, manifest.target_uid, manifest.run_id)
    if later is not None:
        raise StalePlan(
            f"items of {manifest.target} were restored after this plan was made (run {later})",
            why="it may delete items that were just restored",
            fix="make a new plan",
        )


def check_none_interrupted(ledger: Ledger, target_uid: str, whole: int | None) -> None:
    """
    Stop if an apply was interrupted: what it did since its last record would never be recorded.

    Restoring all of that run (`whole`) is as good as finishing it.
    """
    accepted = ledger.acceptance()
    for run in ledger.interrupted_runs(target_uid):
        if run.run_id < accepted:
            continue
        attempts = ledger.batch_attempts(run.run_id).values()
        half = run.collector != RESTORE and any(not tries[-1][1] for tries in attempts)
        if half and run.run_id != whole and restored_since(ledger, target_uid, run.run_id) is None:
            raise SafetyStop(
                f"run {run.run_id} on {run.target} was interrupted and is not finished",
                why="after a restore no earlier run may act, and not all that it did is recorded",
                fix=f"finish it with 'ebb apply {run.run_id}', or restore all of it with"
                f" 'ebb restore {run.run_id}'",
            )


def _paged(items: Iterable[BinItem]) -> Iterator[list[BinItem]]:
    rest = iter(items)
    while page := list(islice(rest, PAGE)):
        yield page


def _want(folder: RunFolder, number: int, page: Sequence[BinItem]) -> None:
    """Record the items to move, durably, before they are moved."""
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
    notes = list(done.notes)
    for item, one in zip(page, outcomes, strict=True):
        label = str(one.result.outcome)
        known = tallies.get(label, Tally(label, 0, 0))
        tallies[label] = Tally(label, known.objects + 1, known.bytes + item.size)
        if one.until is not None:
            held = min(held or one.until, one.until)
        if not _is_back(one.returned) and len(troubles) < MOST_NAMED:
            troubles.append(f"{item.address}: {one.result.outcome} {one.result.reason}".rstrip())
        troubles += one.returned.troubles
        notes += [one.returned.note] if one.returned.note else []
    return replace(done, outcomes=tallies, troubles=tuple(troubles), held_until=held, notes=tuple(notes))


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
        "batch": pa.array([number] * rows, pa.int32()),
        "attempt": pa.array([attempt] * rows, pa.int32()),
        "until": pa.array([one.until for one in done], pa.timestamp("us", tz="UTC")),
    }
    return pa.table(columns, schema=_OUTCOMES)
