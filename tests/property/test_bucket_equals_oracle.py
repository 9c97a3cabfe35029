"""The Spark evaluation of lifecycle rules equals the oracle, with which it shares no code, on any bucket."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from tests.property.bucket_worlds import BucketWorld, bucket_worlds
from tests.worlds_of_s3.rows import CASES

from ebbtide.targets.s3.evaluation.key_intervals import BucketSetting
from ebbtide.targets.s3.evaluation.rule_classes import FEW_TAG_SETS
from ebbtide.targets.s3.model import Action, Hold, Version
from ebbtide.targets.s3.oracle import evaluate
from ebbtide.targets.s3.rules.configuration import Configuration, Expiration, Filter, Rule
from ebbtide.targets.s3.simulation import simulate

pytestmark = pytest.mark.spark

WORLDS = 300
SEED = 20261116


def drawn(count: int) -> list[BucketWorld]:
    """Draw worlds, so that all of them can be judged in one job."""
    worlds: list[BucketWorld] = []

    @seed(SEED)
    @settings(
        max_examples=count, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(bucket_worlds())
    def draw(world: BucketWorld) -> None:
        worlds.append(world)

    draw()
    return worlds


def judged(spark, worlds):
    """Judge worlds with Spark."""
    cases = [(BucketSetting(w.configuration, w.now, w.versioning, w.protected), w.items) for w in worlds]
    return simulate(spark, cases)


def test_spark_equals_the_oracle(spark):
    """On every drawn bucket each version, marker and upload gets the very verdict that the oracle gives."""
    worlds = drawn(WORLDS)
    verdicts = [evaluate(w.configuration, w.items, w.now, w.versioning, w.protected) for w in worlds]
    kinds = {(verdict.action, verdict.held_by) for found in verdicts for verdict in found}

    for world, expected, actual in zip(worlds, verdicts, judged(spark, worlds), strict=True):
        assert expected == actual, world
    assert set(Action) == {action for action, _ in kinds}
    assert {*Hold, None} == {hold for _, hold in kinds}


def test_the_rows_of_the_semantics_hold_in_spark(spark):
    """Every case of the semantics rows comes out of the Spark evaluation as it must."""
    cases = [(BucketSetting(c.configuration, c.now, c.versioning, c.protected), c.items) for c in CASES]

    for case, actual in zip(CASES, simulate(spark, cases), strict=True):
        assert list(case.expected) == actual, case


def test_more_tag_sets_than_can_be_listed(spark):
    """A place with so many tag sets that their combinations are not listed is judged by those that occur."""
    world = drawn(1)[0]
    rules = tuple(
        Rule(f"r{number}", True, Filter("", ((f"k{number % 7}", f"v{number}"),)), Expiration(days=1 + number))
        for number in range(3 * FEW_TAG_SETS)
    )
    tags = [
        {},
        {"k0": "v0"},
        {"k0": "v7", "k1": "v1"},
        {"k2": "v2", "k3": "v3", "k4": "v4"},
        {"k5": "other"},
        {"k3": "v17", "k1": "v8"},
    ]
    items = tuple(
        Version(f"key{number}", "v", world.now.replace(year=2024), True, size=1, tags=one)
        for number, one in enumerate(tags)
    )
    many = replace(
        world, protected=(), configuration=Configuration(rules), items=items, now=world.now.replace(year=2025)
    )
    (actual,) = judged(spark, [many])

    assert evaluate(many.configuration, items, many.now, many.versioning) == actual
    assert {"r0", "r1", "r2", "r8", None} == {verdict.rule_id for verdict in actual}
