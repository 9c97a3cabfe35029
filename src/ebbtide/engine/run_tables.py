"""
The tables of a run: the rows of its plan and its outcomes, read with Spark or streamed without it.

Plans of earlier versions of Ebbtide are read as typed verdicts. Up to format 2 a row had `paths`, `branches`
and, where its target had several actions, a `task`: the action, the version and what had to be true of it.
`collector` was then the action, and the `goal` of a task was a destination or a list of tags. Such plans are
shown as before. One that was begun is applied to its end; one that was not begun has to be made again.
"""

from __future__ import annotations

import heapq
import json
import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC
from itertools import groupby, islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from ebbtide.core.decision import DELETE, MOVED, Decision, HoldReason, Outcome
from ebbtide.core.errors import MetadataError
from ebbtide.core.instant import NEVER
from ebbtide.core.manifest import Manifest, Tally
from ebbtide.engine.actor import ACTED_ON
from ebbtide.engine.removed_items import BACK, GONE, Hold, held_by_restore, removed_in
from ebbtide.engine.run_folder import RunFolder, outcome_folders
from ebbtide.engine.tables.contracts import PLAN, STRINGS, Contract, condition, labels, schema
from ebbtide.engine.tables.digest import hash_addresses
from ebbtide.engine.tables.row_counts import CHECKED, adopt_counts, counted_files, counted_rows
from ebbtide.engine.verdicts import layers_in
from ebbtide.state.runs import Ledger

Row = dict[str, Any]
_MOMENT = pa.timestamp("us", tz="UTC")
_MODULUS = 2**64


def stream_decisions(folder: RunFolder, decision: Decision | None = None) -> Iterator[Row]:
    """
    Stream the decisions of a plan, all of them or one kind, however many there are.

    Due items are compared with the table that apply uses: its files before the first row, its items after the
    last one.
    """
    manifest = folder.read_manifest()
    now = manifest.now
    # `NEVER` is not due, not even at the end of the calendar.
    ends = ds.field("deadline")
    due = (ends <= pa.scalar(now, _MOMENT)) & (ends < pa.scalar(NEVER, _MOMENT))
    removed = _removed(folder)

    def verdicts(wanted: pc.Expression) -> Iterator[Row]:
        return (typed_row(row, manifest.collector) for row in _verdicts(folder, wanted, removed.gone))

    holds = {key: hold for key, hold in removed.holds.items() if hold[0] > now}
    if decision in (None, Decision.DUE):
        yield from _due(folder, manifest, (row for row in verdicts(due) if row["hash"] not in holds))
    if decision in (None, Decision.HELD):
        yield from (_held(row, holds.get(row["hash"])) for row in verdicts(~due))
        if holds:
            keys = pa.array(list(holds), pa.int64())
            restored = verdicts(due & ds.field("hash").isin(keys))
            yield from (_held(row, holds[row["hash"]]) for row in restored)


def _due(folder: RunFolder, manifest: Manifest, verdicts: Iterable[Row]) -> Iterator[Row]:
    """Stream due items, and stop if they are not those of the plan table."""
    if counted_rows(folder.plan) != manifest.summary.due.objects:
        raise _not_as_planned(folder)
    shown = 0
    for row in verdicts:
        shown += _fingerprint([row["hash"]], [row["address"]])
        yield row | {"decision": str(Decision.DUE), "hold": None, "holder": None}
    if shown % _MODULUS != _planned(folder) % _MODULUS:
        raise _not_as_planned(folder)


def _planned(folder: RunFolder) -> int:
    """Return the fingerprint of all items in the plan table."""
    batches = _batches(folder.plan, None, ["hash", "address"])
    return sum(_fingerprint(*(column.to_pylist() for column in batch.columns)) for batch in batches)


def _fingerprint(hashes: Sequence[int], addresses: Sequence[str]) -> int:
    """Return the sum of 64-bit hashes of items, which does not depend on their order."""
    items = (f"{key} {address}" for key, address in zip(hashes, addresses, strict=True))
    return sum(hash_addresses(items).tolist())


def _not_as_planned(folder: RunFolder) -> MetadataError:
    return MetadataError(
        f"the plan table of run {folder.run_id} does not contain the items that were decided",
        why="an apply would stop as well: only what was planned and looked at may be deleted",
        fix="make a new plan",
    )


def _held(row: Row, hold: Hold | None) -> Row:
    """Return a held row; the hold of a restore counts unless something holds the item for longer."""
    row = row | {"decision": str(Decision.HELD)}
    if hold is None or hold[0] <= row["deadline"].replace(tzinfo=UTC):
        return row
    until, restore = hold
    return row | {
        "deadline": until.astimezone(UTC),
        "hold": str(HoldReason.RESTORED),
        "holder": held_by_restore(restore),
    }


@dataclass(frozen=True)
class _Removed:
    """The removed items of a plan: hashes of what was gone, and holds of restored items by hash."""

    gone: Any
    holds: dict[int, Hold]


def _removed(folder: RunFolder) -> _Removed:
    # Only hashes (eight bytes each) and the holds of restored items are in memory.
    if folder.removed.is_dir():
        found = removed_in(folder.removed)
        return _Removed(found.gone_hashes(), found.holds())
    return _Removed(_gone_after(earlier_outcomes(folder)), {})


def _verdicts(folder: RunFolder, wanted: pc.Expression, gone: Any) -> Iterator[Row]:
    """Stream the verdicts of a plan without those that were replaced or whose items are gone."""
    layers = layers_in(folder.verdicts)
    since = [layers.since] if layers.since else []
    replaced = _hashes(since, None)
    for layer, left_out in ((layers.base, np.union1d(gone, replaced)), *((part, gone) for part in since)):
        for batch in _batches(layer, wanted, None):
            kept = ~np.isin(np.asarray(batch.column("hash")), left_out)
            yield from batch.filter(pa.array(kept)).to_pylist()


def earlier_outcomes(folder: RunFolder) -> list[Path]:
    """List the outcomes of earlier runs that a plan of an earlier version of Ebbtide builds on."""
    try:
        names = json.loads(folder.buried_file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as broken:
        raise MetadataError(
            f"{folder.buried_file.name} of run {folder.run_id} cannot be read",
            why="it is unknown which of its rows were gone when it was planned",
            fix="make a new plan",
        ) from broken
    outcomes = [folder.path.parent / name for name in names]
    for outcome in outcomes:
        # They were written by an earlier version too, without row counts.
        adopt_counts(outcome)
    return outcomes


def is_restore(outcomes: Path) -> bool:
    """Return True if a restore wrote this folder of outcomes."""
    return RunFolder(outcomes.parent.parent).wanted.is_dir()


def _gone_after(outcomes: Sequence[Path]) -> Any:
    """Return the hashes of the items that are gone after these outcomes, in their order."""
    found = np.empty(0, np.int64)
    for back, folders in groupby(outcomes, is_restore):
        if back:
            found = np.setdiff1d(found, _hashes(list(folders), ds.field("outcome") == BACK))
        else:
            found = np.union1d(found, _hashes(list(folders), ds.field("outcome").isin(GONE)))
    return found


def _hashes(folders: Sequence[Path], wanted: pc.Expression | None) -> Any:
    """Return the sorted hashes of tables."""
    batches = (batch for folder in folders for batch in _batches(folder, wanted, ["hash"]))
    found = [np.asarray(batch.column("hash")) for batch in batches]
    return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)


def sample_decisions(folder: RunFolder, decision: Decision, most: int) -> list[Row]:
    """Return the first decisions of a kind."""
    return list(islice(stream_decisions(folder, decision), most))


def sample_outcomes(
    root: Path, ledger: Ledger, run_id: int, wanted: Sequence[Outcome], most: int
) -> list[Row]:
    """Return the first outcomes of some kinds."""
    chosen = ds.field("outcome").isin([str(outcome) for outcome in wanted])
    folders = outcome_folders(root, ledger, run_id)
    return list(islice((row for folder in folders for row in _rows(folder, chosen)), most))


def outcome_tallies(root: Path, ledger: Ledger, run_id: int) -> dict[str, Tally]:
    """Count the last outcome of every item, batch by batch: the items of one batch fit in memory."""
    totals: dict[str, Tally] = {}
    batches: dict[str, list[Path]] = {}
    for folder in outcome_folders(root, ledger, run_id):
        # An earlier version named the folder of a batch `wave-`, and this one may have repeated it.
        number = folder.name.rsplit("-attempt-", 1)[0].rsplit("-", 1)[-1]
        batches.setdefault(number, []).append(folder)
    for folders in batches.values():
        for outcome, size in _last_outcomes(folders):
            known = totals.get(outcome, Tally(outcome, 0, 0))
            totals[outcome] = Tally(outcome, known.objects + 1, known.bytes + size)
    return totals


def _last_outcomes(attempts: Sequence[Path]) -> Iterator[tuple[str, int]]:
    last: dict[tuple[str, str | None], tuple[str, int]] = {}
    for folder in attempts:
        for row in _rows(folder, None, ["address", "version", "outcome", "size"]):
            last[row["address"], row["version"]] = (row["outcome"], row["size"])
    yield from last.values()


def _rows(folder: Path, wanted: pc.Expression | None, columns: list[str] | None = None) -> Iterator[Row]:
    for batch in _batches(folder, wanted, columns):
        yield from batch.to_pylist()


def _batches(folder: Path, wanted: pc.Expression | None, columns: list[str] | None) -> Iterator[Any]:
    files = [str(file) for file in counted_files(folder)]
    if not files:
        return
    try:
        scanner = ds.dataset(files, format=CHECKED).scanner(
            columns=columns, filter=wanted, batch_size=8192, batch_readahead=2, fragment_readahead=1
        )
        yield from scanner.to_batches()
    except (pa.ArrowException, OSError) as broken:
        raise MetadataError(f"{folder.name} cannot be read: {broken}", fix="make a new plan") from None


DIGESTED = [*ACTED_ON, "deadline", "names", "collector"]
"""The columns that the digest of a plan covers."""
_EARLIER_DIGESTED = ["hash", "address", "deadline", "paths", "rules", "size", "collector", "task"]
_TASK = schema(
    action=t.StringType(),
    version=t.StringType(),
    etag=t.StringType(),
    latest=t.BooleanType(),
    newer=t.IntegerType(),
    goal=t.StringType(),
)
_EARLIER = Contract(
    "plan of an earlier version",
    schema(
        hash=t.LongType(),
        address=t.StringType(),
        deadline=t.TimestampType(),
        paths=STRINGS,
        rules=STRINGS,
        branches=STRINGS,
        size=t.LongType(),
        created=t.TimestampType(),
        collector=t.StringType(),
        task=_TASK,
        wave=t.IntegerType(),
    ),
)


def read_plan(spark: SparkSession, folder: RunFolder) -> DataFrame:
    """Read the plan table, whichever version of Ebbtide wrote it."""
    if not _is_earlier(folder):
        return PLAN.read(spark, folder.plan)
    return _typed(_EARLIER.read(spark, folder.plan), folder.read_manifest().collector)


def digested_table(spark: SparkSession, folder: RunFolder, manifest: Manifest) -> tuple[DataFrame, list[str]]:
    """Return the table of a plan as it was written, with its batches, and the columns of its digest."""
    if manifest.is_typed:
        return PLAN.read(spark, folder.plan), DIGESTED
    return _EARLIER.read(spark, folder.plan).withColumnRenamed("wave", "batch"), _EARLIER_DIGESTED


def typed_row(row: dict[str, Any], collector: str) -> dict[str, Any]:
    """Return a row of a plan or of verdicts as a typed verdict; `collector` is the plan's."""
    if "paths" not in row:
        return row | {"labels": dict(row.get("labels") or ())}
    task = row.get("task") or {}
    action, goal = task.get("action") or DELETE, task.get("goal")
    moves, branch = action == MOVED, next(iter(row.get("branches") or ()), None)
    required = {
        "etag": task.get("etag"),
        "is_latest": task.get("latest"),
        "newer_versions": task.get("newer"),
        "siblings": goal.split() if goal and not moves else None,
    }
    kept = {name: row[name] for name in ("hash", "address", "size", "created", "deadline", "rules")}
    return kept | {
        "version": task.get("version"),
        "names": row["paths"],
        "action": action,
        "destination": goal if moves else None,
        "condition": required if task else None,
        "hold": row.get("reason"),
        "holder": row.get("held_by"),
        "labels": {} if branch is None else {"branch": branch},
        "collector": collector if row["collector"] == task.get("action") else row["collector"],
    }


def _is_earlier(folder: RunFolder) -> bool:
    """Return whether the plan is divided into `wave=`; it is divided into `batch=` since format 3."""
    return any(folder.plan.glob("wave=*"))


def _typed(rows: DataFrame, collector: str) -> DataFrame:
    action, goal = f.coalesce("task.action", f.lit(DELETE)), f.col("task.goal")
    moves = action == MOVED
    required = condition(
        etag=f.col("task.etag"),
        is_latest=f.col("task.latest"),
        newer_versions=f.col("task.newer"),
        siblings=f.when(~moves & (goal != ""), f.split(goal, " ")),
    )
    named: dict[str, Column] = {
        "version": f.col("task.version"),
        "names": f.col("paths"),
        "action": action,
        "destination": f.when(moves, goal),
        "condition": f.when(f.col("task").isNotNull(), required),
        "labels": labels(branch=f.get("branches", 0)),
        "collector": f.when(f.col("collector") == f.col("task.action"), collector).otherwise(
            f.col("collector")
        ),
        "batch": f.col("wave"),
    }
    return PLAN.check(rows.withColumns(named))


_MOST_IN_MEMORY = 100_000


def in_order(rows: Iterable[Row], key: Callable[[Row], Any], most: int = _MOST_IN_MEMORY) -> Iterator[Row]:
    """Yield rows in the order of a key, with at most `most` of them in memory."""
    source = iter(rows)
    with ExitStack() as held:
        pieces: list[IO[bytes]] = []
        while piece := sorted(islice(source, most), key=key):
            if not pieces and len(piece) < most:
                yield from piece
                return
            file = held.enter_context(tempfile.TemporaryFile())
            for row in piece:
                pickle.dump(row, file)
            file.seek(0)
            pieces.append(file)
        yield from heapq.merge(*(_read(file) for file in pieces), key=key)


def _read(file: IO[bytes]) -> Iterator[Row]:
    while True:
        try:
            yield pickle.load(file)  # noqa: S301 - written by this process
        except EOFError:
            return
