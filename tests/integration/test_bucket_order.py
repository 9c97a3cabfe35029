"""The order of a key's versions where only their times tell it, as in an inventory report."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import functions as f

from ebbtide.engine.tables.contracts import VERSIONS
from ebbtide.targets.s3.evaluation.key_intervals import BucketSetting
from ebbtide.targets.s3.evaluation.verdicts import evaluate
from ebbtide.targets.s3.model import Action, Hold, Versioning
from ebbtide.targets.s3.rules.configuration import Configuration, Filter, NoncurrentExpiration, Rule

pytestmark = pytest.mark.spark

DAY = timedelta(days=1)
MOMENT = datetime(2024, 1, 5, tzinfo=UTC)
WRITTEN = {"current": MOMENT + DAY, "twin 2": MOMENT, "twin 1": MOMENT, "oldest": MOMENT - DAY}
DOUBT = (Action.NONE, Hold.UNKNOWN_RANK)
STAYS = (Action.NONE, None)
GOES = (Action.DELETE_VERSION, None)


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        pytest.param(False, [STAYS, DOUBT, DOUBT, GOES], id="reported"),
        pytest.param(True, [STAYS, STAYS, GOES, GOES], id="listed"),
    ],
)
def test_two_versions_of_one_moment(spark, listed, expected):
    """A report does not say which of two came first, so both are held; a listing does say it."""
    rows = [
        {
            **dict.fromkeys(VERSIONS.schema.names),
            "key": "key",
            "version_id": name,
            "kind": "version",
            "last_modified": when,
            "is_latest": name == "current",
            "position": place if listed else None,
        }
        for place, (name, when) in enumerate(WRITTEN.items())
    ]
    versions = spark.createDataFrame(rows, VERSIONS.schema).withColumn("world", f.lit(0))
    rule = Rule("r", True, Filter(""), noncurrent_expiration=NoncurrentExpiration(days=1, newer=1))
    setting = BucketSetting(Configuration((rule,)), MOMENT + 9 * DAY, Versioning.ENABLED)
    found = {row.version_id: (row.action, row.held_by) for row in evaluate(versions, [setting]).collect()}

    assert expected == [found[name] for name in WRITTEN]
