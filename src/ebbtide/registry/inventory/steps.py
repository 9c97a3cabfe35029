"""What every step of a scan needs: Spark, how the registry is reached, and a place for what was answered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from ebbtide.registry.base import RegistrySpec
from ebbtide.registry.inventory.asking import Asker, Question
from ebbtide.tables.failures import own_errors
from ebbtide.tables.progress import OnProgress, no_progress, watch

FEW = 1000
Mapper = Callable[[Iterable[Any]], Iterator[Any]]
"""What a task does with its batches of rows."""


@dataclass(frozen=True)
class Limits:
    """How the questions of a scan are dealt out."""

    tasks_a_core: int = 4
    threads: int = 8
    """So many questions a task asks at a time."""
    few: int = FEW
    """So many rows are asked about by the driver itself."""


DEFAULT_LIMITS = Limits()


def few_of(rows: DataFrame, few: int) -> Any:
    """Give rows as an Arrow table if they are few: then a job takes longer than all that it does."""
    found = rows.limit(few + 1).toArrow()
    return found if found.num_rows <= few else None


def _frame(spark: SparkSession, table: Any, schema: Any) -> DataFrame:
    """Make a DataFrame of an Arrow table; Spark cannot do that with an empty one."""
    return spark.createDataFrame(table if table.num_rows else [], schema)


def mapped(
    rows: DataFrame, mapper: Mapper, schema: str, arrow: Any, *, few: int = FEW, tasks: int = 0
) -> DataFrame:
    """
    Send rows through a function, dealt over tasks if a number is given; few are sent through it here.

    To see whether they are few, rows are worked out: they must not ask the registry themselves.
    """
    with own_errors():
        found = few_of(rows, few)
        if found is not None:
            done = pa.Table.from_batches(mapper(found.to_batches()), schema=arrow)
            return _frame(rows.sparkSession, done, schema)
    return (rows.repartition(tasks) if tasks else rows).mapInArrow(mapper, schema)


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
        return mapped(rows, asker, schema, answers, few=self.limits.few, tasks=self.tasks)

    def written(self, step: str, name: str, rows: DataFrame) -> DataFrame:
        """Work rows out, once, keep them in a file, and give them as they are there."""
        place = (self.scratch / name).absolute().as_uri()
        with own_errors(), watch(self.spark, step, self.on_progress):
            rows.write.parquet(place)
        return self.spark.read.schema(rows.schema).parquet(place)

    def empty(self, schema: str) -> DataFrame:
        """Give a table without rows."""
        return self.spark.createDataFrame([], schema)
