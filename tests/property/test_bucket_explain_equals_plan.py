"""Explaining a key of a bucket says what a plan's rows say, on any bucket, without Spark."""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.sql import functions as f
from tests.property.test_bucket_equals_oracle import drawn
from tests.worlds_of_s3.rows import CASES

from ebbtide.core.decision import Decision
from ebbtide.core.instant import to_micros
from ebbtide.engine.verdicts import decisions_at
from ebbtide.targets.s3.context import EffectiveRules, Source
from ebbtide.targets.s3.evaluation.key_intervals import BucketSetting
from ebbtide.targets.s3.evaluation.verdicts import evaluate
from ebbtide.targets.s3.explanation import KEPT, explain_items
from ebbtide.targets.s3.model import Upload, Version, Versioning
from ebbtide.targets.s3.planner import bucket_verdicts
from ebbtide.targets.s3.simulation import _rows

pytestmark = pytest.mark.spark

WORLDS = 150


def name_of(item: Version | Upload) -> tuple[str, str, str]:
    """Name an item as its row is named: key, whether it is an upload, and id."""
    if isinstance(item, Upload):
        return item.key, "true", item.upload_id
    return item.key, "false", item.version_id


def planned(spark, worlds):
    """Decide on the items of many buckets as plans do, in one job, by bucket, key, kind and id."""
    cases = [(BucketSetting(w.configuration, w.now, w.versioning, w.protected), w.items) for w in worlds]
    judged = evaluate(_rows(spark, cases).withColumn("etag", f.lit("e")), [setting for setting, _ in cases])
    named = f.concat_ws("\0", f.col("world").cast("string"), "key", f.col("kind") == "upload")
    found = bucket_verdicts(judged.withColumn("key", named)).where("kind = 'touched'")
    clocks = spark.createDataFrame(
        [(str(n), to_micros(w.now)) for n, w in enumerate(worlds)], "number string, now long"
    )
    timed = found.withColumn("number", f.substring_index("address", "\0", 1)).join(clocks, "number")
    rows = decisions_at(timed, f.col("now")).toArrow().to_pylist()
    return {(*row["address"].split("\0"), row["version"]): row for row in rows}


def test_every_row_is_explained_as_it_was_decided(spark):
    """Decision, deadline, reason, holder and rules are the same for every item of every bucket."""
    # With versioning suspended a plan looks at whole keys once more; that has tests of its own.
    drawn_worlds = [w for w in [*drawn(WORLDS), *CASES] if w.versioning is not Versioning.SUSPENDED]
    worlds = [w for w in drawn_worlds if len(w.items) == len({name_of(item) for item in w.items})]
    rows = planned(spark, worlds)
    seen = Counter()
    for number, world in enumerate(worlds):
        rules = EffectiveRules(world.configuration, Source.FILE, world.versioning, protected=world.protected)
        for one in explain_items(world.items, rules, world.now):
            row = rows.pop((str(number), *name_of(one.item)), None)
            seen[one.decision] += 1

            assert one.reason, (world, one)
            if row is None:
                assert KEPT == one.decision, (world, one)
                continue
            due = row["decision"] == Decision.DUE
            told = (row["decision"], row["deadline"], row["hold"], row["holder"], row["rules"])
            said = (one.decision, one.deadline, one.reason, one.holder, list(one.rules))

            assert told == (said if not due else (*said[:2], None, None, said[4])), (world, one)

    assert {} == rows
    assert all(seen[decision] > 100 for decision in ("due", "held", KEPT)), seen
