"""Reading a run's tables without Spark, as streams: what the command line and the report show of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ebbtide.engine.burials import BACK, GONE, is_restore, outcome_folders, read_buried
from ebbtide.engine.layers import layers_in
from ebbtide.engine.layout import RunFolder
from ebbtide.errors import MetadataError
from ebbtide.ledger.runs import Ledger
from ebbtide.plan.decision import Decision, Outcome
from ebbtide.plan.manifest import Tally
from ebbtide.rules.instant import NEVER

Row = dict[str, Any]
_MOMENT = pa.timestamp("us", tz="UTC")


def stream_decisions(folder: RunFolder, decision: Decision | None = None) -> Iterator[Row]:
    """Stream the decisions of a plan, all of them or one kind, however many there are."""
    now = folder.read_manifest().now
    # What never ends has not ended, even at the end of time.
    ends = ds.field("deadline")
    due = (ends <= pa.scalar(now, _MOMENT)) & (ends < pa.scalar(NEVER, _MOMENT))
    for kind, wanted in ((Decision.DUE, due), (Decision.HELD, ~due)):
        if decision in (None, kind):
            for row in _standings(folder, wanted):
                row["decision"] = str(kind)
                if kind is Decision.DUE:
                    row["reason"] = row["held_by"] = None
                yield row


def _standings(folder: RunFolder, wanted: pc.Expression) -> Iterator[Row]:
    """Stream the standings of a plan without those that were replaced or whose items are gone."""
    layers = layers_in(folder.standings)
    # Only hashes are held in memory, eight bytes each: of what changed since the base, and of what is buried.
    buried = _buried(read_buried(folder))
    since = [layers.since] if layers.since else []
    replaced = _hashes(since, None)
    for layer, left_out in ((layers.base, np.union1d(buried, replaced)), *((part, buried) for part in since)):
        for batch in _batches(layer, wanted, None):
            kept = ~np.isin(np.asarray(batch.column("hash")), left_out)
            yield from batch.filter(pa.array(kept)).to_pylist()


def _buried(outcomes: Sequence[Path]) -> Any:
    """Give the hashes of what was gone, without what a restore had brought back by then."""
    found = np.empty(0, np.int64)
    for back, folders in groupby(outcomes, is_restore):
        if back:
            found = np.setdiff1d(found, _hashes(list(folders), ds.field("outcome") == BACK))
        else:
            found = np.union1d(found, _hashes(list(folders), ds.field("outcome").isin(GONE)))
    return found


def _hashes(folders: Sequence[Path], wanted: pc.Expression | None) -> Any:
    """Give the hashes of tables, sorted."""
    batches = (batch for folder in folders for batch in _batches(folder, wanted, ["hash"]))
    found = [np.asarray(batch.column("hash")) for batch in batches]
    return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)


def sample_decisions(folder: RunFolder, decision: Decision, most: int) -> list[Row]:
    """Give the first decisions of a kind."""
    return list(islice(stream_decisions(folder, decision), most))


def sample_outcomes(
    root: Path, ledger: Ledger, run_id: int, wanted: Sequence[Outcome], most: int
) -> list[Row]:
    """Give the first outcomes of some kinds."""
    chosen = ds.field("outcome").isin([str(outcome) for outcome in wanted])
    folders = outcome_folders(root, ledger, run_id)
    return list(islice((row for folder in folders for row in _rows(folder, chosen)), most))


def outcome_tallies(root: Path, ledger: Ledger, run_id: int) -> dict[str, Tally]:
    """Count the last outcome of every item, wave by wave; one wave's items fit in memory by construction."""
    totals: dict[str, Tally] = {}
    waves: dict[str, list[Path]] = {}
    for folder in outcome_folders(root, ledger, run_id):
        waves.setdefault(folder.name.rsplit("-attempt-", 1)[0], []).append(folder)
    for folders in waves.values():
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
    if not folder.is_dir():
        raise MetadataError(f"{folder.name} is missing from the run's folder", fix="make a new plan")
    files = sorted(str(file) for file in folder.rglob("*.parquet"))
    if not files:
        return
    try:
        scanner = ds.dataset(files, format="parquet").scanner(
            columns=columns, filter=wanted, batch_size=8192, batch_readahead=2, fragment_readahead=1
        )
        yield from scanner.to_batches()
    except pa.ArrowException as broken:
        raise MetadataError(f"{folder.name} cannot be read: {broken}", fix="make a new plan") from None
