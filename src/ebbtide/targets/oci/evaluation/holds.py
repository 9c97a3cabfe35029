"""
Holds from outside: running images with the indexes around them, and the newest tags of keep_newest rules.

An image that runs by its digest holds the manifest, its tags, the indexes that list it and their tags,
because the name by which it was found is not known. One that runs by a tag holds the tag, its manifest
and the indexes. A tag is one of the newest unless as many tags as its rule keeps are certainly newer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from ebbtide.targets.oci.evaluation.graph import Materialize, broadcast_if_small
from ebbtide.targets.oci.model import RunningReference, newest_words
from ebbtide.targets.oci.policies.policy import KeepNewest

_KEY = ["repository", "rule"]
_REFERENCES = "position int, repository string, tag string, digest string, word string"


@dataclass(frozen=True)
class RunningHolds:
    """What running images hold, with the words that say so."""

    manifests: DataFrame
    """node, word"""
    tags: DataFrame
    """node, tag, word"""


def running_holds(
    images: DataFrame,
    tags: DataFrame,
    children: DataFrame,
    references: Sequence[RunningReference],
    materialize: Materialize,
) -> RunningHolds:
    """Find everything that running images hold."""
    spark = images.sparkSession
    if not references:
        none = spark.createDataFrame([], "node long, tag string, word string")
        return RunningHolds(none.select("node", "word"), none)
    rows = [
        (number, one.repository, one.tag or None, one.digest or None, f"running: {one}")
        for number, one in enumerate(references)
    ]
    named = spark.createDataFrame(rows, _REFERENCES).withColumn("path", _path(f.col("repository")))
    by_digest = _running(images, named, "digest").select("node", "word", f.lit(True).alias("tags"))
    by_tag = materialize(_running(tags, named, "tag"), "running-tags")
    of_tag = by_tag.groupBy("node").agg(f.min("word").alias("word")).withColumn("tags", f.lit(False))
    # An image that runs by its digest and by a tag runs by its digest.
    best = f.max_by(f.struct("word", "tags"), "tags").alias("found")
    starts = by_digest.unionByName(of_tag).groupBy("node").agg(best).select("node", "found.*")
    reached = _with_indexes(starts.withColumn("start", f.col("node")), children, materialize)
    around = reached.where(f.col("tags") | (f.col("node") != f.col("start"))).select("node", "word")
    held = tags.select("node", "tag").join(around.distinct(), "node")
    both = held.unionByName(by_tag.select("node", "tag", "word"))
    return RunningHolds(reached.select("node", "word"), both)


def _path(repository: Column) -> Column:
    """
    Return a repository without the host of a registry, and without the folder that Docker Hub leaves out.

    A first part with a dot or a colon, or localhost, is a host: mirrors have other hosts.
    """
    without_host = f.regexp_replace(repository, r"\A(?:[^/]*[.:][^/]*|localhost)/", "")
    return f.regexp_replace(without_host, r"\Alibrary/", "")


def _running(rows: DataFrame, references: DataFrame, column: str) -> DataFrame:
    """
    Return the manifests or tags that run: node, the column, word.

    A reference with a repository counts there only, one with a digest alone everywhere. If several match, one
    with the repository counts, and the last of them.
    """
    named = references.where(f.col(column).isNotNull()).select(
        column, f.col("path").alias("running_path"), "position", "word"
    )
    # Few images run, so only rows with a digest or tag of theirs are looked at.
    found = rows.select("node", "repository", column).join(f.broadcast(named), column)
    here = f.col("running_path") == _path(f.col("repository"))
    everywhere = f.col("running_path").isNull() if column == "digest" else f.lit(False)
    counts = found.where(f.coalesce(here, f.lit(False)) | everywhere)
    best = f.max_by("word", f.struct(f.col("running_path").isNotNull(), "position")).alias("word")
    return counts.groupBy("node", column).agg(best)


def _with_indexes(starts: DataFrame, children: DataFrame, materialize: Materialize) -> DataFrame:
    """Follow manifests to the indexes that list them, until there are no more; a cycle adds none."""
    reached = materialize(starts.withColumn("fresh", f.lit(True)), "running-0")
    rounds = 0
    while reached.where("fresh").count():
        rounds += 1
        up = reached.where("fresh").join(children, "node").drop("node").withColumnRenamed("holder", "node")
        new = up.distinct().join(reached.select("start", "node"), ["start", "node"], "left_anti")
        known = reached.withColumn("fresh", f.lit(False))
        reached = materialize(known.unionByName(new), f"running-{rounds % 2}")
    return reached


def newest_holds(tags: DataFrame, rules: Sequence[KeepNewest], materialize: Materialize) -> DataFrame:
    """Return the tags that are held as the newest: node, tag, word."""
    if not rules:
        return tags.sparkSession.createDataFrame([], "node long, tag string, word string")
    count = f.get(f.array(*(f.lit(rule.count) for rule in rules)), f.col("rule"))
    counted = tags.where(~f.col("follows") & ~f.col("requested")).select(
        *("node", "repository", "tag", "moved_at", "seen_at", "created_at"), f.explode("rules").alias("rule")
    )
    by_move = Window.partitionBy(*_KEY).orderBy(f.col("moved_at").desc())
    placed = counted.where(f.col("moved_at").isNotNull()).withColumn("place", f.rank().over(by_move))
    # The first condition uses only the place, so Spark drops all other rows before they are shuffled.
    most = max(rule.count for rule in rules)
    first = materialize(placed.where(f.col("place") <= most).where(f.col("place") <= count), "newest")
    known = _among_equals(first.withColumn("later", f.col("place") - 1), "moved_at")
    unknown = counted.where(f.col("moved_at").isNull())
    seen = _among_equals(_with_later(unknown.where(f.col("seen_at").isNotNull()), first), "seen_at")
    timeless = unknown.where(f.col("seen_at").isNull()).withColumns(
        {"newer": f.lit(0).cast("bigint"), "undecided": f.lit(0).cast("bigint")}
    )
    columns = ["node", "tag", "rule", "newer", "undecided"]
    found = known.select(*columns)
    for more in (seen, timeless):
        found = found.unionByName(more.select(*columns))
    held = found.where(f.col("newer") < count)
    in_doubt = f.col("newer") + f.col("undecided") >= count
    word = f.when(in_doubt, _words(rules, in_doubt=True)).otherwise(_words(rules, in_doubt=False))
    return held.select("node", "tag", word.alias("word"))


def _words(rules: Sequence[KeepNewest], *, in_doubt: bool) -> Column:
    words = f.array(*(f.lit(newest_words(rule, in_doubt=in_doubt)) for rule in rules))
    return f.get(words, f.col("rule"))


def _with_later(unknown: DataFrame, first: DataFrame) -> DataFrame:
    """Add to tags with unknown moves how many others were moved after they were first seen."""
    moments = unknown.select(*_KEY, "seen_at").distinct()
    moves = first.select(*_KEY, "moved_at")
    later = moments.join(moves, _KEY).where(f.col("moved_at") > f.col("seen_at"))
    counted = later.groupBy(*_KEY, "seen_at").agg(f.count("*").alias("later"))
    found = unknown.join(broadcast_if_small(counted), [*_KEY, "seen_at"], "left")
    return found.withColumn("later", f.coalesce("later", f.lit(0)))


def _among_equals(tags: DataFrame, moment: str) -> DataFrame:
    """Add to tags how many are certainly newer, and for how many of the same moment that is unknown."""
    equals = Window.partitionBy(*_KEY, moment)
    by_date = equals.orderBy(f.col("created_at").desc_nulls_last())
    undated = f.count_if(f.col("created_at").isNull()).over(equals)
    same = f.count(f.lit(1)).over(Window.partitionBy(*_KEY, moment, "created_at"))
    no_date = f.col("created_at").isNull()
    return tags.withColumns(
        {
            "newer": f.col("later") + f.when(no_date, 0).otherwise(f.rank().over(by_date) - 1),
            "undecided": f.when(no_date, f.count(f.lit(1)).over(equals) - 1).otherwise(undated + same - 1),
        }
    )
