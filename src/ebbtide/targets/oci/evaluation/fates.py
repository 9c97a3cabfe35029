"""
Fates: until when each manifest stays, by which policy, and whether something holds it.

Of two fates the later one counts, and holds add up: a fate only grows. So fates are handed on from holders to
what they hold, round by round, until nothing changes. The tag of a signature stands between two manifests and
is passed over: what it says of itself is in the fate of its manifest from the beginning.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ebbtide.core.errors import SafetyStop
from ebbtide.core.instant import to_micros
from ebbtide.targets.oci.evaluation.settling import Settle
from ebbtide.targets.oci.oracle import NO_LAPSE

FATE = ["top", "recycle", "held", "unmatched"]
"""The latest lapse with its policy, whether the bin is asked for, something holds, or a rule was wanting."""


def top() -> Column:
    """Give the lapse and its policy as one value, so that of equal lapses the later name counts."""
    return f.struct("lapse", "policy").alias("top")


def is_stuck() -> Column:
    """Tell that nothing says when a thing may go."""
    return f.col("top.lapse") == to_micros(NO_LAPSE)


def folded(fates: DataFrame) -> DataFrame:
    """Join the fates of each node into one."""
    return fates.groupBy("node").agg(*(f.max(name).alias(name) for name in FATE))


def joined(fates: DataFrame, others: DataFrame, on: str = "node") -> DataFrame:
    """Join fates with those of other nodes, where there are some; say which of them grew."""
    names = {name: f"other_{name}" for name in FATE}
    renamed = others.withColumnsRenamed({"node": on, **names})
    both = fates.join(renamed, on, "left")
    grown = {
        "top": f.greatest("top", "other_top"),
        "recycle": f.col("recycle") | f.coalesce("other_recycle", f.lit(False)),
        "held": f.col("held") | f.coalesce("other_held", f.lit(False)),
        "unmatched": f.col("unmatched") | f.coalesce("other_unmatched", f.lit(False)),
    }
    changed = f.lit(False)
    for name, column in grown.items():
        changed = changed | (column != f.col(name))
    return both.withColumn("changed", changed).withColumns(grown).drop(*names.values())


def handed_on(fates: DataFrame, ties: DataFrame, settle: Settle) -> DataFrame:
    """
    Hand fates on over ties (holder, node) until nothing changes; give those of all that are tied.

    Then what nobody gave a lapse is held, and this is handed on too.
    """
    tied = ties.select("holder").union(ties.select("node")).distinct().withColumnRenamed("holder", "node")
    begun = fates.select("node", *FATE).join(tied, "node").withColumn("changed", f.lit(True))
    lapses = _until_nothing_changes(settle(begun, "lapses"), ties, settle, "lapses")
    stuck = is_stuck() & ~f.col("held")
    held = lapses.withColumns({"changed": stuck, "held": f.col("held") | stuck})
    return _until_nothing_changes(held, ties, settle, "holds")


def _until_nothing_changes(fates: DataFrame, ties: DataFrame, settle: Settle, name: str) -> DataFrame:
    rounds, most = 0, fates.count() + 1
    while fates.where("changed").count():
        # What is handed on passes no node twice, so it arrives in fewer rounds than there are nodes.
        if rounds > most:
            raise SafetyStop(
                f"the fates of images still change after {rounds} rounds",
                why="this cannot be, so nothing may be deleted by it",
                fix="report it as a defect of Ebbtide, with the tables of the registry",
            )
        rounds += 1
        news = fates.where("changed").withColumnRenamed("node", "holder").join(ties, "holder")
        fates = settle(joined(fates.drop("changed"), folded(news)), f"{name}-{rounds % 2}")
    return fates
