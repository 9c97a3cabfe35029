"""Forecasts: what the rules will do in the coming days if nothing changes, day by day."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ebbtide.targets.s3.freed import frees_bytes
from ebbtide.targets.s3.model import Action, Versioning


@dataclass(frozen=True)
class Coming:
    """What one rule does on one day."""

    day: date
    action: str
    rule_id: str
    objects: int
    bytes: int
    freed: int
    """How many of the bytes the store gives back."""


def forecast(verdicts: DataFrame, now: datetime, versioning: Versioning) -> list[Coming]:
    """
    Count what is due by the day on which it falls due; what was due before falls on today.

    The verdicts are those of the last day that is asked about. Of an item for which several things fall due
    until then the one that comes to pass in the end is counted.
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
