"""
Planning: run a collector, decide what is due, and freeze that as a plan.

1. Under the target's lock, what earlier runs left unfinished is cleared away.
2. The collector reads the target and gives each item its verdict (`Collector.collect`).
3. What has reached its deadline is due. It is written in batches, and its size is held against the breaker.
4. The manifest is written last. Only when it is durable does the ledger know the plan.
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
from ebbtide.core.errors import MetadataError, StalePlan
from ebbtide.core.instant import format_instant
from ebbtide.core.interruption import interruption_behind
from ebbtide.core.manifest import RECYCLE, Manifest, Recycling
from ebbtide.engine import log
from ebbtide.engine.cluster_check import check_cluster
from ebbtide.engine.collector import Collected, Collector, Context, Identity, Policy, Run
from ebbtide.engine.durability import make_durable, write_durably
from ebbtide.engine.interruption import abandon_leftovers, abandoned_if_interrupted
from ebbtide.engine.newest_run import begin_run, check_newest_run
from ebbtide.engine.removed_items import RemovedItems
from ebbtide.engine.removed_table import RemovedTable
from ebbtide.engine.run_folder import OnStep, RunFolder, no_step, run_folder
from ebbtide.engine.run_tables import DIGESTED
from ebbtide.engine.spark.failures import own_errors
from ebbtide.engine.spark.progress import OnProgress, no_progress, watch
from ebbtide.engine.summary import count_shares, count_verdicts, last_succeeded, summarize
from ebbtide.engine.tables.contracts import PLAN
from ebbtide.engine.tables.digest import EMPTY, table_digest
from ebbtide.engine.tables.row_counts import counted_rows, record_counts
from ebbtide.engine.verdicts import TOUCHED, UNTOUCHED, decisions_at
from ebbtide.state.locks import target_lock
from ebbtide.state.runs import RunState

REHEARSED = "this is a rehearsal: its clock is not the machine's, and its data is local"
_BLOCKS_PER_BATCH, _MOST_BLOCKS = 8, 2048


@dataclass(frozen=True)
class PlanOptions:
    """How a plan is cut and measured."""

    batch_size: int = 50_000
    limits: BreakerLimits = field(default_factory=BreakerLimits)


def plan(
    spark: SparkSession,
    context: Context,
    collector: Collector,
    *,
    now: datetime,
    options: PlanOptions,
    on_progress: OnProgress = no_progress,
    on_step: OnStep = no_step,
) -> Manifest:
    """Make a plan for the time `now`; nothing is deleted, and a failure leaves nothing half-recorded."""
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
                f"{identity.url} was recognized as another target than before",
                why="the lock that was taken is not the one of this target",
                fix="plan again",
            )
        check_cluster(spark, context.root, collector.reach)
        abandon_leftovers(context.root, context.ledger, identity.uid)
        policy = collector.policy()
        planner = _Planner(spark, context, collector, identity, policy, now, options, on_progress, on_step)
        with abandoned_if_interrupted(spark, context.root, context.ledger, identity.uid):
            manifest = planner.run(warnings)
        collector.after_plan(spark, manifest, on_step)
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
                # The caller records it; the JVM may have died of the same signal and failed first.
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
            known = collected.verdicts.read(self.spark, TOUCHED, UNTOUCHED)
            counts = count_verdicts(removed.laid_over(known), self.now)
            touched = removed.laid_over(verdicts.read(self.spark, TOUCHED))
        batches = math.ceil(counts.due.objects / self.options.batch_size)
        with watch(self.spark, "freezing", self.on_progress):
            decisions = decisions_at(touched, self.now)
            digest = _write_plan(self.spark, decisions, folder, batches, in_order=self.collector.in_order)
            _check_count(folder, counts.due.objects)
            self.on_step("plan written")
            rows = PLAN.read(self.spark, folder.plan)
            # What goes into the bin is freed when the bin is emptied.
            frees = collected.frees if self.policy.bin_days is None else "false"
            summary = summarize(counts, rows, self.now, collected.known, frees)
            shares = self._shares(collected, known, rows if batches else None)
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
            digest=digest,
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

    def _shares(self, collected: Collected, known: DataFrame, rows: DataFrame | None) -> dict[str, Any]:
        """Count the parts that the breaker compares, and what of each is routine."""
        uid = self.identity.uid
        last = last_succeeded(self.context.root, self.context.ledger, uid, self.collector.name)
        return count_shares(collected.parts, known, rows, routine_after(last, self.policy.hash))

    def _recycling(self, run_id: int, made_at: datetime) -> dict[str, Any]:
        """Say for how long the run's items stay in the bin, and in which folder of it."""
        days, uid = self.policy.bin_days, self.identity.uid
        return {} if days is None else {RECYCLE: asdict(Recycling.of_run(run_id, made_at, uid, days))}


def _write_plan(
    spark: SparkSession, decisions: DataFrame, folder: RunFolder, batches: int, *, in_order: bool
) -> str:
    """Write what is due, divided into batches, and return its digest."""
    if not batches:
        # An empty table needs no job.
        folder.plan.mkdir()
        record_counts(folder.plan, 0)
        return EMPTY
    due = decisions.where(f.col("decision") == str(Decision.DUE))
    divided = _divide_in_blocks(due, batches) if in_order else _divide_by_hash(due, batches)
    PLAN.write(divided, folder.plan, partition_by="batch")
    return table_digest(PLAN.read(spark, folder.plan), DIGESTED)


def _divide_by_hash(due: DataFrame, batches: int) -> DataFrame:
    """Spread every batch over all prefixes."""
    batch = f.pmod(f.col("hash"), f.lit(batches)).cast("int")
    return due.withColumn("batch", batch).repartition(batches, "batch")


def _divide_in_blocks(due: DataFrame, batches: int) -> DataFrame:
    """
    Cut the addresses into blocks of neighbours, and give every batch some from all over.

    An address is in one block with all of its rows. So a batch's listings hold little that is not planned,
    and it still presses on many prefixes.
    """
    # The only batch has everything as it is.
    blocks = max(batches, min(batches * _BLOCKS_PER_BATCH, _MOST_BLOCKS)) if batches > 1 else 1
    cut = due.repartitionByRange(blocks, "address")
    return cut.withColumn("batch", f.pmod(f.spark_partition_id(), f.lit(batches)))


def _check_count(folder: RunFolder, due: int) -> None:
    """Stop unless the plan has as many rows as were counted: the breaker judges by the count."""
    rows = counted_rows(folder.plan)
    if rows != due:
        raise MetadataError(
            f"{due} items were counted as due, and {rows} were written",
            why="the verdicts changed or were damaged in between",
            fix="plan again with --full",
        )
