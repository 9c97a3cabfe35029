"""Verdicts of rules as the engine's: until when each item is kept, by what, and what is done then."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ebbtide.core.decision import HoldReason
from ebbtide.core.instant import NEVER, to_micros
from ebbtide.engine.layers import TOUCHED, UNTOUCHED
from ebbtide.engine.tables.contracts import VERDICTS, condition
from ebbtide.engine.tables.digest import address_hash
from ebbtide.targets.s3.evaluation.verdicts import RESTORED_UNTIL
from ebbtide.targets.s3.model import Action, Hold

COLLECTOR = "bucket"
_SECOND = "yyyy-MM-dd'T'HH:mm:ss'Z'"


def bucket_verdicts(verdicts: DataFrame) -> DataFrame:
    """
    Return the verdict on each version, marker and upload.

    The address is the key: batches and tasks are cut between addresses, so that whoever deletes some versions
    of a key sees the others.
    """
    acts = f.col("action") != str(Action.NONE)
    held = f.col("held_by").isNotNull()
    touched = acts | held | f.col("due").isNotNull()
    never = f.timestamp_micros(f.lit(to_micros(NEVER)))
    none = f.lit(None).cast("string")
    known = RESTORED_UNTIL in verdicts.columns
    restored = f.col(RESTORED_UNTIL) if known else f.lit(None).cast("timestamp")
    return VERDICTS.check(
        verdicts.select(
            address_hash("key").alias("hash"),
            f.col("key").alias("address"),
            _deadline(never, restored).alias("deadline"),
            f.coalesce("held_by", f.lit(str(HoldReason.NOT_YET))).alias("hold"),
            f.when(touched, _holder(restored)).otherwise(none).alias("holder"),
            f.array("key").alias("names"),
            f.array_compact(f.array("rule_id")).alias("rules"),
            f.coalesce("size", f.lit(0)).cast("long").alias("size"),
            f.col("last_modified").alias("created"),
            f.lit(COLLECTOR).alias("collector"),
            f.col("version_id").alias("version"),
            "action",
            f.col("goal").alias("destination"),
            condition(etag=f.col("etag"), is_latest=f.col("current"), newer_versions=f.col("newer")).alias(
                "condition"
            ),
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
