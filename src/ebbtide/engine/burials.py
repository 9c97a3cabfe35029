"""Burials: what earlier runs deleted, so that it is not planned again and can be explained."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.engine.layout import RunFolder, run_folder
from ebbtide.errors import MetadataError
from ebbtide.ledger.runs import Ledger, RunState
from ebbtide.plan.decision import Outcome
from ebbtide.tables.antijoin import without
from ebbtide.tables.contracts import OUTCOMES
from ebbtide.tables.session import FEW

BACK = str(Outcome.RESTORED)
GONE = [str(outcome) for outcome in Outcome if outcome.is_gone]


@dataclass(frozen=True)
class Buried:
    """When, by which run and by which rules an item went."""

    address: str
    since: datetime
    run_id: int
    rules: tuple[str, ...]
    recycled: bool = False
    """It was set aside; whether the bin still has it, the bin knows."""


def outcome_folders(root: Path, ledger: Ledger, run_id: int) -> list[Path]:
    """List the folders of a run's outcomes: those whose attempt the ledger knows to be finished."""
    folder = run_folder(root, run_id)
    return [
        folder.outcomes(wave, attempt)
        for wave, attempts in ledger.wave_attempts(run_id).items()
        for attempt, finished in attempts
        if finished
    ]


def finished_outcomes(root: Path, ledger: Ledger, target_uid: str) -> list[Path]:
    """
    List the folders of all finished attempts of a target's runs, in the order in which they happened.

    That is the order of the runs' numbers: a restore makes every plan that was made before it stale.
    """
    return [
        folder
        for run in ledger.runs(target_uid)
        if run.state in {RunState.APPLYING, RunState.SUCCEEDED, RunState.FAILED, RunState.APPROVED}
        for folder in outcome_folders(root, ledger, run.run_id)
    ]


def write_buried(folder: RunFolder, outcomes: list[Path]) -> None:
    """Keep in a run's folder which outcomes it took for granted: what comes later is not its concern."""
    runs = folder.path.parent
    names = [str(outcome.relative_to(runs)) for outcome in outcomes]
    folder.buried_file.write_text(json.dumps(names), encoding="utf-8")


def read_buried(folder: RunFolder) -> list[Path]:
    """Give the outcomes that a run took for granted."""
    try:
        names = json.loads(folder.buried_file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as broken:
        raise MetadataError(
            f"{folder.buried_file.name} of run {folder.run_id} cannot be read",
            why="which of its rows were gone when it was planned is unknown",
            fix="make a new plan",
        ) from broken
    return [folder.path.parent / name for name in names]


def buried(spark: SparkSession, root: Path, ledger: Ledger, target_uid: str) -> DataFrame:
    """Give all items of a target that runs have deleted, as outcome rows."""
    return _gone(spark, finished_outcomes(root, ledger, target_uid))


def is_restore(outcomes: Path) -> bool:
    """Tell of a folder of outcomes whether a restore wrote it."""
    return RunFolder(outcomes.parent.parent).wanted.is_dir()


def _gone(spark: SparkSession, outcomes: list[Path]) -> DataFrame:
    """Give what was deleted or set aside, without what a later restore brought back."""
    if not any(map(is_restore, outcomes)):
        return OUTCOMES.read(spark, *outcomes).where(f.col("outcome").isin(GONE))
    found = OUTCOMES.read(spark)
    for back, folders in groupby(outcomes, is_restore):
        rows = OUTCOMES.read(spark, *folders)
        if back:
            found = without(found, rows.where(f.col("outcome") == BACK))
        else:
            found = found.unionByName(rows.where(f.col("outcome").isin(GONE)))
    return found


def without_buried(items: DataFrame, outcomes: list[Path], most: int) -> DataFrame:
    """Leave out the items that earlier runs deleted, which are not more than `most`."""
    if not outcomes:
        return items
    gone = _gone(items.sparkSession, outcomes).select("hash")
    # A few are sent to where the many are; shuffling those takes longer than all else.
    return items.join(gone.hint("broadcast" if most <= FEW else "shuffle_hash"), "hash", "left_anti")


def find_burial(root: Path, ledger: Ledger, target: str, address: str) -> Buried | None:
    """Look one address up without Spark; the newest burial counts, unless it was restored since."""
    for run in reversed([run for run in ledger.runs() if run.target == target]):
        for folder in reversed(outcome_folders(root, ledger, run.run_id)):
            wanted = (ds.field("address") == address) & ds.field("outcome").isin([*GONE, BACK])
            rows = ds.dataset(folder, format="parquet", exclude_invalid_files=False).to_table(filter=wanted)
            for row in rows.to_pylist():
                if row["outcome"] == BACK:
                    return None
                # Spark's timestamps come without a zone; the session's is UTC.
                since, recycled = row["at"].replace(tzinfo=UTC), row["outcome"] == Outcome.RECYCLED
                return Buried(address, since, run.run_id, tuple(row["rules"]), recycled)
    return None
