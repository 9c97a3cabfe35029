"""The hash anti-join: what is in one table and in none of another, compared by hash alone."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame


def without(rows: DataFrame, others: DataFrame, on: Sequence[str] = ("hash",)) -> DataFrame:
    """
    Give the rows whose hash is in none of the others.

    Safe because a collision can only make garbage look referenced, and so keep it. A row without a hash can
    be compared with nothing; it would be in none of the others, so it is left out.
    """
    known = rows.dropna(subset=list(on))
    return known.join(others.select(*on).hint("shuffle_hash"), list(on), "left_anti")
