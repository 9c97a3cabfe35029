"""Null versions that a delete marker replaces where versioning is suspended: shown, and held if locked."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from ebbtide.engine.tables.contracts import VERSIONS
from ebbtide.storage.store import StoreSpec
from ebbtide.targets.s3.context import EffectiveRules, Source
from ebbtide.targets.s3.evaluation.verdicts import REPLACES
from ebbtide.targets.s3.explanation import ItemExplanation, with_replaced_null
from ebbtide.targets.s3.model import Action, Hold, Version, Versioning
from ebbtide.targets.s3.oracle import evaluate
from ebbtide.targets.s3.planner import BucketPlanner, bucket_verdicts
from ebbtide.targets.s3.rules.document import read_configuration

pytestmark = pytest.mark.spark

NOW = datetime(2025, 1, 1, tzinfo=UTC)
RULES = read_configuration(
    {
        "Rules": [
            {"ID": "end", "Status": "Enabled", "Filter": {}, "Expiration": {"Days": 5}},
            {
                "ID": "old",
                "Status": "Enabled",
                "Filter": {"Prefix": "old/"},
                "NoncurrentVersionExpiration": {"NoncurrentDays": 1},
            },
        ]
    }
)
NULL = Version("", "null", NOW - timedelta(days=20), is_latest=False, size=1)
CASES: dict[str, tuple[Version, bool, Hold | None]] = {
    "free": (NULL, True, None),
    "old/goes anyway": (NULL, False, None),
    "marker": (replace(NULL, is_delete_marker=True, size=None), False, None),
    "named": (replace(NULL, version_id="v0"), False, None),
    "held": (replace(NULL, legal_hold=True), False, Hold.LEGAL_HOLD),
    "locked": (replace(NULL, retain_until=NOW + timedelta(days=1)), False, Hold.RETENTION),
    "old/locked": (replace(NULL, retain_until=NOW + timedelta(days=1)), False, Hold.RETENTION),
    "free again": (replace(NULL, retain_until=NOW), True, None),
}
"""By key: what lies behind the current version v1, whether expiring that destroys it, and what holds it."""


def versions_of(key: str) -> list[Version]:
    """Give the current version and the one behind it."""
    current = Version(key, "v1", NOW - timedelta(days=10), is_latest=True, size=1)
    return [current, replace(CASES[key][0], key=key)]


def verdicts(spark, versioning):
    """Judge all cases as a plan does."""
    rows = [
        {
            **{name: getattr(one, name, None) for name in VERSIONS.columns},
            "kind": "marker" if one.is_delete_marker else "version",
            "position": position,
        }
        for key in CASES
        for position, one in enumerate(versions_of(key))
    ]
    sourced = EffectiveRules(RULES, Source.FILE, versioning)
    planner = BucketPlanner(spark, StoreSpec("s3://b"), sourced, NOW)
    return planner.verdicts(spark.createDataFrame(rows, VERSIONS.schema))


def test_a_plan_shows_what_its_markers_replace(spark):
    """An expiration that destroys a null version is marked, and one of a locked null version is held."""
    frame = verdicts(spark, Versioning.SUSPENDED)
    rows = {row.key: row for row in frame.where("version_id = 'v1'").collect()}
    held = bucket_verdicts(frame).where("address = 'locked' and version = 'v1'").first()

    assert {key: case[1:] for key, case in CASES.items()} == {
        key: (row[REPLACES], row.held_by) for key, row in rows.items()
    }
    assert {key: "none" if case[2] else "expire" for key, case in CASES.items()} == {
        key: row.action for key, row in rows.items()
    }
    assert "object lock retention until 2025-01-02T00:00:00Z" == held.holder


def test_where_versions_are_kept_nothing_is_replaced(spark):
    """With versioning enabled a marker has an id of its own, and no lock behind it matters."""
    rows = verdicts(spark, Versioning.ENABLED).where("version_id = 'v1'").collect()

    assert {"expire"} == {row.action for row in rows}


@pytest.mark.parametrize("key", CASES)
def test_explain_says_the_same(key):
    """What a plan says of a key explain says of it, too, with the reason."""
    items = versions_of(key)
    judged = evaluate(RULES, items, NOW, Versioning.SUSPENDED)
    found = with_replaced_null([ItemExplanation(*pair) for pair in zip(items, judged, strict=True)], NOW)
    _, replaces, hold = CASES[key]

    assert (Action.NONE if hold else Action.EXPIRE, hold) == (
        found[0].verdict.action,
        found[0].verdict.held_by,
    )
    assert (replaces or hold is not None) == bool(found[0].notes)
    assert () == found[1].notes
