"""
The collector protocol: what the pipeline asks of anything that finds what may go and removes it.

A target has one or more collectors: what its policy lets go, what a deleted repository left behind, what has
expired in its recycle bin. `engine.plan` and `engine.apply` are the same for all of them: they own the
target's lock, the record of the run, batches, outcomes and recovery. A collector decides and acts.
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
from ebbtide.engine.tables.contracts import NEWLY_REFERENCED
from ebbtide.engine.verdicts import Layers
from ebbtide.state.runs import Ledger

if TYPE_CHECKING:
    from ebbtide.engine.apply import Applied


@dataclass(frozen=True)
class Context:
    """The state that every run works with: the folder it writes to, the ledger, and the clock."""

    root: Path
    ledger: Ledger
    clock: Clock


@dataclass(frozen=True)
class Identity:
    """Which target a run is about: its URL, the uid of what was found there, and where its items are."""

    url: str
    uid: str
    namespace: str


@dataclass(frozen=True)
class Policy:
    """What a plan is made by. The plan keeps the text, so that nobody has to trust a stored policy later."""

    text: str
    hash: str
    bin_days: int | None = None
    """For how many days what is due stays in the recycle bin; None deletes it for good."""


@dataclass(frozen=True)
class Run:
    """A plan that is being made: where its tables go, and the time that it decides for."""

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
    """The verdicts have nothing that is gone and hold what was restored, so removed items are not applied."""
    frees: str = "true"
    """Of which due items the store gives the bytes back, as a Spark expression."""
    parts: tuple[Part, ...] = field(default=())
    """What the breaker measures, if not all known objects alone; then it also knows what is routine."""


@dataclass(frozen=True)
class Remarks:
    """What a user should know of a target: lines for people, and the same for programs."""

    lines: tuple[str, ...] = ()
    plain: dict[str, Any] = field(default_factory=dict)


class References:
    """How new references are noticed; the defaults suit a target whose items nothing can refer to."""

    def sequence(self) -> int:
        """Return a number that grows with every change that can make a reference."""
        return 0

    def newly_referenced(
        self,
        spark: SparkSession,
        plan: Manifest,  # noqa: ARG002 (nothing can be referenced)
        folder: RunFolder,  # noqa: ARG002 (nothing can be referenced)
    ) -> DataFrame:
        """Find planned items that something came to need since the plan's snapshot: hash and reason."""
        return NEWLY_REFERENCED.read(spark)

    def fence(self, plan: Manifest) -> int:  # noqa: ARG002 (nothing is fenced)
        """
        Close the target to new references for this run, and return its sequence at that moment.

        A run that was killed while it had the target closed takes the fence over; any other run is Busy.
        """
        return 0

    def unfence(self, plan: Manifest) -> None:
        """Open the target if this run closed it."""


class Steps:
    """The steps of a run that are the target's own; all but the first run under the target's lock."""

    def check_ready(self) -> None:
        """Raise, before Spark starts, if what holds the target's items does not answer."""

    def before_plan(self) -> tuple[str, ...]:
        """Finish or refuse what must not meet a new plan; return warnings for the plan."""
        return ()

    def after_plan(self, spark: SparkSession, plan: Manifest, on_step: OnStep) -> None:
        """Leave beside the data what a recorded plan leaves there."""

    def before_apply(self, spark: SparkSession, plan: Manifest) -> None:
        """Do what a plan that may be applied needs before its first batch."""

    def after_apply(self, spark: SparkSession, plan: Manifest, applied: Applied, on_step: OnStep) -> None:
        """Do what belongs to a run that succeeded, now or before."""

    def remarks(self, plan: Manifest) -> Remarks:  # noqa: ARG002 (there is nothing to say)
        """Say what a user should know when a plan was applied, besides its outcomes."""
        return Remarks()

    def after_failure(self, plan: Manifest, error: EbbtideError) -> None:
        """Record that applying a plan ended with an error."""


class Collector(References, Steps, ABC):
    """Finds what may go from a target, and removes it."""

    in_order: bool = False
    """Whether neighbours belong into one batch and task, because the actor looks at them together."""

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
        """Return what a plan is made by now."""

    @abstractmethod
    def reach(self) -> Reach:
        """Return a check by which an executor shows that it can reach the target."""

    @abstractmethod
    def collect(self, run: Run) -> Collected:
        """Read the target and say of each item until when it is held; nothing is changed."""

    @abstractmethod
    def check_unchanged(self, plan: Manifest) -> None:
        """Raise StalePlan if target or policy is not what the plan was made for; asked before each batch."""

    def check(self, plan: Manifest) -> None:
        """Refuse, before Spark starts, a plan that must not be applied; asked once, so it may cost more."""
        self.check_unchanged(plan)

    @abstractmethod
    def actor(self, plan: Manifest, attempt: Attempt) -> Actor:
        """Make what acts on the rows of a batch on the executors."""

    def limits(self, limits: BreakerLimits) -> BreakerLimits:
        """Return the breaker's limits for this collector, which may be stricter than what is configured."""
        return limits
