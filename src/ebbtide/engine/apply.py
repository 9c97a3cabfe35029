"""
Apply: verify a plan again, delete on the executors batch by batch, and record one outcome per item.

Each batch has four durable steps: `started` in the ledger, the deletes, the table of outcomes, `finished` in
the ledger. After an interruption, applying again continues from there: a finished batch is left alone, a
started one is repeated, and items that are gone count as deleted by it. From verification to `finished` the
target is fenced: nothing can add a reference to the items that are being deleted.

Only the holder of the target's lock fences and unfences. Then no other driver of this run is alive, so the
fence is opened whenever a process ends, unless executors of that process may still be deleting.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.core.breaker import BreakerLimits, check_breaker, plan_size, trip_reasons
from ebbtide.core.decision import Outcome
from ebbtide.core.errors import (
    Busy,
    EbbtideError,
    MetadataError,
    PartlyApplied,
    SafetyStop,
    StalePlan,
    StoreError,
    interruption_behind,
)
from ebbtide.core.instant import format_second
from ebbtide.core.manifest import Manifest, Tally
from ebbtide.engine import log
from ebbtide.engine.actor import DeleteOptions, act_on_rows
from ebbtide.engine.cluster_check import check_cluster
from ebbtide.engine.collector import Collector, Context
from ebbtide.engine.files import make_durable
from ebbtide.engine.interruption import failed_if_interrupted
from ebbtide.engine.newest_run import check_applicable
from ebbtide.engine.removed_table import fold_if_possible
from ebbtide.engine.run_folder import OnStep, RunFolder, no_step, outcome_folders, run_folder
from ebbtide.engine.run_tables import digested_table, read_plan
from ebbtide.engine.spark.failures import own_errors
from ebbtide.engine.spark.progress import OnProgress, no_progress, watch
from ebbtide.engine.spark.session import SparkSource, opened
from ebbtide.engine.tables.contracts import NEWLY_REFERENCED, OUTCOMES
from ebbtide.engine.tables.counted import write_empty
from ebbtide.engine.tables.digest import EMPTY, digest_of, digest_totals
from ebbtide.engine.tables.row_counts import counted_rows
from ebbtide.state.locks import target_lock
from ebbtide.state.runs import Ledger, RunState

_DONE = {str(outcome) for outcome in Outcome if outcome.is_done}
_OPEN_TRIES = 2
"""How often a batch is verified without the fence; a busy target changes during every verification."""
_POLL_SECONDS, _POLLS = 0.1, 100
"""How long to wait for tasks of a failed job to end."""
CLOCK_TOLERANCE = timedelta(minutes=5)
"""How far the clocks of the machines that plan and apply may differ."""


@dataclass(frozen=True)
class ApplyOptions:
    """How to apply."""

    limits: BreakerLimits = field(default_factory=BreakerLimits)
    override_breaker: bool = False
    max_plan_age: timedelta = timedelta(days=7)
    deletes: DeleteOptions = field(default_factory=DeleteOptions)


@dataclass(frozen=True)
class Applied:
    """What a run did, by outcome."""

    run_id: int
    outcomes: dict[str, Tally]
    already_applied: bool = False

    @property
    def freed(self) -> Tally:
        """What was really freed in the store: not what is hidden, moved or set aside."""
        return self.outcomes.get(Outcome.DELETED, Tally(str(Outcome.DELETED), 0, 0))

    @property
    def set_aside(self) -> Tally:
        """What this run has put into the recycle bin."""
        return self.outcomes.get(Outcome.RECYCLED, Tally(str(Outcome.RECYCLED), 0, 0))

    @property
    def hidden(self) -> Tally:
        """What only got a delete marker and is still stored."""
        return self.outcomes.get(Outcome.HIDDEN, Tally(str(Outcome.HIDDEN), 0, 0))

    @property
    def done(self) -> int:
        """How many items the run deleted, set aside, hid or moved as planned."""
        return sum(tally.objects for name, tally in self.outcomes.items() if name in _DONE)

    @property
    def unfinished(self) -> int:
        """How many items could not be deleted."""
        return sum(tally.objects for name, tally in self.outcomes.items() if not Outcome(name).is_final)


def check(context: Context, collector: Collector, manifest: Manifest, options: ApplyOptions) -> None:
    """Refuse a plan that must not be applied, before Spark starts and before the user is asked."""
    try:
        _check_plan(context, collector, manifest, options)
    except EbbtideError:
        # A refused run must not keep the fence closed. A run that holds the lock opens the fence itself.
        with suppress(Busy), _locked(context, manifest):
            collector.unfence(manifest)
        raise


def _check_plan(context: Context, collector: Collector, manifest: Manifest, options: ApplyOptions) -> None:
    now = context.clock()
    _check_time(manifest, now)
    if now - manifest.made_at > options.max_plan_age:
        raise StalePlan(
            f"this plan was made at {format_second(manifest.made_at)}, more than"
            f" {options.max_plan_age.days} days ago",
            why="too much may have changed",
            fix="make a new plan",
        )
    size = plan_size(manifest.summary, manifest.extra, manifest.target)
    limits = collector.limits(options.limits)
    check_breaker(trip_reasons(size, limits), override=options.override_breaker)
    collector.check(manifest)


def _locked(context: Context, manifest: Manifest) -> AbstractContextManager[None]:
    return target_lock(context.root, manifest.target_uid, f"ebb apply {manifest.run_id}")


def _check_time(manifest: Manifest, now: datetime) -> None:
    """Refuse a plan for a future time, and a plan that was made in the future by this machine's clock."""
    if manifest.now > now + CLOCK_TOLERANCE:
        raise StalePlan(
            f"this plan is for {format_second(manifest.now)}, and it is {format_second(now)} now",
            why="it would delete items that must be kept until then",
            fix="apply it then, or make a plan without --now",
        )
    if manifest.made_at > now + CLOCK_TOLERANCE:
        raise StalePlan(
            f"this plan was made at {format_second(manifest.made_at)}, and the machine's clock says"
            f" {format_second(now)}",
            why="the clock has gone back, or was wrong when the plan was made, so no age can be trusted",
            fix="correct the machine's clock, then make a new plan",
        )


def check_format(manifest: Manifest, state: RunState) -> None:
    """Refuse a plan of an earlier version, unless it was begun and has to be finished."""
    if not manifest.is_typed and state is RunState.PLANNED:
        why = "its rows do not say in full what must still be true of each item"
        if not manifest.is_counted:
            why = "that version did not count the rows of its tables, so they may be incomplete"
        raise StalePlan(
            f"plan {manifest.run_id} was made by an earlier version of Ebbtide",
            why=why,
            fix=f"plan again: ebb plan {manifest.target}",
        )


def apply(
    spark: SparkSource,
    context: Context,
    collector: Collector,
    manifest: Manifest,
    *,
    options: ApplyOptions,
    on_progress: OnProgress = no_progress,
    on_step: OnStep = no_step,
) -> Applied:
    """
    Apply a plan to the items that it still holds for; a run that succeeded is not applied again.

    If Spark is not started yet, it is started under the target's lock.
    """
    on_step = log.steps(on_step)
    with (
        log.bound(run=manifest.run_id, target=manifest.target, collector=manifest.collector),
        _locked(context, manifest),
    ):
        is_open = context.ledger.run(manifest.run_id).state is not RunState.SUCCEEDED
        if is_open:
            check_applicable(context.root, context.ledger, manifest)
        # Wait for tasks even without a fence: a task that deletes must not outlive the lock.
        with opened(spark) as session, unfenced_afterwards(session, collector, manifest):
            if is_open:
                _check_plan(context, collector, manifest, options)
                collector.before_apply(session, manifest)
            try:
                applied = _apply(session, context, collector, manifest, options, on_progress, on_step)
            except EbbtideError as broken:
                collector.after_failure(manifest, broken)
                raise
            collector.after_apply(session, manifest, applied, on_step)
        outcomes = {name: tally.objects for name, tally in applied.outcomes.items()}
        log.write("apply ends", freed=applied.freed.bytes, outcomes=outcomes, again=applied.already_applied)
    return applied


@contextmanager
def unfenced_afterwards(
    spark: SparkSession, collector: Collector, manifest: Manifest, sleep: Callable[[float], None] = time.sleep
) -> Iterator[None]:
    """
    Open the fence when the block ends, also for a run that is refused and had left it closed.

    It stays closed if the process is killed, or if tasks may still be running after an error. Applying the
    run again opens it then.
    """
    try:
        yield
    except BaseException:
        if _is_idle(spark, sleep):
            collector.unfence(manifest)
        raise
    collector.unfence(manifest)


def _is_idle(spark: SparkSession, sleep: Callable[[float], None]) -> bool:
    """Wait until no executor runs a task; tasks of a failed job take a moment to stop."""
    try:
        tracker = spark.sparkContext._jsc.sc().statusTracker()  # noqa: SLF001 (Python's tracker does not tell)
        for _ in range(_POLLS):
            if not any(executor.numRunningTasks() for executor in tracker.getExecutorInfos()):
                return True
            sleep(_POLL_SECONDS)
    except (PySparkException, Py4JError, OSError, AttributeError):
        return False
    return False


def _apply(
    spark: SparkSession,
    context: Context,
    collector: Collector,
    manifest: Manifest,
    options: ApplyOptions,
    on_progress: OnProgress,
    on_step: OnStep,
) -> Applied:
    """Run the batches and record how the run ended; the caller holds the target's lock."""
    root, ledger = context.root, context.ledger
    folder = run_folder(root, manifest.run_id)
    run = ledger.run(manifest.run_id)
    if run.state is RunState.SUCCEEDED:
        return Applied(manifest.run_id, _outcomes(spark, root, ledger, manifest), already_applied=True)
    check_format(manifest, run.state)
    check_cluster(spark, root, collector.reach)
    with failed_if_interrupted(spark, root, ledger, manifest):
        _check_table(spark, folder, manifest, run.plan_hash)
        _approve(ledger, manifest.run_id, run.state)
        on_step("applying")
        batches = _Batches(spark, context, collector, manifest, folder, options, on_progress, on_step)
        try:
            with own_errors():
                batches.run()
            fold_if_possible(root, ledger, manifest.target_uid, context.clock(), on_step)
        except EbbtideError as broken:
            if interruption_behind(broken) is not None:
                # The JVM got the same signal and failed first; the run was interrupted, not broken.
                raise
            fold_if_possible(root, ledger, manifest.target_uid, context.clock())
            ledger.move(manifest.run_id, RunState.FAILED, error=broken.what)
            if isinstance(broken, StoreError | SafetyStop):
                _check_nothing_deleted(broken, manifest, _outcomes(spark, root, ledger, manifest))
            raise
        finally:
            shutil.rmtree(folder.scratch, ignore_errors=True)
        applied = Applied(manifest.run_id, _outcomes(spark, root, ledger, manifest))
        _finish(ledger, manifest, applied)
        on_step("finished")
        return applied


def _approve(ledger: Ledger, run_id: int, state: RunState) -> None:
    if state is RunState.APPLYING:
        ledger.note(run_id, "resumed after an interruption")
        return
    if state is not RunState.APPROVED:
        ledger.move(run_id, RunState.APPROVED)
    ledger.move(run_id, RunState.APPLYING)


def _check_table(
    spark: SparkSession, folder: RunFolder, manifest: Manifest, recorded_hash: str | None
) -> None:
    """Stop unless the rows to delete are the rows that were planned."""
    try:
        digest = _digest(spark, folder, manifest)
    except (PySparkException, Py4JError) as broken:
        raise _not_as_planned(manifest, "cannot be read") from broken
    if digest != manifest.digest or recorded_hash != manifest.plan_hash:
        raise _not_as_planned(manifest, "is not what was planned")


def _digest(spark: SparkSession, folder: RunFolder, manifest: Manifest) -> str | None:
    """Return the digest of a plan's table; None if a row is in none of its batches."""
    if not counted_rows(folder.plan):
        return EMPTY
    plan, digested = digested_table(spark, folder, manifest)
    # A row whose batch is out of range would never be deleted, without a message.
    known = f.coalesce(f.col("batch").between(0, manifest.batches - 1), f.lit(False))
    rows = f.count(f.lit(1)).alias("rows")
    counted = plan.agg(rows, f.count_if(~known).alias("stray"), *digest_totals(digested))
    (sums,) = counted.toArrow().to_pylist()
    return None if sums["stray"] else digest_of(sums)


def _not_as_planned(manifest: Manifest, what: str) -> MetadataError:
    return MetadataError(
        f"the plan of run {manifest.run_id} {what}",
        why="only what was planned and looked at may be deleted",
        fix="make a new plan",
    )


def _finish(ledger: Ledger, manifest: Manifest, applied: Applied) -> None:
    recorded = sum(tally.objects for tally in applied.outcomes.values())
    if recorded != manifest.summary.due.objects:
        raise MetadataError(
            f"run {manifest.run_id} has {recorded} outcomes for {manifest.summary.due.objects} planned items",
            fix="apply again; if this stays, this is a defect of Ebbtide",
        )
    if not applied.unfinished:
        ledger.move(manifest.run_id, RunState.SUCCEEDED)
        return
    failed = f"{applied.unfinished} of {recorded} items could not be deleted"
    ledger.move(manifest.run_id, RunState.FAILED, error=failed)
    kind = PartlyApplied if applied.done else StoreError
    raise kind(
        f"run {manifest.run_id}: {failed}",
        why=f"{_counted(applied)}; the outcomes say why for each (ebb report {manifest.run_id})",
        fix=f"correct that, then run 'ebb apply {manifest.run_id}' again: it does the rest",
    )


def _counted(applied: Applied) -> str:
    """Return how many items have which outcome."""
    tallies = [(outcome, applied.outcomes.get(str(outcome))) for outcome in Outcome]
    return ", ".join(f"{tally.objects} {outcome}" for outcome, tally in tallies if tally is not None)


def _check_nothing_deleted(broken: EbbtideError, manifest: Manifest, outcomes: dict[str, Tally]) -> None:
    """
    Raise an error that counts the items that the run has already deleted, if any.

    A run that a failing store ended is partly applied; one that a safety check stopped keeps its exit code.
    """
    done = sum(tally.objects for name, tally in outcomes.items() if name in _DONE)
    if not done:
        return
    how = "set aside" if str(Outcome.DELETED) not in outcomes else "deleted"
    before = f"{done} of {manifest.summary.due.objects} items were {how} before"
    if not isinstance(broken, StoreError):
        raise broken.with_reason(before) from broken
    raise PartlyApplied(
        f"run {manifest.run_id}: {broken.what}",
        why=f"{broken.why}; {before}",
        fix=f"{broken.fix}, then run 'ebb apply {manifest.run_id}' again: it does the rest",
    ) from broken


def _outcomes(spark: SparkSession, root: Path, ledger: Ledger, manifest: Manifest) -> dict[str, Tally]:
    """Count the last outcome of every item."""
    folders = outcome_folders(root, ledger, manifest.run_id)
    if not folders:
        return {}
    rows = OUTCOMES.read(spark, *folders)
    last = rows.groupBy("hash", "address", "version").agg(
        f.max(f.struct("attempt", "outcome", "size")).alias("last")
    )
    counted = last.groupBy("last.outcome").agg(
        f.count(f.lit(1)).alias("objects"), f.sum("last.size").alias("bytes")
    )
    return {
        row["outcome"]: Tally(row["outcome"], row["objects"], row["bytes"] or 0)
        for row in counted.toArrow().to_pylist()
    }


@dataclass
class _Batches:
    """The loop over a plan's batches."""

    spark: SparkSession
    context: Context
    collector: Collector
    manifest: Manifest
    folder: RunFolder
    options: ApplyOptions
    on_progress: OnProgress
    on_step: OnStep
    _verified_at: int | None = None
    _kept: DataFrame | None = None
    _interrupted: set[int] = field(default_factory=set)
    """Batches that an earlier process left unfinished; as long as there are any, the fence stays closed."""

    def run(self) -> None:
        """Run every unfinished batch, and repeat the failed items of finished ones."""
        attempts = self.context.ledger.batch_attempts(self.manifest.run_id)
        self._interrupted = {batch for batch, tries in attempts.items() if not tries[-1][1]}
        for batch in range(self.manifest.batches):
            self.on_progress("deleting", batch, self.manifest.batches)
            done = [number for number, finished in attempts.get(batch, []) if finished]
            rows = read_plan(self.spark, self.folder).where(f.col("batch") == batch)
            if done:
                rows = self._unfinished_rows(rows, batch, done)
                if rows.isEmpty():
                    continue
            interrupted = len(done) < len(attempts.get(batch, []))
            self._attempt(rows, batch, resumed=interrupted)
        self.on_progress("deleting", self.manifest.batches, self.manifest.batches)

    def _unfinished_rows(self, rows: DataFrame, batch: int, done: list[int]) -> DataFrame:
        outcomes = OUTCOMES.read(self.spark, *(self.folder.outcomes(batch, number) for number in done))
        final = [str(outcome) for outcome in Outcome if outcome.is_final]
        settled = outcomes.where(f.col("outcome").isin(final)).select("hash", "address", "version")
        same = ["hash", "address"]
        version = rows["version"].eqNullSafe(settled["version"])
        return rows.join(settled, [*(rows[name] == settled[name] for name in same), version], "left_anti")

    def _attempt(self, rows: DataFrame, batch: int, *, resumed: bool) -> None:
        self.collector.check_unchanged(self.manifest)
        kept = self._verify_and_fence()
        # Check again, because the verification may have taken long.
        self.collector.check_unchanged(self.manifest)
        attempt = self.context.ledger.start_batch(self.manifest.run_id, batch)
        self.on_step(f"batch {batch} started")
        if kept is None:
            judged = rows.withColumn("kept_because", f.lit(None).cast("string"))
        else:
            judged = rows.join(kept.withColumnRenamed("reason", "kept_because"), "hash", "left")
        outcomes = act_on_rows(
            judged,
            partial(self.collector.actor, self.manifest),
            self.options.deletes,
            attempt,
            self.context.clock(),
            resumed=resumed,
            in_order=self.collector.in_order,
        )
        place = self.folder.outcomes(batch, attempt)
        OUTCOMES.write(outcomes, place)
        self.on_step(f"batch {batch} deleted")
        make_durable(place)
        self.context.ledger.finish_batch(self.manifest.run_id, batch, attempt)
        log.write(
            "batch ends",
            batch=batch + 1,
            of=self.manifest.batches,
            attempt=attempt,
            items=counted_rows(place),
        )
        self._interrupted.discard(batch)
        if not self._interrupted:
            self.collector.unfence(self.manifest)
        self.on_step(f"batch {batch} finished")

    def _verify_and_fence(self) -> DataFrame | None:
        """Find newly referenced items and close the fence, with no change of the target between the two."""
        for _ in range(0 if self._interrupted else _OPEN_TRIES):
            kept = self._verify_again()
            if self.collector.fence(self.manifest) == self._verified_at:
                return kept
            self.collector.unfence(self.manifest)
        self.collector.fence(self.manifest)
        # With the fence closed, no change adds a reference to a planned item: this result stays valid.
        return self._verify_again()

    def _verify_again(self) -> DataFrame | None:
        """
        Find items that were referenced since the snapshot, if the target changed since the last time.

        None if there can be none.
        """
        sequence = self.collector.sequence()
        if sequence != self._verified_at:
            with watch(self.spark, "verifying again", self.on_progress):
                found = self.collector.newly_referenced(self.spark, self.manifest, self.folder)
                place = self.folder.kept(sequence)
                if found is None:
                    write_empty(place)
                else:
                    NEWLY_REFERENCED.write(found, place)
            self._kept = None if found is None else NEWLY_REFERENCED.read(self.spark, place)
            self._verified_at = sequence
        return self._kept
