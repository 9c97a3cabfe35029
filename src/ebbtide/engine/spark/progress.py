"""Progress of Spark jobs: how many tasks of the running stages are done."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # commands without Spark import this too, and must not wait for PySpark
    from pyspark.sql import SparkSession

OnProgress = Callable[[str, int, int], None]
"""Called with a step's name, tasks done and tasks known so far."""


def no_progress(step: str, done: int, total: int) -> None:
    """Ignore progress."""


@contextmanager
def watch(spark: SparkSession, step: str, report: OnProgress, interval: float = 0.5) -> Iterator[None]:
    """Report the tasks of the stages that run inside the block, from a thread that cannot disturb them."""
    if report is no_progress:
        yield
        return
    finished = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def poll() -> None:
        while not finished.wait(interval):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            known = [stage for stage in stages if stage is not None]
            report(step, sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known))

    report(step, 0, 0)
    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield
        report(step, 1, 1)
    finally:
        finished.set()
        thread.join()
