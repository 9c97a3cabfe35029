"""
The newest tags that the rules of keep_newest hold, by windows for each repository and rule.

A tag is held unless as many as its rule keeps are certainly newer, as `holding` says.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from ebbtide.targets.oci.evaluation.settling import Settle, sent_if_few
from ebbtide.targets.oci.holding import newest_words
from ebbtide.targets.oci.policies.policy import KeepNewest

_KEY = ["repository", "rule"]


def newest_tags(tags: DataFrame, rules: Sequence[KeepNewest], settle: Settle) -> DataFrame:
    """Give the tags that are held as the newest: node, tag, word."""
    if not rules:
        return tags.sparkSession.createDataFrame([], "node long, tag string, word string")
    count = f.get(f.array(*(f.lit(rule.count) for rule in rules)), f.col("rule"))
    counted = tags.where(~f.col("follows") & ~f.col("requested")).select(
        *("node", "repository", "tag", "moved_at", "seen_at", "created_at"), f.explode("rules").alias("rule")
    )
    by_move = Window.partitionBy(*_KEY).orderBy(f.col("moved_at").desc())
    placed = counted.where(f.col("moved_at").isNotNull()).withColumn("place", f.rank().over(by_move))
    # The first condition has no column in it but the place, so Spark drops all others before they are moved.
    most = max(rule.count for rule in rules)
    first = settle(placed.where(f.col("place") <= most).where(f.col("place") <= count), "newest")
    known = _among_ties(first.withColumn("later", f.col("place") - 1), "moved_at")
    unknown = counted.where(f.col("moved_at").isNull())
    seen = _among_ties(_with_later(unknown.where(f.col("seen_at").isNotNull()), first), "seen_at")
    timeless = unknown.where(f.col("seen_at").isNull()).withColumns(
        {"newer": f.lit(0).cast("bigint"), "undecided": f.lit(0).cast("bigint")}
    )
    columns = ["node", "tag", "rule", "newer", "undecided"]
    found = known.select(*columns)
    for more in (seen, timeless):
        found = found.unionByName(more.select(*columns))
    held = found.where(f.col("newer") < count)
    in_doubt = f.col("newer") + f.col("undecided") >= count
    return held.select(
        "node", "tag", f.when(in_doubt, _words(rules, True)).otherwise(_words(rules, False)).alias("word")
    )


def _words(rules: Sequence[KeepNewest], in_doubt: bool) -> Column:  # noqa: FBT001 - one of two words
    words = f.array(*(f.lit(newest_words(rule, in_doubt=in_doubt)) for rule in rules))
    return f.get(words, f.col("rule"))


def _with_later(unknown: DataFrame, first: DataFrame) -> DataFrame:
    """Add to tags whose moves nobody saw how many others were moved after they were first seen."""
    moments = unknown.select(*_KEY, "seen_at").distinct()
    moves = first.select(*_KEY, "moved_at")
    later = moments.join(moves, _KEY).where(f.col("moved_at") > f.col("seen_at"))
    counted = later.groupBy(*_KEY, "seen_at").agg(f.count("*").alias("later"))
    found = unknown.join(sent_if_few(counted), [*_KEY, "seen_at"], "left")
    return found.withColumn("later", f.coalesce("later", f.lit(0)))


def _among_ties(tags: DataFrame, moment: str) -> DataFrame:
    """Add to tags how many are certainly newer, and of how many of the same moment nobody can say it."""
    tied = Window.partitionBy(*_KEY, moment)
    by_date = tied.orderBy(f.col("created_at").desc_nulls_last())
    undated = f.count_if(f.col("created_at").isNull()).over(tied)
    same = f.count(f.lit(1)).over(Window.partitionBy(*_KEY, moment, "created_at"))
    no_date = f.col("created_at").isNull()
    return tags.withColumns(
        {
            "newer": f.col("later") + f.when(no_date, 0).otherwise(f.rank().over(by_date) - 1),
            "undecided": f.when(no_date, f.count(f.lit(1)).over(tied) - 1).otherwise(undated + same - 1),
        }
    )
