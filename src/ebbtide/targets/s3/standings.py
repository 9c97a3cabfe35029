"""Verdicts as the engine's standings: until when each item is kept, by what, and what is done then."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ebbtide.core.decision import HoldReason
from ebbtide.core.instant import NEVER, to_micros
from ebbtide.engine.layers import TOUCHED, UNTOUCHED
from ebbtide.engine.tables.contracts import STANDINGS, TASK
from ebbtide.engine.tables.digest import address_hash
from ebbtide.targets.s3.evaluation.verdicts import RESTORED_UNTIL
from ebbtide.targets.s3.model import Action, Hold

_SECOND = "yyyy-MM-dd'T'HH:mm:ss'Z'"


def bucket_standings(verdicts: DataFrame) -> DataFrame:
    """
    Give each version, marker and upload its standing.

    The address is the key: waves and tasks are cut between addresses, so that whoever deletes some versions
    of a key sees the others.
    """
    acts = f.col("action") != str(Action.NONE)
    held = f.col("held_by").isNotNull()
    touched = acts | held | f.col("due").isNotNull()
    never = f.timestamp_micros(f.lit(to_micros(NEVER)))
    none = f.lit(None).cast("string")
    known = RESTORED_UNTIL in verdicts.columns
    restored = f.col(RESTORED_UNTIL) if known else f.lit(None).cast("timestamp")
    return STANDINGS.check(
        verdicts.select(
            f.lit(0).alias("world"),
            address_hash("key").alias("hash"),
            f.col("key").alias("address"),
            _deadline(never, restored).alias("deadline"),
            f.coalesce("held_by", f.lit(str(HoldReason.NOT_YET))).alias("reason"),
            f.when(touched, _holder(restored)).otherwise(none).alias("held_by"),
            f.array("key").alias("paths"),
            f.array_compact(f.array("rule_id")).alias("rules"),
            f.array().cast("array<string>").alias("branches"),
            f.coalesce("size", f.lit(0)).cast("long").alias("size"),
            f.col("last_modified").alias("created"),
            f.col("action").alias("collector"),
            _task().cast(TASK).alias("task"),
            f.when(touched, TOUCHED).otherwise(UNTOUCHED).alias("kind"),
        )
    )


def _deadline(never: Column, restored: Column) -> Column:
    """Say when an item is due: a hold ends nobody knows when, but for the days of what was restored."""
    return (
        f.when(f.col("held_by") == str(Hold.RESTORED), restored)
        .when(f.col("held_by").isNotNull(), never)
        .otherwise(f.coalesce("due", never))
    )


def _holder(restored: Column) -> Column:
    """Name what keeps an item that is not due: its hold, or the rule that will end it."""
    back = f.concat(f.col("held_by"), f.lit(" until "), f.date_format(restored, _SECOND))
    locked = f.concat(f.col("held_by"), f.lit(" until "), f.date_format("retain_until", _SECOND))
    coming = f.concat(f.lit("rule "), f.col("rule_id"), f.lit(" from "), f.date_format("due", _SECOND))
    return (
        f.when(f.col("held_by") == str(Hold.RETENTION), locked)
        .when(f.col("held_by") == str(Hold.RESTORED), back)
        .when(f.col("held_by") == str(Hold.LAKE), f.col("holder"))
        .when(f.col("held_by").isNotNull(), f.col("held_by"))
        .otherwise(f.concat(coming, f.lit(" on")))
    )


def _task() -> Column:
    """Say what is to be done, and what must still be so then."""
    return f.struct(
        f.col("action"),
        f.col("version_id").alias("version"),
        f.col("etag"),
        f.col("current").alias("latest"),
        f.col("newer"),
        f.col("goal"),
    )
