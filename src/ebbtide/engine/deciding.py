"""Deciding: standings as they are at a moment. What has reached its deadline is due, all else is held."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ebbtide.core.decision import Decision
from ebbtide.core.instant import NEVER, to_micros
from ebbtide.engine.tables.contracts import DECISIONS


def decisions_at(standings: DataFrame, now: datetime | Column) -> DataFrame:
    """Give the decision on each standing; what is due has no reason to be held."""
    due = is_due(now)
    return DECISIONS.check(
        standings.withColumns(
            {
                "decision": f.when(due, str(Decision.DUE)).otherwise(str(Decision.HELD)),
                "reason": f.when(~due, f.col("reason")),
                "held_by": f.when(~due, f.col("held_by")),
            }
        )
    )


def is_due(now: datetime | Column) -> Column:
    """Tell of a standing whether it has ended."""
    moment = now if isinstance(now, Column) else f.lit(to_micros(now))
    ends = f.unix_micros("deadline")
    # What never ends is not due at the end of time either.
    return (ends <= moment) & (ends < to_micros(NEVER))
