"""Interruption: what a run records when its process is asked to stop (Ctrl-C, SIGTERM)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from ebbtide.core.errors import interruption_behind
from ebbtide.core.manifest import Manifest
from ebbtide.engine.newest_run import outcome_names
from ebbtide.engine.run_folder import run_folder
from ebbtide.state.runs import Ledger, RunState

_INTERRUPTED = "interrupted"


def abandon_leftovers(
    root: Path, ledger: Ledger, target_uid: str, error: str = "the planner was killed"
) -> list[int]:
    """
    Abandon runs without a plan; the caller holds the target's lock, so no process is still planning them.

    A run that has outcomes was applied, and only a restored ledger calls it `planning`: its files stay.
    """
    unfinished = [run.run_id for run in ledger.runs_in(target_uid, RunState.PLANNING)]
    for run_id in unfinished:
        if not outcome_names(root, run_id):
            shutil.rmtree(run_folder(root, run_id).path, ignore_errors=True)
        ledger.move(run_id, RunState.ABANDONED, error=error)
    return unfinished


@contextmanager
def abandoned_if_interrupted(
    spark: SparkSession, root: Path, ledger: Ledger, target_uid: str
) -> Iterator[None]:
    """
    Record a plan that is interrupted in the block as abandoned, and note that on the interruption.

    The ledger knows which runs are being planned. The signal may come after the run was recorded and before
    its number is known here.
    """
    try:
        yield
    except BaseException as error:
        stopped = interruption_behind(error)
        if stopped is None:
            raise
        _cancel_jobs(spark)
        for run_id in abandon_leftovers(root, ledger, target_uid, _INTERRUPTED):
            stopped.add_note(f"run {run_id} was abandoned, nothing was deleted")
        raise stopped from None


@contextmanager
def failed_if_interrupted(
    spark: SparkSession, root: Path, ledger: Ledger, manifest: Manifest
) -> Iterator[None]:
    """Record a run that is interrupted in the block as failed, and note how far it got."""
    try:
        yield
    except BaseException as error:
        stopped = interruption_behind(error)
        if stopped is None:
            raise
        _cancel_jobs(spark)
        run_id = manifest.run_id
        if ledger.run(run_id).state is RunState.APPLYING:
            ledger.move(run_id, RunState.FAILED, error=_INTERRUPTED)
        stopped.add_note(f"{_progress(root, ledger, manifest)}; 'ebb apply {run_id}' goes on")
        raise stopped from None


def _cancel_jobs(spark: SparkSession) -> None:
    """Cancel the jobs of the executors; a JVM that got the same signal may be gone already."""
    with suppress(Exception):
        spark.sparkContext.cancelAllJobs()


def _progress(root: Path, ledger: Ledger, manifest: Manifest) -> str:
    """Return how many items have a recorded outcome, and in which batch the run stopped."""
    folder, done, stopped_in = run_folder(root, manifest.run_id), 0, ""
    for batch, attempts in ledger.batch_attempts(manifest.run_id).items():
        # The first finished attempt has a row for every item; later ones repeat those that failed.
        first = next((number for number, finished in attempts if finished), None)
        if first is None:
            stopped_in = f" in batch {batch + 1} of {manifest.batches}"
            continue
        files = folder.outcomes(batch, first).rglob("*.parquet")
        done += sum(pq.read_metadata(file).num_rows for file in files)
    total = manifest.summary.due.objects
    return f"run {manifest.run_id} stopped{stopped_in}: {done} of {total} items are done and recorded"
