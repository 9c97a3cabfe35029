"""Counting the jobs of Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

ADAPTIVE = "spark.sql.adaptive.enabled"


class Jobs:
    """How many jobs a block has started."""

    count = 0


@contextmanager
def counted_jobs(spark: SparkSession) -> Iterator[Jobs]:
    """Count the jobs of a block without adaptive execution, which makes a job of every shuffle."""
    scheduler: Any = spark.sparkContext._jsc.sc().dagScheduler()
    before, adaptive, jobs = scheduler.numTotalJobs(), spark.conf.get(ADAPTIVE) or "true", Jobs()
    spark.conf.set(ADAPTIVE, "false")
    try:
        yield jobs
        jobs.count = scheduler.numTotalJobs() - before
    finally:
        spark.conf.set(ADAPTIVE, adaptive)
