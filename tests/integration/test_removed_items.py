"""Removed items on Spark: executors are told the same as the driver."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pyspark.sql import functions as f
from tests.services.outcomes import FIRST, Happened, make_desk

from ebbtide.core.decision import RESTORE, HoldReason, Outcome
from ebbtide.engine.tables.contracts import VERDICTS
from ebbtide.engine.tables.digest import address_hash
from ebbtide.targets.s3.bin import restored_until, restored_versions, with_restored

pytestmark = pytest.mark.spark

UNTIL = FIRST + timedelta(days=9)


def test_executors_leave_out_what_is_gone_and_hold_what_was_restored(spark, tmp_path):
    """An item that was deleted, restored and deleted again is gone; one that is back is held."""
    desk = make_desk(tmp_path)
    names = [f"n{number}" for number in range(40)]
    desk.run(*(Happened(one, Outcome.RECYCLED) for one in names[:30]))
    desk.table.folded(FIRST)
    restore = desk.restore(*names[:6], until=UNTIL)
    desk.table.folded(FIRST)
    desk.run(Happened(names[0], Outcome.DELETED))
    items = desk.table.folded(FIRST)
    rows = spark.createDataFrame([(one,) for one in names], "address string")
    empty = {field.name: f.lit(None).cast(field.dataType) for field in VERDICTS.schema}
    verdicts = rows.select(
        *(
            {"address": f.col("address"), "hash": address_hash("address"), "deadline": f.lit(FIRST)}.get(
                name, column
            ).alias(name)
            for name, column in empty.items()
        )
    )
    found = {row["address"]: row for row in items.laid_over(verdicts).toArrow().to_pylist()}

    assert len(items.segments) > 1
    assert {*names[1:6], *names[30:]} == set(found)
    assert sorted(row["hash"] for row in items.gone(spark).distinct().toArrow().to_pylist()) == [
        int(one) for one in items.gone_hashes()
    ]
    assert {(str(HoldReason.RESTORED), f"restore {restore}", UNTIL)} == {
        (found[one]["hold"], found[one]["holder"], found[one]["deadline"]) for one in names[1:6]
    }
    assert {FIRST} == {found[one]["deadline"] for one in names[30:]}


def test_of_a_bucket_the_version_that_came_back_is_held(spark, tmp_path):
    """A hold is on the restored version alone, or on all of its key if nobody knows which one came back."""
    desk = make_desk(tmp_path)
    back = Outcome.RESTORED
    desk.run(Happened("a", back, UNTIL, "v2"), Happened("b", back, UNTIL), collector=RESTORE)
    items = desk.table.folded(FIRST)
    rows = [(key, version) for key in ("a", "b", "c") for version in ("v1", "v2")]
    versions = spark.createDataFrame(rows, "key string, version_id string")
    found = {
        (row["key"], row["version_id"]): row["restored_until"]
        for row in with_restored(versions, items).toArrow().to_pylist()
    }
    looked_up = {
        (key, version): restored_until(restored_versions(desk.table, key), version) for key, version in rows
    }

    held = {("a", "v2"), ("b", "v1"), ("b", "v2")}
    assert {row: UNTIL if row in held else None for row in rows} == found == looked_up
