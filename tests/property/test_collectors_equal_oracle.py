"""Lifecycle, uncommitted and retention, alone and together, say what the oracle says, on every world."""

from __future__ import annotations

import pytest
from tests.worlds import NOW, many_worlds

from ebbtide.core.decision import CollectorName, Decision
from ebbtide.core.instant import parse_instant
from ebbtide.targets.repository.oracle import judge_world
from ebbtide.targets.repository.simulation import simulate
from ebbtide.targets.repository.world_document import world_document

pytestmark = pytest.mark.spark

WORLDS = 200
SEED = 20261116


@pytest.fixture(scope="module")
def judged(spark):
    """Judge many generated worlds in one job, and each by the oracle."""
    now = parse_instant(NOW)
    documents = [world_document(world) for world in many_worlds(WORLDS, SEED, every=True)]
    simulated = simulate(spark, [(document, now) for document in documents])
    return [
        (document, found, judge_world(document, now))
        for document, found in zip(documents, simulated, strict=True)
    ]


def test_the_generated_worlds_are_worth_judging(judged):
    """Every collector finds enough, alone and beside others, or the comparison would say little."""
    found = [collector for _, _, expected in judged for collector in expected.collectors.values()]

    assert len(judged) > WORLDS * 0.9
    assert all(found.count(collector) > 20 for collector in CollectorName)
    assert sum(len(document.collect) > 1 for document, _, _ in judged) > 35
    assert sum(len(expected.held) for _, _, expected in judged) > 200


def test_the_collectors_equal_the_oracle(judged):
    """Due, held, deadlines and who found what equal the oracle's on every generated world."""
    for document, found, expected in judged:
        due = [row for row in found.decisions if row["decision"] == Decision.DUE]

        assert sorted(expected.due) == found.addresses(Decision.DUE), document
        assert sorted(expected.held) == found.addresses(Decision.HELD), document
        assert dict(expected.deadlines) == {row["address"]: row["deadline"] for row in found.decisions}
        assert expected.collectors == {row["address"]: row["collector"] for row in due}, document


def test_what_is_due_is_what_one_collector_alone_would_find(judged):
    """Nothing goes because of two collectors that would not go because of one."""
    now = parse_instant(NOW)
    for document, found, _ in judged:
        alone = [
            judge_world(type(document)(**{**vars(document), "collect": (one,)}), now).due
            for one in document.collect
        ]

        assert sorted(frozenset().union(*alone)) == found.addresses(Decision.DUE), document
