"""
Re-verification at apply: what came to be referenced after the plan's snapshot, reading only the difference.

Ranges are immutable, so whatever is new is either a range that the plan did not see or a range that somebody
new reaches (a new branch or tag on an old commit, a revert, a staged copy). Only those are read; every
reference in them that has not lapsed by the plan's own policy and time takes its address out of the plan.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.engine.layout import RunFolder
from ebbtide.lake.lifecycle.planning import ONLY_WORLD
from ebbtide.lake.lifecycle.references import references
from ebbtide.lake.metadata.ranges import range_table
from ebbtide.lake.metadata.world import World
from ebbtide.rules.instant import to_micros
from ebbtide.tables.contracts import NEWLY_REFERENCED, PLAN, RANGES


def newly_referenced(spark: SparkSession, world: World, folder: RunFolder) -> DataFrame:
    """Find the planned items that a reference keeps now and that none kept at the plan's snapshot."""
    worlds = {ONLY_WORLD: world}
    planned = PLAN.read(spark, folder.plan).select("hash").hint("shuffle_hash")
    new = _new_ranges(range_table(spark, worlds), RANGES.read(spark, folder.snapshot))
    keeping = references(new, worlds).where(f.unix_micros("lapse") > to_micros(world.now))
    found = (
        keeping.join(planned, "hash", "left_semi")
        .groupBy("hash")
        .agg(f.min(f.struct("key", "holder", "why")).alias("keeper"))
    )
    reason = f.concat_ws(" ", "keeper.key", "keeper.holder")
    why = f.concat(f.lit("referenced since the plan was made: "), reason, f.lit(" ("), f.col("keeper.why"))
    return NEWLY_REFERENCED.check(found.select("hash", f.concat(why, f.lit(")")).alias("reason")))


def _new_ranges(now: DataFrame, planned: DataFrame) -> DataFrame:
    """Keep the ranges, by how the rules treat who reaches them, that the plan did not see."""
    # `days` may hold nulls, which never equal each other in a join; as text they do.
    treatment = f.to_json(f.struct(f.col("days")), {"ignoreNullFields": "false"})
    seen = planned.select("folder", "range_id", "referrer", treatment.alias("treatment")).distinct()
    return now.withColumn("treatment", treatment).join(
        seen, ["folder", "range_id", "referrer", "treatment"], "left_anti"
    )
