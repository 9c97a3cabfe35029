"""Freezing standings into a plan: decided, durable, hashed, in waves, and only then known to the ledger."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.engine.burials import finished_outcomes, without_buried, write_buried
from ebbtide.engine.deciding import decisions_at
from ebbtide.engine.layers import TOUCHED, UNTOUCHED, Layers
from ebbtide.engine.layout import RunFolder, make_durable, run_folder, write_durably
from ebbtide.engine.summary import count_standings, summarize
from ebbtide.errors import MetadataError
from ebbtide.ledger.runs import Ledger, RunState
from ebbtide.plan.breaker import BreakerLimits, PlanSize, trip_reasons
from ebbtide.plan.decision import Decision
from ebbtide.plan.manifest import RECYCLE, Manifest, Recycling
from ebbtide.tables.contracts import PLAN
from ebbtide.tables.digest import EMPTY, table_digest
from ebbtide.tables.failures import own_errors
from ebbtide.tables.progress import OnProgress, no_progress, watch

OnStep = Callable[[str], None]
"""Called after every durable step; tests crash there."""

DIGESTED = ["hash", "address", "deadline", "paths", "rules", "size", "collector", "task"]
_BLOCKS_A_WAVE, _MOST_BLOCKS = 8, 2048


def no_step(step: str) -> None:
    """Watch no steps."""


@dataclass(frozen=True)
class Subject:
    """What a run is about: a target, by which policy, at what time."""

    target: str
    target_uid: str
    namespace: str
    collector: str
    policy: str
    policy_hash: str
    now: datetime
    recycle_days: int | None = None
    """For how long what is due is set aside; None deletes it for good."""


@dataclass(frozen=True)
class Decided:
    """What a collector hands over: its standings, and what they were made from."""

    standings: Layers
    snapshot: dict[str, Any]
    warnings: tuple[str, ...] = ()
    known: int | None = None
    """How many items the target has; None if the standings name them all."""
    without_buried: bool = False
    """What earlier runs deleted is not in the standings: a listing has shown what is there."""
    in_order: bool = False
    """Neighbours belong into one wave, because who deletes them looks at them together."""


@dataclass(frozen=True)
class FreezeOptions:
    """How a plan is cut and measured."""

    wave_size: int = 50_000
    limits: BreakerLimits = field(default_factory=BreakerLimits)


def make_plan(
    spark: SparkSession,
    root: Path,
    ledger: Ledger,
    subject: Subject,
    decide: Callable[[RunFolder], Decided],
    *,
    made_at: datetime,
    options: FreezeOptions,
    on_progress: OnProgress = no_progress,
    on_step: OnStep = no_step,
) -> Manifest:
    """Run a collector and freeze what it decides; a failure leaves no plan and nothing half-recorded."""
    abandon_leftovers(root, ledger, subject.target_uid)
    run_id = ledger.begin(subject.target, subject.target_uid, subject.collector, subject.policy, subject.now)
    folder = run_folder(root, run_id)
    folder.path.mkdir(parents=True, exist_ok=True)
    on_step("run begun")
    try:
        with own_errors():
            decided = decide(folder)
            manifest = _freeze(
                spark, root, ledger, folder, run_id, subject, decided, made_at, options, on_progress, on_step
            )
        on_step("plan durable")
    except BaseException as broken:
        shutil.rmtree(folder.path, ignore_errors=True)
        ledger.move(
            run_id, RunState.ABANDONED, error=str(broken).splitlines()[0][:500] if str(broken) else ""
        )
        raise
    due = manifest.summary.due
    ledger.planned(run_id, manifest.plan_hash, due.objects, due.bytes)
    on_step("plan recorded")
    return manifest


def abandon_leftovers(root: Path, ledger: Ledger, target_uid: str) -> None:
    """Clear what a planner that was killed left behind; the caller holds the target's lock, so it is dead."""
    for run in ledger.runs(target_uid):
        if run.state is RunState.PLANNING:
            shutil.rmtree(run_folder(root, run.run_id).path, ignore_errors=True)
            ledger.move(run.run_id, RunState.ABANDONED, error="the planner was killed")


def _freeze(
    spark: SparkSession,
    root: Path,
    ledger: Ledger,
    folder: RunFolder,
    run_id: int,
    subject: Subject,
    decided: Decided,
    made_at: datetime,
    options: FreezeOptions,
    on_progress: OnProgress,
    on_step: OnStep,
) -> Manifest:
    outcomes = [] if decided.without_buried else finished_outcomes(root, ledger, subject.target_uid)
    standings = decided.standings.linked(folder.standings)
    write_buried(folder, outcomes)
    on_step("standings linked")
    with watch(spark, "deciding", on_progress):
        planned = sum(run.due_objects for run in ledger.runs(subject.target_uid))
        known = decided.standings.read(spark, TOUCHED, UNTOUCHED)
        counts = count_standings(without_buried(known, outcomes, most=planned), subject.now)
        touched = without_buried(standings.read(spark, TOUCHED), outcomes, most=planned)
    waves = math.ceil(counts.due.objects / options.wave_size)
    with watch(spark, "freezing", on_progress):
        decisions = decisions_at(touched, subject.now)
        digest = _write_plan(spark, decisions, folder, waves, in_order=decided.in_order)
        _check_count(folder, counts.due.objects)
        on_step("plan written")
        summary = summarize(counts, PLAN.read(spark, folder.plan), subject.now, decided.known)
    size = PlanSize(summary.deleted.objects, summary.deleted.bytes, summary.known_objects)
    manifest = Manifest(
        run_id=run_id,
        target=subject.target,
        target_uid=subject.target_uid,
        namespace=subject.namespace,
        collector=subject.collector,
        made_at=made_at,
        now=subject.now,
        policy=subject.policy,
        policy_hash=subject.policy_hash,
        snapshot=decided.snapshot,
        waves=waves,
        digest=digest,
        summary=summary,
        breaker=tuple(trip_reasons(size, options.limits)),
        warnings=decided.warnings,
        extra=_said_of_the_bin(subject, run_id, made_at),
    )
    shutil.rmtree(folder.scratch, ignore_errors=True)
    make_durable(folder.path)
    write_durably(folder.manifest_file, manifest.to_json())
    return manifest


def _said_of_the_bin(subject: Subject, run_id: int, made_at: datetime) -> dict[str, Any]:
    if subject.recycle_days is None:
        return {}
    return {RECYCLE: asdict(Recycling.of_run(run_id, made_at, subject.target_uid, subject.recycle_days))}


def _write_plan(
    spark: SparkSession, decisions: DataFrame, folder: RunFolder, waves: int, *, in_order: bool
) -> str:
    """Write what is due, dealt into waves, and give its digest."""
    if not waves:
        # An empty table needs no job.
        folder.plan.mkdir()
        return EMPTY
    due = decisions.where(f.col("decision") == str(Decision.DUE))
    dealt = _deal_in_blocks(due, waves) if in_order else _deal_by_hash(due, waves)
    PLAN.write(dealt, folder.plan, partition_by="wave")
    return table_digest(PLAN.read(spark, folder.plan), DIGESTED)


def _deal_by_hash(due: DataFrame, waves: int) -> DataFrame:
    """Spread every wave over all prefixes."""
    wave = f.pmod(f.col("hash"), f.lit(waves)).cast("int")
    return due.withColumn("wave", wave).repartition(waves, "wave")


def _deal_in_blocks(due: DataFrame, waves: int) -> DataFrame:
    """
    Cut the addresses into blocks of neighbours, and give every wave some from all over.

    An address is in one block with all of its rows. So a wave's listings hold little that is not planned, and
    it still presses on many prefixes.
    """
    # The only wave has everything as it is.
    blocks = max(waves, min(waves * _BLOCKS_A_WAVE, _MOST_BLOCKS)) if waves > 1 else 1
    cut = due.repartitionByRange(blocks, "address")
    return cut.withColumn("wave", f.pmod(f.spark_partition_id(), f.lit(waves)))


def _check_count(folder: RunFolder, due: int) -> None:
    """Stop unless the plan has as many rows as were counted: the breaker judges by the count."""
    rows = sum(pq.read_metadata(file).num_rows for file in folder.plan.rglob("*.parquet"))
    if rows != due:
        raise MetadataError(
            f"{due} items were counted as due, and {rows} were written",
            why="the standings changed or were damaged in between",
            fix="plan again with --full",
        )
