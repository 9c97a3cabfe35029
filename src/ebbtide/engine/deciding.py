"""Decisions: verdicts at a moment. An item whose deadline has come is due, every other one is held."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ebbtide.core.decision import Decision
from ebbtide.core.instant import NEVER, to_micros


def decisions_at(verdicts: DataFrame, now: datetime | Column) -> DataFrame:
    """Add the decision to each verdict; an item that is due has no hold."""
    due = is_due(now)
    return verdicts.withColumns(
        {
            "decision": f.when(due, str(Decision.DUE)).otherwise(str(Decision.HELD)),
            "hold": f.when(~due, f.col("hold")),
            "holder": f.when(~due, f.col("holder")),
        }
    )


def is_due(now: datetime | Column) -> Column:
    """Return whether the deadline of a verdict has come."""
    moment = now if isinstance(now, Column) else f.lit(to_micros(now))
    ends = f.unix_micros("deadline")
    # What never ends is not due at the end of time either.
    return (ends <= moment) & (ends < to_micros(NEVER))
