"""
The fence: a target lets nothing refer anew to what is there, from the last look at it to the last delete.

Only who holds the target's lock may use it. Then no other driver of this run is alive, so whatever ends here
may open the target, unless executors of this very process may still be deleting.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ebbtide.core.manifest import Manifest
from ebbtide.engine.collector import Collector

_POLL_SECONDS = 0.1
_POLLS = 100


@contextmanager
def unfenced_afterwards(
    spark: SparkSession, collector: Collector, manifest: Manifest, sleep: Callable[[float], None] = time.sleep
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
            collector.unfence(manifest)
        raise
    collector.unfence(manifest)


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
