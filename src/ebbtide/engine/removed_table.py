"""
The table of removed items: for each item of a target, the last outcome of a run or a restore.

The table depends on the finished outcomes alone. A *fold* adds the outcomes that it lacks, in this order, so
that a crash at any point loses only work::

    1. write a new segment (and merge it with small ones), and make it durable
    2. write the pointer `current.json`, which lists the segments and the attempts of this fold
    3. mark these attempts as folded in the ledger
    4. remove the segments that are no longer listed

Before step 2 the old table is in place. Between 2 and 3 the pointer says which attempts the ledger still has
to mark. Segments shrink geometrically from the oldest to the newest, so their number grows with the logarithm
of the number of items, and not with the number of runs.

The caller of a fold holds the target's lock. A lookup needs no lock: it also reads the outcomes that are not
folded yet, which are few, and tries again if a fold removed a segment meanwhile.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ebbtide.core.decision import DELETED_REPOSITORY, EMPTY_BIN, Outcome
from ebbtide.core.errors import EbbtideError, MetadataError, SafetyStop
from ebbtide.engine.files import write_durably
from ebbtide.engine.removed_items import (
    BACK,
    GONE,
    SCHEMA,
    RemovedItems,
    Segment,
    find_rows,
    gone_after,
    merged,
    sorted_tables,
    went_since,
    write_segment,
)
from ebbtide.engine.run_folder import OnStep, no_step, run_folder
from ebbtide.engine.tables.digest import hash_addresses
from ebbtide.engine.tables.row_counts import CHECKED, adopt_counts, counted_files
from ebbtide.state.runs import FinishedAttempt, Ledger

FORMAT = 1
RECORDED = [str(outcome) for outcome in Outcome if outcome.is_recorded]
_NOT_ITEMS = {EMPTY_BIN, DELETED_REPOSITORY}
"""Runs whose outcomes are not about items of the target, so they are never looked up."""
_TRIES = 5
_Read = TypeVar("_Read")


@dataclass(frozen=True)
class _Pointer:
    """The segments of the table, and the attempts that the last fold added."""

    segments: tuple[Segment, ...] = ()
    number: int = 0
    """How many segments were ever made; no name is used twice."""
    added: tuple[FinishedAttempt, ...] = ()
    folded: int | None = None
    """How many attempts the table contains; None in a pointer of an earlier version."""
    acceptance: int = 0
    """The last acceptance of a restored ledger or state root when this was written: `folded` counts since."""

    def to_json(self) -> str:
        """Write the pointer with a digest of itself."""
        plain = {
            "format": FORMAT,
            "segments": [[one.path.name, one.rows, one.restored] for one in self.segments],
            "number": self.number,
            "added": [[one.run_id, one.batch, one.attempt] for one in self.added],
            "folded": self.folded,
            "acceptance": self.acceptance,
        }
        return json.dumps(plain | {"digest": _digest(plain)})


def _digest(plain: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class RemovedTable:
    """The removed items of one target."""

    root: Path
    ledger: Ledger
    target_uid: str

    @property
    def folder(self) -> Path:
        """The folder of the table."""
        return self.root / "removed" / hashlib.sha256(self.target_uid.encode()).hexdigest()[:32]

    def folded(self, now: datetime, on_step: OnStep = no_step) -> RemovedItems:
        """Add the outcomes that the table lacks, and return it; the caller holds the target's lock."""
        pointer = self._pointer()
        if pointer is not None and pointer.added:
            self.ledger.mark_folded(pointer.added)
        known = pointer or _Pointer()
        missing = self._missing(pointer)
        if missing:
            known = self._fold(known, missing, now, on_step)
        elif pointer is not None and not self._is_counted(pointer):
            write_durably(self._file, self._counted(pointer).to_json())
        self._remove_unlisted(known)
        return RemovedItems(known.segments)

    def snapshot(self, folder: Path) -> RemovedItems:
        """Link the table and outcomes that are not folded yet into an empty folder; without the lock."""
        for attempt in range(_TRIES):
            try:
                pointer = self._pointer()
                linked = RemovedItems(pointer.segments if pointer else ()).linked(folder / str(attempt))
                break
            except (FileNotFoundError, MetadataError):
                # A fold has just replaced a segment.
                continue
        else:
            raise self._damaged("a segment is missing")
        rows = (part for one in self._missing(pointer) for part in self._outcomes(one, None))
        fresh = [
            self._written(folder / f"fresh-{number}", iter([table]))
            for number, table in enumerate(sorted_tables(rows))
        ]
        return RemovedItems((*linked.segments, *fresh))

    def find(self, address: str) -> list[dict[str, Any]]:
        """Return the rows of one address, the last first; without Spark and without the lock."""
        (key_hash,) = hash_addresses([address]).tolist()
        rows = self._steadily(lambda pointer: self._found(pointer, key_hash, address))
        latest: dict[tuple[Any, Any], dict[str, Any]] = {}
        for row in sorted(rows, key=lambda row: (row["run_id"], row["attempt"])):
            latest[row["version"], row["action"]] = row
        return sorted(latest.values(), key=lambda row: (row["run_id"], row["attempt"]), reverse=True)

    def gone_hashes(self) -> Any:
        """Return the hashes of the items that are gone, sorted; without Spark and without the lock."""

        def read(pointer: _Pointer | None) -> Any:
            found = RemovedItems(pointer.segments if pointer else ()).gone_hashes()
            rows = (part for one in self._missing(pointer) for part in self._outcomes(one, None))
            for table in sorted_tables(rows):
                found = gone_after(found, table)
            return found

        return self._steadily(read)

    def gone_since(self, moment: datetime) -> list[dict[str, Any]]:
        """Return the rows of items that were removed at a moment or later; without Spark or the lock."""

        def read(pointer: _Pointer | None) -> list[dict[str, Any]]:
            parts = list(RemovedItems(pointer.segments if pointer else ()).gone_since(moment))
            for one in self._missing(pointer):
                parts += [part.filter(went_since(moment)) for part in self._outcomes(one, None)]
            return [row for part in parts for row in part.to_pylist()]

        return self._steadily(read)

    def _steadily(self, read: Callable[[_Pointer | None], _Read]) -> _Read:
        """Read what a pointer lists and what it lacks; repeat if a fold replaced the pointer meanwhile."""
        failure: MetadataError = self._damaged("it changes faster than it can be read")
        for _ in range(_TRIES):
            pointer = self._pointer()
            try:
                found = read(pointer)
            except FileNotFoundError:
                failure = self._damaged("a segment is missing")
            except MetadataError as broken:
                failure = broken
            else:
                # A fold replaces the pointer before the ledger marks attempts as folded: nothing is missed.
                if self._pointer() == pointer:
                    return found
        raise failure

    def _found(self, pointer: _Pointer | None, key_hash: int, address: str) -> list[dict[str, Any]]:
        segments = pointer.segments if pointer else ()
        rows = [row for one in segments for row in find_rows(one.path, key_hash, address)]
        about = ds.field("address") == address
        for one in self._missing(pointer):
            rows += [row for part in self._outcomes(one, about) for row in part.to_pylist()]
        return rows

    def lost(self) -> str:
        """Return what the table or the folders of runs lack that the ledger has; empty if nothing."""
        marked, pointer = self._marked(), self._read_pointer()
        if pointer is not None and self._is_older(pointer, marked):
            return self._older(pointer, marked).what
        gone = next((one for one in self._missing(pointer) if self._is_missing(one)), None)
        return "" if gone is None else f"the outcomes of run {gone.run_id} are missing"

    def _is_missing(self, one: FinishedAttempt) -> bool:
        """Return True if the outcomes of an attempt are missing and no user has accepted that."""
        folder = run_folder(self.root, one.run_id).outcomes(one.batch, one.attempt)
        lost = one.collector not in _NOT_ITEMS and not folder.is_dir()
        return lost and one.run_id > self.ledger.acceptance()

    def _marked(self) -> int:
        """Count the attempts that the ledger says the table contains."""
        return self.ledger.count_attempts(self.target_uid, folded=True)

    def _is_counted(self, pointer: _Pointer) -> bool:
        return pointer.folded is not None and pointer.acceptance == self.ledger.acceptance()

    def _is_older(self, pointer: _Pointer, marked: int) -> bool:
        """Return True if a pointer was written before a fold that the ledger knows."""
        return self._is_counted(pointer) and pointer.folded is not None and pointer.folded < marked

    def _counted(self, pointer: _Pointer) -> _Pointer:
        """Return a pointer with the number of all attempts that are finished now."""
        every = self.ledger.count_attempts(self.target_uid, folded=False)
        return replace(pointer, folded=every, acceptance=self.ledger.acceptance())

    def _missing(self, pointer: _Pointer | None) -> list[FinishedAttempt]:
        """List the attempts whose outcomes are in no segment."""
        added = set(pointer.added) if pointer else set()
        finished = self.ledger.finished_attempts(self.target_uid, folded=pointer is None)
        return [one for one in finished if one not in added]

    def _fold(
        self, known: _Pointer, missing: Sequence[FinishedAttempt], now: datetime, on_step: OnStep
    ) -> _Pointer:
        number, fresh = known.number, list[Segment]()
        rows = (part for one in missing for part in self._outcomes(one, None))
        for table in sorted_tables(rows):
            number += 1
            fresh.append(self._written(self._place(number), iter([table])))
        segments = [*known.segments, *fresh]
        first = _first_to_merge([one.rows for one in segments], len(known.segments))
        if not self._is_counted(known):
            # A ledger that was restored may give attempts that an older segment has; merging orders them.
            first = 0
        if len(segments) - first > 1:
            number += 1
            # Without an older segment there is nothing left that a lapsed row would have to replace.
            keep = _not_lapsed(now) if first == 0 else None
            tables = merged([one.path for one in segments[first:]], keep)
            segments[first:] = [self._written(self._place(number), tables)]
        on_step("removed items written")
        pointer = _Pointer(tuple(one for one in segments if one.rows), number, tuple(missing))
        pointer = self._counted(pointer)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_durably(self._file, pointer.to_json())
        on_step("removed items listed")
        self.ledger.mark_folded(missing)
        on_step("removed items folded")
        return pointer

    def _place(self, number: int) -> Path:
        return self.folder / f"{number:06d}"

    @staticmethod
    def _written(folder: Path, tables: Iterator[pa.Table]) -> Segment:
        restored = 0

        def counted() -> Iterator[pa.Table]:
            nonlocal restored
            for table in tables:
                restored += pc.sum(_is_restored(table)).as_py() or 0
                yield table

        rows = write_segment(folder, counted())
        return Segment(folder, rows, restored)

    def _outcomes(self, one: FinishedAttempt, wanted: ds.Expression | None) -> Iterator[pa.Table]:
        """Read what an attempt did to items of the target, as rows of the table."""
        if one.collector in _NOT_ITEMS:
            return
        folder = run_folder(self.root, one.run_id).outcomes(one.batch, one.attempt)
        if self._is_missing(one):
            raise MetadataError(
                f"the outcomes of run {one.run_id} are missing: {folder.name}",
                why="without them it is unknown what the run removed",
                fix="bring the state root's runs folder back from a backup, or continue without them:"
                " ebb state accept",
            )
        if not folder.is_dir():
            return
        if not one.is_counted:
            adopt_counts(folder)
        recorded = ds.field("outcome").isin(RECORDED)
        chosen = recorded if wanted is None else recorded & wanted
        try:
            for file in counted_files(folder):
                yield _as_removed(ds.dataset(file, format=CHECKED).to_table(filter=chosen), one)
        except (pa.ArrowException, OSError) as broken:
            raise MetadataError(f"the outcomes of run {one.run_id} cannot be read: {broken}") from None

    @property
    def _file(self) -> Path:
        return self.folder / "current.json"

    def _pointer(self) -> _Pointer | None:
        """Read the pointer; None if the table was never made. Stop if it is older than the ledger."""
        # In this order: a fold replaces the pointer first and marks its attempts afterwards.
        marked = self._marked()
        pointer = self._read_pointer()
        if pointer is not None and self._is_older(pointer, marked):
            raise self._older(pointer, marked)
        return pointer

    def _older(self, pointer: _Pointer, marked: int) -> SafetyStop:
        return SafetyStop(
            f"the state root is older than the ledger: of {marked} finished attempts its table of removed"
            f" items has {pointer.folded}",
            why="it was restored from a backup; removed items and holds of restored items would be forgotten",
            fix="restore a newer copy of the state root; or, if the folders of all runs are there, remove the"
            f" folder removed/{self.folder.name} of it and plan again; or continue with what there is:"
            " ebb state accept",
        )

    def _read_pointer(self) -> _Pointer | None:
        try:
            plain = json.loads(self._file.read_text(encoding="utf-8"))
            claimed = plain.pop("digest")
            whole = claimed == _digest(plain) and plain["format"] == FORMAT
            segments = tuple(
                Segment(self.folder / name, rows, restored) for name, rows, restored in plain["segments"]
            )
            added = tuple(FinishedAttempt(*one) for one in plain["added"])
            counted = (plain.get("folded"), plain.get("acceptance", 0))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            whole = False
        if not whole:
            raise self._damaged("current.json cannot be read")
        return _Pointer(segments, plain["number"], added, *counted)

    def _damaged(self, what: str) -> MetadataError:
        return MetadataError(
            f"the table of removed items is damaged: {what}",
            why="it says which items earlier runs have removed",
            fix=f"remove the folder removed/{self.folder.name} of the state root and plan again: the table is"
            " made anew from the outcomes of all runs",
        )

    def _remove_unlisted(self, known: _Pointer) -> None:
        listed = {one.path.name for one in known.segments}
        if self.folder.is_dir():
            for place in self.folder.iterdir():
                if place.is_dir() and place.name not in listed:
                    shutil.rmtree(place)


def _first_to_merge(rows: Sequence[int], known: int) -> int:
    """Return the first segment to merge, so that each is at least twice as large as all later ones."""
    first, size = known, sum(rows[known:])
    while first > 0 and rows[first - 1] < 2 * size:
        first -= 1
        size += rows[first]
    return first


def _is_restored(rows: pa.Table) -> Any:
    return pc.equal(rows.column("outcome"), str(Outcome.RESTORED))


def _not_lapsed(now: datetime) -> Any:
    """Return the mask of removed items and of restored items that are still held."""

    def keep(rows: pa.Table) -> Any:
        later = pc.greater(rows.column("until"), pa.scalar(now, SCHEMA.field("until").type))
        held = pc.fill_null(later, fill_value=False)
        return pc.or_(pc.invert(_is_restored(rows)), held)

    return keep


def _as_removed(outcomes: pa.Table, one: FinishedAttempt) -> pa.Table:
    """Return outcomes with the columns of the table; earlier versions wrote no action and no hold."""
    count = outcomes.num_rows
    columns = {name: outcomes.column(name) for name in SCHEMA.names if name in outcomes.column_names}
    columns["run_id"] = pa.array([one.run_id] * count, pa.int64())
    columns["attempt"] = pa.array([one.attempt] * count, pa.int32())
    for field in SCHEMA:
        columns.setdefault(field.name, pa.nulls(count, field.type))
    return pa.table([columns[name] for name in SCHEMA.names], SCHEMA.names).cast(SCHEMA)


@dataclass(frozen=True)
class RemovedItem:
    """When, by which run and by which rules an item was removed."""

    address: str
    since: datetime
    run_id: int
    rules: tuple[str, ...]
    recycled: bool = False
    """It was put into the bin; only the bin knows whether it is still there."""


@dataclass(frozen=True)
class RestoredItem:
    """When an item was restored, by which run, and until when it is held."""

    since: datetime
    run_id: int
    until: datetime | None


def find_item(root: Path, ledger: Ledger, target: str, address: str) -> RemovedItem | RestoredItem | None:
    """Return what happened last to one address: it was removed, restored, or neither; without Spark."""
    target_uid = ledger.target_uid(target)
    if target_uid is None:
        return None
    for row in RemovedTable(root, ledger, target_uid).find(address):
        if row["outcome"] == BACK:
            return RestoredItem(row["at"], row["run_id"], row["until"])
        if row["outcome"] in GONE:
            recycled = row["outcome"] == Outcome.RECYCLED
            return RemovedItem(address, row["at"], row["run_id"], tuple(row["rules"]), recycled)
    return None


def fold_if_possible(
    root: Path, ledger: Ledger, target_uid: str, now: datetime, on_step: OnStep = no_step
) -> None:
    """Fold after a run or restore; if this fails, the next plan of the target does it or reports why."""
    with suppress(EbbtideError, OSError, pa.ArrowException):
        RemovedTable(root, ledger, target_uid).folded(now, on_step)
