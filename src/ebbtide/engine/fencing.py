"""
The fence: a target lets nothing refer anew to what is there, from the last look at it to the last delete.

Only who holds the target's lock may use it. Then no other driver of this run is alive, so whatever ends here
may open the target, unless executors of this very process may still be deleting.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ebbtide.engine.layout import RunFolder
from ebbtide.plan.manifest import Manifest
from ebbtide.tables.contracts import NEWLY_REFERENCED

_POLL_SECONDS = 0.1
_POLLS = 100


class Fenceable(Protocol):
    """What can be closed to new references."""

    def fence(self, manifest: Manifest) -> int:
        """
        Close the target for this run and give its sequence at that moment.

        Afterwards nobody can make a new reference to an object that is there, until `unfence`. A run that
        has it closed already, because it was killed, takes it over; for any other run this is Busy.
        """

    def unfence(self, manifest: Manifest) -> None:
        """Open the target if this run closed it."""


@contextmanager
def unfenced_afterwards(
    spark: SparkSession, target: Fenceable, manifest: Manifest, sleep: Callable[[float], None] = time.sleep
) -> Iterator[None]:
    """
    Open the target when the block ends, also for a run that is refused and had left it closed.

    It stays closed if the process is killed, or if tasks run on or cannot be asked about after an error: to
    apply the run again is the way to open it then.
    """
    try:
        yield
    except BaseException:
        if _is_idle(spark, sleep):
            target.unfence(manifest)
        raise
    target.unfence(manifest)


def _is_idle(spark: SparkSession, sleep: Callable[[float], None]) -> bool:
    """Wait until no executor runs a task; those of a job that failed are told to stop and take a moment."""
    try:
        tracker = spark.sparkContext._jsc.sc().statusTracker()  # noqa: SLF001 (Python's tracker does not tell)
        for _ in range(_POLLS):
            if not any(executor.numRunningTasks() for executor in tracker.getExecutorInfos()):
                return True
            sleep(_POLL_SECONDS)
    except (PySparkException, Py4JError, OSError, AttributeError):
        return False
    return False


class Unfenced:
    """
    A target to which nothing can come to refer, so that there is nothing to close and nothing to look for.

    Whoever is one says in its own words why that is so.
    """

    def sequence(self) -> int:
        """Give the same number always."""
        return 0

    def fence(self, manifest: Manifest) -> int:  # noqa: ARG002 (nothing is closed)
        """Close nothing."""
        return 0

    def unfence(self, manifest: Manifest) -> None:
        """Open nothing, for nothing was closed."""

    def newly_referenced(
        self,
        spark: SparkSession,
        manifest: Manifest,  # noqa: ARG002 (nothing is looked for)
        folder: RunFolder,  # noqa: ARG002 (nothing is looked for)
    ) -> DataFrame:
        """Find nothing."""
        return NEWLY_REFERENCED.read(spark)
