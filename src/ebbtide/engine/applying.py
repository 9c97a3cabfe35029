"""
Applying a plan: verify again, delete on the executors wave by wave, record one outcome an item.

Each wave is four durable steps: `started` in the ledger, the deletes, the outcome table, `finished` in the
ledger. Whatever is interrupted, applying again goes on from there: a finished wave is not touched, a started
one is done again, and what it finds gone was its own doing. From verification to `finished` the target is
fenced: nothing can come to refer to what is being deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.engine.burials import outcome_folders
from ebbtide.engine.deleting import Attempt, DeleteOptions, Deleter, delete_rows
from ebbtide.engine.fencing import Fenceable
from ebbtide.engine.freezing import DIGESTED, OnStep, no_step
from ebbtide.engine.layout import RunFolder, make_durable, run_folder
from ebbtide.errors import EbbtideError, MetadataError, PartlyApplied, StalePlan, StoreError
from ebbtide.ledger.runs import Ledger, RunState
from ebbtide.plan.breaker import BreakerLimits, PlanSize, check_breaker, trip_reasons
from ebbtide.plan.decision import Outcome
from ebbtide.plan.manifest import Manifest, Tally
from ebbtide.rules.instant import format_instant
from ebbtide.tables.contracts import NEWLY_REFERENCED, OUTCOMES, PLAN
from ebbtide.tables.digest import table_digest
from ebbtide.tables.failures import own_errors
from ebbtide.tables.progress import OnProgress, no_progress, watch

_DONE = {str(Outcome.DELETED), str(Outcome.RECYCLED)}
_OPEN_TRIES = 2
"""How often a wave is verified with the target open; on a busy one every look is outdated when it ends."""


class Target(Fenceable, Protocol):
    """What apply asks of a front door about the thing it deletes from."""

    @property
    def in_order(self) -> bool:
        """Tell whether a deleter gets neighbours together, because it looks at them together."""
        return False

    def deleter(self, attempt: Attempt) -> Deleter:
        """Make what deletes the rows of a wave on the executors."""

    def check_still_meant(self, manifest: Manifest) -> None:
        """Stop with StalePlan if the target or its policy is no longer the one that was planned."""

    def sequence(self) -> int:
        """Give a number that grows with every change that can make a reference."""

    def newly_referenced(self, spark: SparkSession, manifest: Manifest, folder: RunFolder) -> DataFrame:
        """Find items that something references, and did not at the plan's snapshot: hash and reason."""


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
        """What is gone for good because of this run."""
        return self.outcomes.get(Outcome.DELETED, Tally(str(Outcome.DELETED), 0, 0))

    @property
    def set_aside(self) -> Tally:
        """What this run has put into the recycle bin."""
        return self.outcomes.get(Outcome.RECYCLED, Tally(str(Outcome.RECYCLED), 0, 0))

    @property
    def unfinished(self) -> int:
        """How many items could not be deleted."""
        return sum(tally.objects for name, tally in self.outcomes.items() if not Outcome(name).is_final)


def check_plan(manifest: Manifest, target: Target, options: ApplyOptions, now: datetime) -> None:
    """Refuse, before Spark starts and before anything is asked, a plan that must not be applied."""
    if manifest.now > now + timedelta(minutes=5):
        raise StalePlan(
            f"this plan says what would be due at {format_instant(manifest.now)}, and it is"
            f" {format_instant(now)}",
            why="it would delete what is still wanted until then",
            fix="apply it then, or make a plan for now",
        )
    if now - manifest.made_at > options.max_plan_age:
        raise StalePlan(
            f"this plan was made at {format_instant(manifest.made_at)}, more than"
            f" {options.max_plan_age.days} days ago",
            why="too much may have changed",
            fix="make a new plan",
        )
    summary = manifest.summary
    size = PlanSize(summary.deleted.objects, summary.deleted.bytes, summary.known_objects)
    check_breaker(trip_reasons(size, options.limits), override=options.override_breaker)
    target.check_still_meant(manifest)


def apply_plan(
    spark: SparkSession,
    root: Path,
    ledger: Ledger,
    manifest: Manifest,
    target: Target,
    *,
    clock: Callable[[], datetime],
    options: ApplyOptions,
    on_progress: OnProgress = no_progress,
    on_step: OnStep = no_step,
) -> Applied:
    """
    Delete what the plan says, as far as it still holds.

    The caller holds the target's lock and opens what is left fenced (`unfenced_afterwards`).
    """
    folder = run_folder(root, manifest.run_id)
    run = ledger.run(manifest.run_id)
    state = run.state
    if state is RunState.SUCCEEDED:
        return Applied(manifest.run_id, _outcomes(spark, root, ledger, manifest), already_applied=True)
    _check_table(spark, folder, manifest, run.plan_hash)
    _approve(ledger, manifest.run_id, state)
    on_step("applying")
    waves = _Waves(spark, ledger, manifest, folder, target, clock, options, on_progress, on_step)
    try:
        with own_errors():
            waves.run()
    except EbbtideError as broken:
        ledger.move(manifest.run_id, RunState.FAILED, error=broken.what)
        if isinstance(broken, StoreError):
            _check_nothing_deleted(broken, manifest, _outcomes(spark, root, ledger, manifest))
        raise
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
    """Make sure that the rows to delete are the rows that were planned."""
    plan = PLAN.read(spark, folder.plan)
    try:
        # A row in a wave that is never begun would be left behind without a word.
        known = f.coalesce(f.col("wave").between(0, manifest.waves - 1), f.lit(False))
        whole = plan.where(~known).isEmpty() and table_digest(plan, DIGESTED) == manifest.digest
    except (PySparkException, Py4JError) as broken:
        raise _not_as_planned(manifest, "cannot be read") from broken
    if not whole or recorded_hash != manifest.plan_hash:
        raise _not_as_planned(manifest, "is not what was planned")


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
    kind = PartlyApplied if applied.freed.objects or applied.set_aside.objects else StoreError
    raise kind(
        f"run {manifest.run_id}: {failed}",
        why=f"{_counted(applied)}; the outcomes say why for each (ebb report {manifest.run_id})",
        fix=f"put that right, then run 'ebb apply {manifest.run_id}' again: it does the rest",
    )


def _counted(applied: Applied) -> str:
    """Say how many items ended in which way."""
    tallies = [(outcome, applied.outcomes.get(str(outcome))) for outcome in Outcome]
    return ", ".join(f"{tally.objects} {outcome}" for outcome, tally in tallies if tally is not None)


def _check_nothing_deleted(broken: StoreError, manifest: Manifest, outcomes: dict[str, Tally]) -> None:
    """Say of a run that the store broke off, if it has deleted something, that it is partly applied."""
    done = sum(tally.objects for name, tally in outcomes.items() if name in _DONE)
    if not done:
        return
    how = "set aside" if manifest.recycling else "deleted"
    raise PartlyApplied(
        f"run {manifest.run_id}: {broken.what}",
        why=f"{broken.why}; {done} of {manifest.summary.due.objects} items were {how} before",
        fix=f"{broken.fix}, then run 'ebb apply {manifest.run_id}' again: it does the rest",
    ) from broken


def _outcomes(spark: SparkSession, root: Path, ledger: Ledger, manifest: Manifest) -> dict[str, Tally]:
    """Count the last outcome of every item."""
    rows = OUTCOMES.read(spark, *outcome_folders(root, ledger, manifest.run_id))
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
class _Waves:
    """The loop over a plan's waves."""

    spark: SparkSession
    ledger: Ledger
    manifest: Manifest
    folder: RunFolder
    target: Target
    clock: Callable[[], datetime]
    options: ApplyOptions
    on_progress: OnProgress
    on_step: OnStep
    _verified_at: int | None = None
    _kept: DataFrame | None = None
    _interrupted: set[int] = field(default_factory=set)
    """Waves that an earlier process left half-way: as long as there are any, the target is not opened."""

    def run(self) -> None:
        """Do every wave that is not finished, and again the items of finished ones that failed."""
        attempts = self.ledger.wave_attempts(self.manifest.run_id)
        self._interrupted = {wave for wave, tries in attempts.items() if not tries[-1][1]}
        for wave in range(self.manifest.waves):
            self.on_progress("deleting", wave, self.manifest.waves)
            done = [number for number, finished in attempts.get(wave, []) if finished]
            rows = PLAN.read(self.spark, self.folder.plan).where(f.col("wave") == wave)
            if done:
                rows = self._unfinished_rows(rows, wave, done)
                if rows.isEmpty():
                    continue
            interrupted = len(done) < len(attempts.get(wave, []))
            self._attempt(rows, wave, resumed=interrupted)
        self.on_progress("deleting", self.manifest.waves, self.manifest.waves)

    def _unfinished_rows(self, rows: DataFrame, wave: int, done: list[int]) -> DataFrame:
        outcomes = OUTCOMES.read(self.spark, *(self.folder.outcomes(wave, number) for number in done))
        final = [str(outcome) for outcome in Outcome if outcome.is_final]
        settled = outcomes.where(f.col("outcome").isin(final)).select("hash", "address", "version")
        same = ["hash", "address"]
        version = rows["task.version"].eqNullSafe(settled["version"])
        return rows.join(settled, [*(rows[name] == settled[name] for name in same), version], "left_anti")

    def _attempt(self, rows: DataFrame, wave: int, *, resumed: bool) -> None:
        self.target.check_still_meant(self.manifest)
        kept = self._verify_and_fence()
        # Once more: to verify may have taken long.
        self.target.check_still_meant(self.manifest)
        attempt = self.ledger.start_wave(self.manifest.run_id, wave)
        self.on_step(f"wave {wave} started")
        judged = rows.join(kept.withColumnRenamed("reason", "kept_because"), "hash", "left")
        outcomes = delete_rows(
            judged,
            self.target.deleter,
            self.options.deletes,
            attempt,
            self.clock(),
            resumed=resumed,
            in_order=self.target.in_order,
        )
        place = self.folder.outcomes(wave, attempt)
        OUTCOMES.write(outcomes, place)
        self.on_step(f"wave {wave} deleted")
        make_durable(place)
        self.ledger.finish_wave(self.manifest.run_id, wave, attempt)
        self._interrupted.discard(wave)
        if not self._interrupted:
            self.target.unfence(self.manifest)
        self.on_step(f"wave {wave} finished")

    def _verify_and_fence(self) -> DataFrame:
        """Find what came to be referenced and close the target, with nothing happening between the two."""
        for _ in range(0 if self._interrupted else _OPEN_TRIES):
            kept = self._verify_again()
            if self.target.fence(self.manifest) == self._verified_at:
                return kept
            self.target.unfence(self.manifest)
        self.target.fence(self.manifest)
        # What changes from here on makes no reference to a planned item, so this look cannot be outdated.
        return self._verify_again()

    def _verify_again(self) -> DataFrame:
        """Find what came to be referenced since the snapshot, if the target changed since we last looked."""
        sequence = self.target.sequence()
        if self._kept is None or sequence != self._verified_at:
            with watch(self.spark, "verifying again", self.on_progress):
                found = self.target.newly_referenced(self.spark, self.manifest, self.folder)
                place = self.folder.kept(sequence)
                NEWLY_REFERENCED.write(found, place)
            self._kept = NEWLY_REFERENCED.read(self.spark, place)
            self._verified_at = sequence
        return self._kept
