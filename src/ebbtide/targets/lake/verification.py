"""
Re-verification at apply: what came to be referenced after the plan's snapshot, reading only the difference.

Ranges are immutable, so whatever is new is either a range that the plan did not see or a range that somebody
new reaches (a new branch or tag on an old commit, a revert, a staged copy). Only those are read. What takes a
planned item out is up to the collector that found it: for lifecycle a reference that has not lapsed by the
plan's own policy and time, for retention one that is kept for longer, for uncommitted garbage any at all.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.core.decision import CollectorName
from ebbtide.core.instant import to_micros
from ebbtide.engine.layout import RunFolder
from ebbtide.engine.tables.contracts import NEWLY_REFERENCED, PLAN, RANGES
from ebbtide.targets.lake.lifecycle.references import references
from ebbtide.targets.lake.metadata.ranges import written_ranges
from ebbtide.targets.lake.metadata.world import ONLY_WORLD, World
from ebbtide.targets.lake.retention.references import kept_ranges, read_kept
from ebbtide.targets.lake.rulebook import Rulebook

_SAME_RANGE = ["folder", "range_id"]


def newly_referenced(spark: SparkSession, world: World, rules: Rulebook, folder: RunFolder) -> DataFrame:
    """Find the planned items that a reference keeps now and that none kept at the plan's snapshot."""
    now = written_ranges(spark, {ONLY_WORLD: world}, folder.scratch / "ranges")
    planned = RANGES.read(spark, folder.snapshot)
    keepers = {
        CollectorName.LIFECYCLE: _lifecycle_keepers,
        CollectorName.UNCOMMITTED: _uncommitted_keepers,
        CollectorName.RETENTION: _retention_keepers,
    }
    plan = PLAN.read(spark, folder.plan)
    found = [
        keepers[one](now, planned, world)
        .select("hash", "key", "holder", "why")
        .join(
            plan.where(f.col("collector") == str(one)).select("hash").hint("shuffle_hash"),
            "hash",
            "left_semi",
        )
        for one in rules.collectors
    ]
    keeper = (
        reduce(DataFrame.unionByName, found)
        .groupBy("hash")
        .agg(f.min(f.struct("key", "holder", "why")).alias("by"))
    )
    reason = f.concat_ws(" ", "by.key", "by.holder")
    why = f.concat(f.lit("referenced since the plan was made: "), reason, f.lit(" ("), f.col("by.why"))
    return NEWLY_REFERENCED.check(keeper.select("hash", f.concat(why, f.lit(")")).alias("reason")))


def _lifecycle_keepers(now: DataFrame, planned: DataFrame, world: World) -> DataFrame:
    """Give references that have not lapsed, of ranges that are reached in a way the plan did not see."""
    # `days` may hold nulls, which never equal each other in a join; as text they do.
    treatment = f.to_json(f.struct(f.col("days")), {"ignoreNullFields": "false"})
    seen = planned.select(*_SAME_RANGE, "referrer", treatment.alias("treatment")).distinct()
    new = now.withColumn("treatment", treatment).join(
        seen, [*_SAME_RANGE, "referrer", "treatment"], "left_anti"
    )
    return references(new, {ONLY_WORLD: world}).where(f.unix_micros("lapse") > to_micros(world.now))


def _uncommitted_keepers(now: DataFrame, planned: DataFrame, world: World) -> DataFrame:
    """Give all references of ranges that the plan did not see."""
    return references(
        now.join(planned.select(*_SAME_RANGE).distinct(), _SAME_RANGE, "left_anti"), {ONLY_WORLD: world}
    )


def _retention_keepers(now: DataFrame, planned: DataFrame, world: World) -> DataFrame:
    """Give references of ranges that a commit keeps at the plan's time, and none kept when it was made."""
    kept = f.unix_micros("until") > to_micros(world.now)
    seen = kept_ranges(planned).where(kept).select(*_SAME_RANGE)
    new = kept_ranges(now).where(kept).join(seen, _SAME_RANGE, "left_anti")
    return read_kept(new, {ONLY_WORLD: world.files})
