"""The newest tags that the rules of keep_newest hold, by a window for each repository and rule."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from ebbtide.registry.evaluation.settling import Settle, sent_if_few
from ebbtide.registry.holding import newest_words
from ebbtide.rules.images.policies import KeepNewest


def newest_tags(tags: DataFrame, rules: Sequence[KeepNewest], settle: Settle) -> DataFrame:
    """
    Give the tags that are held as the newest: node, tag, word.

    Of a tag that was seen at a time, and whose move nobody saw, it is enough to know when the last of those
    was moved that are counted: if that was later, so many are certainly newer.
    """
    if not rules:
        return tags.sparkSession.createDataFrame([], "node long, tag string, word string")
    counts = f.array(*(f.lit(rule.count) for rule in rules))
    words = f.array(*(f.lit(newest_words(rule)) for rule in rules))
    counted = tags.where(~f.col("follows") & ~f.col("requested")).select(
        *("node", "repository", "digest", "tag", "moved_at", "seen_at"), f.explode("rules").alias("rule")
    )
    window = Window.partitionBy("repository", "rule").orderBy(f.col("moved_at").desc(), "digest", "tag")
    placed = counted.where(f.col("moved_at").isNotNull()).withColumn("place", f.row_number().over(window))
    count = f.get(counts, f.col("rule"))
    # The first condition has no column in it but the place, so Spark drops all others before they are moved.
    most = max(rule.count for rule in rules)
    first = settle(placed.where(f.col("place") <= most).where(f.col("place") <= count), "newest")
    last = first.where(f.col("place") == count).select("repository", "rule", f.col("moved_at").alias("last"))
    unknown = counted.where(f.col("moved_at").isNull()).join(
        sent_if_few(last), ["repository", "rule"], "left"
    )
    maybe = unknown.where(f.coalesce(f.col("last") <= f.col("seen_at"), f.lit(True)))
    word = f.get(words, f.col("rule")).alias("word")
    return first.select("node", "tag", word).unionByName(maybe.select("node", "tag", word))
