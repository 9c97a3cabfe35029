"""Burials: what earlier runs deleted, looked up for one address."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from ebbtide.core.decision import Outcome
from ebbtide.core.errors import MetadataError
from ebbtide.engine.removed_items import BACK, GONE
from ebbtide.engine.removed_table import RemovedTable
from ebbtide.engine.run_folder import RunFolder, run_folder
from ebbtide.engine.tables.row_counts import adopt_counts
from ebbtide.state.runs import Ledger


@dataclass(frozen=True)
class Buried:
    """When, by which run and by which rules an item went."""

    address: str
    since: datetime
    run_id: int
    rules: tuple[str, ...]
    recycled: bool = False
    """It was set aside; whether the bin still has it, the bin knows."""


@dataclass(frozen=True)
class RestoredItem:
    """When an item was restored, by which run, and until when it is held."""

    since: datetime
    run_id: int
    until: datetime | None


def outcome_folders(root: Path, ledger: Ledger, run_id: int) -> list[Path]:
    """List the folders of a run's outcomes: those whose attempt the ledger knows to be finished."""
    folder = run_folder(root, run_id)
    for batch, attempt in ledger.uncounted_attempts(run_id):
        adopt_counts(folder.outcomes(batch, attempt))
    found = [
        folder.outcomes(batch, attempt)
        for batch, attempts in ledger.batch_attempts(run_id).items()
        for attempt, finished in attempts
        if finished
    ]
    # Somebody has accepted that outcomes before this number may be missing.
    return [place for place in found if place.is_dir()] if run_id < ledger.acceptance() else found


def read_buried(folder: RunFolder) -> list[Path]:
    """Give the outcomes that a plan of an earlier version of Ebbtide took for granted."""
    try:
        names = json.loads(folder.buried_file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as broken:
        raise MetadataError(
            f"{folder.buried_file.name} of run {folder.run_id} cannot be read",
            why="which of its rows were gone when it was planned is unknown",
            fix="make a new plan",
        ) from broken
    outcomes = [folder.path.parent / name for name in names]
    for outcome in outcomes:
        # What such a plan took for granted was written by an earlier version too, without row counts.
        adopt_counts(outcome)
    return outcomes


def is_restore(outcomes: Path) -> bool:
    """Tell of a folder of outcomes whether a restore wrote it."""
    return RunFolder(outcomes.parent.parent).wanted.is_dir()


def find_burial(root: Path, ledger: Ledger, target: str, address: str) -> Buried | RestoredItem | None:
    """Look up without Spark what happened to one address last: it went, or was restored, or neither."""
    target_uid = ledger.target_uid(target)
    if target_uid is None:
        return None
    for row in RemovedTable(root, ledger, target_uid).find(address):
        if row["outcome"] == BACK:
            return RestoredItem(row["at"], row["run_id"], row["until"])
        if row["outcome"] in GONE:
            recycled = row["outcome"] == Outcome.RECYCLED
            return Buried(address, row["at"], row["run_id"], tuple(row["rules"]), recycled)
    return None
