"""What runs, found in the tables, with the indexes around it; what runs is little and known to all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ebbtide.targets.oci.evaluation.settling import Settle
from ebbtide.targets.oci.holding import RunningNames, running_names
from ebbtide.targets.oci.model import Reference


@dataclass(frozen=True)
class RunningWords:
    """What is held because something runs, with the words that say so."""

    manifests: DataFrame
    """node, word"""
    tags: DataFrame
    """node, tag, word"""


def running_words(
    images: DataFrame, tags: DataFrame, children: DataFrame, references: Sequence[Reference], settle: Settle
) -> RunningWords:
    """Find all that must stay because something runs."""
    if not references:
        none = images.sparkSession.createDataFrame([], "node long, tag string, word string")
        return RunningWords(none.select("node", "word"), none)
    names = running_names(references)
    digests, tag_names = [name for _, name in names.digests], [name for _, name in names.tags]
    by_digest = _found(images, "digest", digests, RunningNames.of_digest, names)
    by_tag = settle(_found(tags, "tag", tag_names, RunningNames.of_tag, names), "running-tags")
    of_digest = by_digest.select("node", "word", f.lit(True).alias("tags"))
    of_tag = by_tag.groupBy("node").agg(f.min("word").alias("word")).withColumn("tags", f.lit(False))
    # What runs by its digest and by a tag runs by its digest.
    best = f.max_by(f.struct("word", "tags"), "tags").alias("found")
    starts = of_digest.unionByName(of_tag).groupBy("node").agg(best).select("node", "found.*")
    reached = _upwards(starts.withColumn("start", f.col("node")), children, settle)
    around = reached.where(f.col("tags") | (f.col("node") != f.col("start"))).select("node", "word")
    held = tags.select("node", "tag").join(around.distinct(), "node")
    both = held.unionByName(by_tag.select("node", "tag", "word"))
    return RunningWords(reached.select("node", "word"), both)


def _upwards(starts: DataFrame, children: DataFrame, settle: Settle) -> DataFrame:
    """Go from manifests to the indexes that they are in, until there are no more; a circle adds none."""
    reached = settle(starts.withColumn("fresh", f.lit(True)), "running-0")
    rounds = 0
    while reached.where("fresh").count():
        rounds += 1
        up = reached.where("fresh").join(children, "node").drop("node").withColumnRenamed("holder", "node")
        new = up.distinct().join(reached.select("start", "node"), ["start", "node"], "left_anti")
        known = reached.withColumn("fresh", f.lit(False))
        reached = settle(known.unionByName(new), f"running-{rounds % 2}")
    return reached


_Look = Callable[[RunningNames, str, str], str | None]


def _found(
    rows: DataFrame, column: str, values: Sequence[str], look: _Look, names: RunningNames
) -> DataFrame:
    """Give the rows that run and the words for it; only those are asked whose digest or tag does."""
    wanted = rows.sparkSession.createDataFrame([(value,) for value in set(values)], f"{column} string")
    few = rows.join(f.broadcast(wanted), column, "left_semi").select("node", "repository", column)
    asked = few.mapInArrow(_Looker(look, names), f"node long, {column} string, word string")
    return asked.where(f.col("word").isNotNull())


@dataclass(frozen=True)
class _Looker:
    """Looks rows up on an executor."""

    look: _Look
    names: RunningNames

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            pairs = zip(batch.column(1).to_pylist(), batch.column(2).to_pylist(), strict=True)
            words = pa.array([self.look(self.names, *pair) for pair in pairs], pa.string())
            yield pa.RecordBatch.from_arrays(
                [batch.column(0), batch.column(2), words], names=["node", batch.schema.names[2], "word"]
            )
