"""
The collector protocol, which the pipeline uses to find items that may go and to remove them.

A target has one or more collectors: for items that its policy lets go, for the remains of a deleted
repository, for expired items of its recycle bin. `engine.plan` and `engine.apply` are the same for all of
them: they own the target's lock, the record of the run, batches, outcomes and recovery. A collector decides
and acts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

from ebbtide.core.breaker import BreakerLimits
from ebbtide.core.errors import EbbtideError
from ebbtide.core.instant import Clock
from ebbtide.core.manifest import Manifest
from ebbtide.engine.actor import Actor, Attempt
from ebbtide.engine.cluster_check import Reach
from ebbtide.engine.run_folder import OnStep, RunFolder, no_step
from ebbtide.engine.spark.progress import OnProgress, no_progress
from ebbtide.engine.summary import Part
from ebbtide.engine.verdicts import Layers
from ebbtide.state.runs import Ledger

if TYPE_CHECKING:
    from ebbtide.engine.apply import Applied


@dataclass(frozen=True)
class Context:
    """The state of all runs: the state root, the ledger and the clock."""

    root: Path
    ledger: Ledger
    clock: Clock


@dataclass(frozen=True)
class Identity:
    """The identity of a target: its URL, its uid, and where its items are."""

    url: str
    uid: str
    namespace: str


@dataclass(frozen=True)
class Policy:
    """The policy of a plan. The plan keeps the text, so that it does not depend on a stored policy later."""

    text: str
    hash: str
    bin_days: int | None = None
    """For how many days due items stay in the recycle bin; None deletes them for good."""


@dataclass(frozen=True)
class Run:
    """A plan that is being made: the folder of its tables, and the time that it decides for."""

    spark: SparkSession
    folder: RunFolder
    now: datetime
    on_progress: OnProgress = no_progress
    on_step: OnStep = no_step


@dataclass(frozen=True)
class Collected:
    """What a collector found: its verdicts, and what they were made from."""

    verdicts: Layers
    snapshot: dict[str, Any]
    warnings: tuple[str, ...] = ()
    known: int | None = None
    """How many items the target has; None if the verdicts name them all."""
    removed_applied: bool = False
    """The verdicts have no removed items and hold restored ones already (a listing shows what is gone)."""
    frees: str = "true"
    """Which due items free their bytes, as a Spark expression."""
    parts: tuple[Part, ...] = field(default=())
    """What the breaker measures instead of all known objects; then it also knows what is routine."""


@dataclass(frozen=True)
class Remarks:
    """What a user should know about an applied plan: lines for people, and the same for programs."""

    lines: tuple[str, ...] = ()
    plain: dict[str, Any] = field(default_factory=dict)


class References:
    """How new references are noticed; the defaults suit a target whose items cannot be referenced."""

    def sequence(self) -> int:
        """Return a number that grows with every change that can make a reference."""
        return 0

    def newly_referenced(
        self,
        spark: SparkSession,  # noqa: ARG002 (nothing can be referenced)
        plan: Manifest,  # noqa: ARG002 (nothing can be referenced)
        folder: RunFolder,  # noqa: ARG002 (nothing can be referenced)
    ) -> DataFrame | None:
        """
        Return planned items that were referenced since the plan's snapshot: hash and reason.

        None says that there are none, without a table to read.
        """
        return None

    def fence(self, plan: Manifest) -> int:  # noqa: ARG002 (nothing is fenced)
        """
        Close the target to new references for this run, and return its sequence at that moment.

        A run that was killed while it had the target closed takes over its own fence; any other run is Busy.
        """
        return 0

    def unfence(self, plan: Manifest) -> None:
        """Open the target if this run closed it."""


class Steps:
    """Steps of a run that differ between targets; all but the first hold the target's lock."""

    def check_ready(self) -> None:
        """Raise, before Spark starts, if the target does not answer."""

    def before_plan(self) -> tuple[str, ...]:
        """Finish or refuse unfinished work before a new plan; return warnings for the plan."""
        return ()

    def after_plan(self, spark: SparkSession, plan: Manifest, on_step: OnStep) -> None:
        """Write what a recorded plan leaves beside the data."""

    def before_apply(self, spark: SparkSession, plan: Manifest) -> None:
        """Prepare the first batch of a plan that may be applied."""

    def after_apply(self, spark: SparkSession, plan: Manifest, applied: Applied, on_step: OnStep) -> None:
        """Finish a run that succeeded, now or before."""

    def remarks(self, plan: Manifest) -> Remarks:  # noqa: ARG002 (there is nothing to say)
        """Return what a user should know about an applied plan besides its outcomes."""
        return Remarks()

    def after_failure(self, plan: Manifest, error: EbbtideError) -> None:
        """Record that applying a plan ended with an error."""


class Collector(References, Steps, ABC):
    """Finds items of a target that may go, and removes them."""

    in_order: bool = False
    """Whether neighbours belong into one batch and task, because the actor lists them together."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The collector's name, which plans, reports and the ledger show."""

    @property
    @abstractmethod
    def identity(self) -> Identity:
        """The target that it collects."""

    @abstractmethod
    def policy(self) -> Policy:
        """Return the current policy."""

    @abstractmethod
    def reach(self) -> Reach:
        """Return a check that an executor runs to prove that it can reach the target."""

    @abstractmethod
    def collect(self, run: Run) -> Collected:
        """Read the target and decide until when each item is held; change nothing."""

    @abstractmethod
    def check_unchanged(self, plan: Manifest) -> None:
        """Raise StalePlan if the target or its policy changed since the plan; called before each batch."""

    def estimate(self) -> int | None:
        """Return about how many items a plan will read, if that is cheap to find out; None if it is not."""
        return None

    def check(self, plan: Manifest) -> None:
        """Refuse a plan before Spark starts; called once per apply, so it may cost more."""
        self.check_unchanged(plan)

    @abstractmethod
    def actor(self, plan: Manifest, attempt: Attempt) -> Actor:
        """Return the actor for the rows of a batch."""

    def limits(self, limits: BreakerLimits) -> BreakerLimits:
        """Return the breaker's limits for this collector, which may be stricter than the configured ones."""
        return limits
