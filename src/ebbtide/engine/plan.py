"""
Plan: run a collector, decide what is due, and freeze the result.

1. Under the target's lock, clean up what earlier runs left unfinished.
2. The collector reads the target and gives each item its verdict (`Collector.collect`).
3. Items whose deadline has come are due. Write them in batches, and compare their size with the breaker.
4. Write the manifest last. The plan is recorded in the ledger only when the manifest is durable.
"""

from __future__ import annotations

import math
import shutil
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.core.breaker import BreakerLimits, plan_size, routine_after, trip_reasons
from ebbtide.core.decision import Decision
from ebbtide.core.errors import MetadataError, StalePlan, interruption_behind
from ebbtide.core.instant import format_instant
from ebbtide.core.manifest import RECYCLE, Manifest, Recycling, Tally
from ebbtide.engine import log
from ebbtide.engine.cluster_check import check_cluster
from ebbtide.engine.collector import Collected, Collector, Context, Identity, Policy, Run
from ebbtide.engine.files import make_durable, write_durably
from ebbtide.engine.interruption import abandon_leftovers, abandoned_if_interrupted
from ebbtide.engine.newest_run import begin_run, check_newest_run
from ebbtide.engine.removed_items import RemovedItems
from ebbtide.engine.removed_table import RemovedTable
from ebbtide.engine.run_folder import OnStep, RunFolder, no_step, run_folder
from ebbtide.engine.run_tables import DIGESTED
from ebbtide.engine.spark.failures import own_errors
from ebbtide.engine.spark.progress import OnProgress, no_progress, watch
from ebbtide.engine.spark.session import SparkSource, opened
from ebbtide.engine.summary import Counted, last_succeeded, summarize
from ebbtide.engine.tables.contracts import PLAN
from ebbtide.engine.tables.counted import write_empty
from ebbtide.engine.tables.digest import EMPTY, digest_of, digest_totals
from ebbtide.engine.tables.row_counts import counted_rows
from ebbtide.engine.verdicts import TOUCHED, UNTOUCHED, decisions_at
from ebbtide.state.locks import target_lock
from ebbtide.state.runs import RunState

REHEARSED = "this is a rehearsal: its clock is not the machine's, and its data is local"
_BLOCKS_PER_BATCH, _MOST_BLOCKS = 8, 2048


@dataclass(frozen=True)
class PlanOptions:
    """How a plan is divided and measured."""

    batch_size: int = 50_000
    limits: BreakerLimits = field(default_factory=BreakerLimits)


def plan(
    spark: SparkSource,
    context: Context,
    collector: Collector,
    *,
    now: datetime,
    options: PlanOptions,
    on_progress: OnProgress = no_progress,
    on_step: OnStep = no_step,
) -> Manifest:
    """
    Make a plan for the time `now`; nothing is deleted, and a failure leaves nothing half-recorded.

    If Spark is not started yet, it is started under the target's lock, when the target may be planned.
    """
    identity = collector.identity
    on_step = log.steps(on_step)
    with (
        log.bound(target=identity.url, collector=collector.name),
        target_lock(context.root, identity.uid, f"ebb plan {identity.url}"),
    ):
        log.write("plan begins", now=format_instant(now))
        check_newest_run(context.root, context.ledger)
        warnings = collector.before_plan()
        if collector.identity != identity:
            raise StalePlan(
                f"{identity.url} is now another target than before",
                why="the lock of the earlier target was taken, not the lock of this one",
                fix="plan again",
            )
        with opened(spark) as session:
            check_cluster(session, context.root, collector.reach)
            abandon_leftovers(context.root, context.ledger, identity.uid)
            policy = collector.policy()
            planner = _Planner(
                session, context, collector, identity, policy, now, options, on_progress, on_step
            )
            with abandoned_if_interrupted(session, context.root, context.ledger, identity.uid):
                manifest = planner.run(warnings)
            collector.after_plan(session, manifest, on_step)
    return manifest


@dataclass(frozen=True)
class _Planner:
    """Makes one plan; the caller holds the target's lock."""

    spark: SparkSession
    context: Context
    collector: Collector
    identity: Identity
    policy: Policy
    now: datetime
    options: PlanOptions
    on_progress: OnProgress
    on_step: OnStep

    def run(self, warnings: tuple[str, ...]) -> Manifest:
        """Record the run, collect and freeze; an error abandons the run and removes its folder."""
        ledger, identity = self.context.ledger, self.identity
        made_at = self.context.clock()
        self._removed_table.folded(made_at, self.on_step)
        root, name, rules = self.context.root, self.collector.name, self.policy.text
        run_id = begin_run(root, ledger, identity.url, identity.uid, name, rules, self.now)
        with log.bound(run=run_id):
            return self._plan(run_id, made_at, warnings)

    def _plan(self, run_id: int, made_at: datetime, warnings: tuple[str, ...]) -> Manifest:
        ledger, folder = self.context.ledger, run_folder(self.context.root, run_id)
        folder.path.mkdir(parents=True)
        self.on_step("run begun")
        try:
            with own_errors():
                run = Run(self.spark, folder, self.now, self.on_progress, self.on_step)
                collected = self.collector.collect(run)
                collected = replace(collected, warnings=(*warnings, *collected.warnings))
                manifest = self._freeze(folder, run_id, collected, made_at)
            self.on_step("plan durable")
        except BaseException as broken:
            if interruption_behind(broken) is not None:
                # The caller records the interruption; the JVM may have failed first, of the same signal.
                raise
            shutil.rmtree(folder.path, ignore_errors=True)
            lines = str(broken).splitlines() or [""]
            ledger.move(run_id, RunState.ABANDONED, error=lines[0][:500])
            raise
        due, held = manifest.summary.due, manifest.summary.held
        ledger.planned(run_id, manifest.plan_hash, due.objects, due.bytes)
        self.on_step("plan recorded")
        counts = {"due": due.objects, "bytes": due.bytes, "held": held.objects, "batches": manifest.batches}
        log.write("plan ends", **counts)
        return manifest

    @property
    def _removed_table(self) -> RemovedTable:
        return RemovedTable(self.context.root, self.context.ledger, self.identity.uid)

    def _freeze(self, folder: RunFolder, run_id: int, collected: Collected, made_at: datetime) -> Manifest:
        """Decide what is due, write it in batches, and make manifest and tables durable."""
        removed = RemovedItems() if collected.removed_applied else self._removed_table.folded(made_at)
        verdicts = collected.verdicts.linked(folder.verdicts)
        removed = removed.linked(folder.removed)
        self.on_step("verdicts linked")
        with watch(self.spark, "deciding", self.on_progress):
            known = removed.laid_over(collected.verdicts.read(self.spark, TOUCHED, UNTOUCHED))
            counted = self._counted(collected, known)
            touched = removed.laid_over(verdicts.read(self.spark, TOUCHED))
        summary, shares = counted.summary, counted.shares
        batches = math.ceil(summary.due.objects / self.options.batch_size)
        with watch(self.spark, "freezing", self.on_progress):
            decisions = decisions_at(touched, self.now)
            written = _write_plan(decisions, folder, batches, in_order=self.collector.in_order)
            _check_plan(folder, summary.due, written)
            self.on_step("plan written")
        limits = self.collector.limits(self.options.limits)
        identity, ledger = self.identity, self.context.ledger
        manifest = Manifest(
            run_id=run_id,
            target=identity.url,
            target_uid=identity.uid,
            namespace=identity.namespace,
            collector=self.collector.name,
            made_at=made_at,
            now=self.now,
            policy=self.policy.text,
            policy_hash=self.policy.hash,
            snapshot=collected.snapshot,
            batches=batches,
            digest=written.digest,
            summary=summary,
            breaker=tuple(trip_reasons(plan_size(summary, shares, identity.url), limits)),
            warnings=(*([REHEARSED] if ledger.rehearsal else []), *collected.warnings),
            rehearsal=ledger.rehearsal,
            extra=self._recycling(run_id, made_at) | shares,
        )
        shutil.rmtree(folder.scratch, ignore_errors=True)
        make_durable(folder.path)
        write_durably(folder.manifest_file, manifest.to_json())
        return manifest

    def _counted(self, collected: Collected, known: DataFrame) -> Counted:
        """Count what is due, what the breaker compares, and what of it is routine."""
        uid = self.identity.uid
        last = last_succeeded(self.context.root, self.context.ledger, uid, self.collector.name)
        # Items in the bin are freed when the bin is emptied.
        frees = collected.frees if self.policy.bin_days is None else "false"
        routine = routine_after(last, self.policy.hash)
        return summarize(known, self.now, collected.known, frees, collected.parts, routine)

    def _recycling(self, run_id: int, made_at: datetime) -> dict[str, Any]:
        """Return for how long the run's items stay in the bin, and in which folder."""
        days, uid = self.policy.bin_days, self.identity.uid
        return {} if days is None else {RECYCLE: asdict(Recycling.of_run(run_id, made_at, uid, days))}


@dataclass(frozen=True)
class _Written:
    """What the tasks that wrote the plan have counted."""

    digest: str = EMPTY
    bytes: int = 0


def _write_plan(decisions: DataFrame, folder: RunFolder, batches: int, *, in_order: bool) -> _Written:
    """Write what is due, divided into batches; its digest is computed on the way."""
    if not batches:
        write_empty(folder.plan)
        return _Written()
    due = decisions.where(f.col("decision") == str(Decision.DUE))
    divided = _divide_in_blocks(due, batches) if in_order else _divide_by_hash(due, batches)
    totals = [*digest_totals(DIGESTED), f.sum("size").alias("bytes")]
    found = PLAN.write(divided, folder.plan, partition_by="batch", totals=totals)
    return _Written(digest_of(found), int(found["bytes"] or 0))


def _divide_by_hash(due: DataFrame, batches: int) -> DataFrame:
    """Spread every batch over all prefixes."""
    batch = f.pmod(f.col("hash"), f.lit(batches)).cast("int")
    return due.withColumn("batch", batch).repartition(batches, "batch")


def _divide_in_blocks(due: DataFrame, batches: int) -> DataFrame:
    """
    Cut the addresses into blocks of neighbours, and give every batch blocks from the whole key space.

    All rows of an address are in one block. So the listings of a batch have little that is not planned, and
    the batch still spreads its load over many prefixes.
    """
    # A single batch needs no blocks.
    blocks = max(batches, min(batches * _BLOCKS_PER_BATCH, _MOST_BLOCKS)) if batches > 1 else 1
    cut = due.repartitionByRange(blocks, "address")
    return cut.withColumn("batch", f.pmod(f.spark_partition_id(), f.lit(batches)))


def _check_plan(folder: RunFolder, due: Tally, written: _Written) -> None:
    """Stop unless the plan has the rows and bytes that were counted: the breaker judges by the count."""
    rows = counted_rows(folder.plan)
    if (rows, written.bytes) != (due.objects, due.bytes):
        counted, found = (due.objects, rows) if rows != due.objects else (due.bytes, written.bytes)
        raise MetadataError(
            f"{counted} {'items' if rows != due.objects else 'bytes'} were counted as due, and {found} were"
            " written",
            why="the verdicts changed or were damaged in between",
            fix="plan again with --full",
        )
