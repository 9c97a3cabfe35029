"""Addresses hash alike in Spark and in Python."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as f

from ebbtide.engine.tables.digest import address_hash, hash_addresses

pytestmark = pytest.mark.spark

ADDRESSES = ["", "a", "repos/r/branches/main/p/0001", "ü/日本/𝄞", "x" * 1000, *(str(n) for n in range(200))]


def test_both_sides_of_a_join_hash_alike(spark):
    """The number that an executor gives an address is the one that Spark gives it."""
    rows = spark.createDataFrame([(address,) for address in ADDRESSES], "address string")
    hashed = rows.select("address", address_hash(f.col("address")).alias("hash")).toArrow().to_pylist()

    assert {row["address"]: row["hash"] for row in hashed} == dict(
        zip(ADDRESSES, hash_addresses(ADDRESSES).tolist(), strict=True)
    )
