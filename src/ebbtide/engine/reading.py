"""Reading a run's tables without Spark, as streams: what the command line and the report show of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ebbtide.engine.burials import outcome_folders
from ebbtide.engine.layout import RunFolder
from ebbtide.errors import MetadataError
from ebbtide.ledger.runs import Ledger
from ebbtide.plan.decision import Decision, Outcome
from ebbtide.plan.manifest import Tally

Row = dict[str, Any]


def stream_decisions(folder: RunFolder, decision: Decision | None = None) -> Iterator[Row]:
    """Stream the decisions of a plan, all of them or one kind, however many there are."""
    wanted = None if decision is None else ds.field("decision") == str(decision)
    yield from _rows(folder.decisions, wanted)


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
    last: dict[str, tuple[str, int]] = {}
    for folder in attempts:
        for row in _rows(folder, None, ["address", "outcome", "size"]):
            last[row["address"]] = (row["outcome"], row["size"])
    yield from last.values()


def _rows(folder: Path, wanted: pc.Expression | None, columns: list[str] | None = None) -> Iterator[Row]:
    if not folder.is_dir():
        raise MetadataError(f"{folder.name} is missing from the run's folder", fix="make a new plan")
    files = sorted(str(file) for file in folder.rglob("*.parquet"))
    if not files:
        return
    try:
        scanner = ds.dataset(files, format="parquet").scanner(
            columns=columns, filter=wanted, batch_size=8192, batch_readahead=2, fragment_readahead=1
        )
        for batch in scanner.to_batches():
            yield from batch.to_pylist()
    except pa.ArrowException as broken:
        raise MetadataError(f"{folder.name} cannot be read: {broken}", fix="make a new plan") from None
