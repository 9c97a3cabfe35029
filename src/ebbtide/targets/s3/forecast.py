"""Forecasts: what the rules will do on each of the coming days if the bucket does not change."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ebbtide.targets.s3.model import Action, Versioning, frees_bytes


@dataclass(frozen=True)
class Coming:
    """What one rule will do on one day."""

    day: date
    action: str
    rule_id: str
    objects: int
    bytes: int
    freed: int
    """The bytes that the store frees."""


def forecast(verdicts: DataFrame, now: datetime, versioning: Versioning) -> list[Coming]:
    """
    Count what is due by day; what was due earlier counts for today.

    The verdicts must be those of the last day. If several actions fall due for an item until then, the one
    that is in effect on the last day is counted.
    """
    today = f.lit(now.date())
    day = f.greatest(f.to_date("due"), today).alias("day")
    frees = f.expr(frees_bytes(versioning, "action", "version_id"))
    counted = (
        verdicts.where(f.col("action") != str(Action.NONE))
        .groupBy(day, "action", "rule_id")
        .agg(
            f.count(f.lit(1)).alias("objects"),
            f.coalesce(f.sum("size"), f.lit(0)).alias("bytes"),
            f.coalesce(f.sum(f.when(frees, f.col("size"))), f.lit(0)).alias("freed"),
        )
        .orderBy("day", "action", "rule_id")
    )
    return [Coming(**row) for row in counted.toArrow().to_pylist()]
