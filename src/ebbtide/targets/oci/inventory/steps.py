"""What every step of a scan needs: Spark, how the registry is reached, and a place for what was answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ebbtide.engine.spark.failures import own_errors
from ebbtide.engine.spark.progress import OnProgress, no_progress, watch
from ebbtide.engine.tables.counted import read_counted, write_counted
from ebbtide.targets.oci.base import RegistrySpec
from ebbtide.targets.oci.inventory.asking import Asker, Lister, Question

FEW = 5_000
"""So many tags, manifests or events the driver asks for and holds sooner than Spark has begun."""


@dataclass(frozen=True)
class Limits:
    """How the questions of a scan are dealt out."""

    tasks_a_core: int = 4
    threads: int = 8
    """So many questions a task asks at a time."""
    few: int = FEW
    """Up to so many rows a scan is done by the driver."""
    driver_threads: int = 16
    """So many questions the driver asks at a time."""


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class Steps:
    """Runs the steps of one scan; what a registry answered is written down, so that it is asked once."""

    spark: SparkSession
    spec: RegistrySpec
    scratch: Path
    limits: Limits = DEFAULT_LIMITS
    on_progress: OnProgress = no_progress

    @property
    def tasks(self) -> int:
        """Over how many tasks questions are dealt."""
        return self.limits.tasks_a_core * self.spark.sparkContext.defaultParallelism

    def asked(self, rows: DataFrame, question: Question, answers: Any, schema: str) -> DataFrame:
        """Ask about each row, dealt evenly over the tasks; nothing happens before it is written."""
        asker = Asker(self.spec, question, answers, self.limits.threads)
        return rows.repartition(self.tasks).mapInArrow(asker, schema)

    def listed(self, repositories: Sequence[str], question: Question, answers: Any, schema: str) -> DataFrame:
        """Ask repositories for lists of names; nothing happens before it is written."""
        if not repositories:
            return self.empty(schema)
        rows = self.spark.createDataFrame([(name,) for name in repositories], "repository string")
        dealt = rows.repartition(min(len(repositories), self.tasks))
        return dealt.mapInArrow(Lister(self.spec, question, answers), schema)

    def written(self, step: str, name: str, rows: DataFrame) -> DataFrame:
        """Work rows out, keep them in a file, and give them as they are there."""
        place = self.scratch / name
        with own_errors(), watch(self.spark, step, self.on_progress):
            write_counted(rows, place)
        return read_counted(self.spark, rows.schema, place)

    def empty(self, schema: str) -> DataFrame:
        """Give a table without rows."""
        return self.spark.createDataFrame([], schema)
