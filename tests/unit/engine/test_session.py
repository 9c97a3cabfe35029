"""The Spark session of a process."""

from __future__ import annotations

import pytest

from ebbtide.engine.spark.session import SparkOptions, spark_session

pytestmark = pytest.mark.spark


def test_an_inner_session_is_the_outer_one_and_does_not_end_it(spark, tmp_path):
    """A process has one Spark context, so a block inside another uses its session and leaves it running."""
    with spark_session(SparkOptions(), cache=tmp_path) as inner:
        assert spark is inner

    assert 3 == spark.range(3).count()
