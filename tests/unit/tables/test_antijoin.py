"""The hash anti-join: what is in none of the others, and nothing that could not be compared."""

from __future__ import annotations

import pytest

from ebbtide.engine.tables.digest import without

pytestmark = pytest.mark.spark


def names(frame) -> list[str]:
    """Give the names of the rows, sorted."""
    return sorted(row.name for row in frame.collect())


@pytest.fixture
def rows(spark):
    """Give four rows, two of them with one hash."""
    return spark.createDataFrame([(1, "a"), (1, "b"), (2, "c"), (3, "d")], "hash long, name string")


def test_what_is_in_none_of_the_others_remains(spark, rows):
    """Every row of a hash stays or goes, however often the others have it; what only they have is nothing."""
    others = spark.createDataFrame([(2,), (2,), (2,), (9,)], "hash long")

    assert ["a", "b", "d"] == names(without(rows, others))


def test_nothing_is_taken_from_rows_without_others(spark, rows):
    """Without others all rows remain, with all their columns."""
    none = spark.createDataFrame([], "hash long")

    assert (["hash", "name"], ["a", "b", "c", "d"]) == (
        without(rows, none).columns,
        names(without(rows, none)),
    )


def test_a_row_without_a_hash_never_remains(spark, rows):
    """What cannot be compared must not come out as garbage, whether the others have nulls or not."""
    unknown = rows.union(spark.createDataFrame([(None, "odd")], "hash long, name string"))
    nulls = spark.createDataFrame([(None,), (1,)], "hash long")

    assert ["c", "d"] == names(without(unknown, nulls))
    assert ["c", "d"] == names(without(unknown, nulls.dropna()))


def test_several_columns_are_compared_together(spark):
    """A row goes only if one other has all its values; one null among them and it does not come out."""
    rows = spark.createDataFrame(
        [(0, 1, "a"), (1, 1, "b"), (None, 1, "c")], "world int, hash long, name string"
    )
    others = spark.createDataFrame([(0, 1), (1, 2)], "world int, hash long")

    assert ["b"] == names(without(rows, others, on=("world", "hash")))
