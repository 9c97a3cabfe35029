"""The Spark pipeline says what the oracle says, on every world."""

from __future__ import annotations

import pytest
from tests.worlds import NOW, many_worlds

from ebbtide.core.decision import Decision, HoldReason
from ebbtide.core.instant import parse_instant
from ebbtide.targets.repository.oracle import judge_world
from ebbtide.targets.repository.simulation import simulate
from ebbtide.targets.repository.world_document import world_document

pytestmark = pytest.mark.spark

WORLDS = 320
SEED = 20261115
WORDS = {
    "on branch": "branch",
    "staged on branch": "staging",
    "under tag": "tag",
    "in dangling commit": "dangling",
}


@pytest.fixture(scope="module")
def judged(spark):
    """Judge many generated worlds in one job, and each by the oracle."""
    now = parse_instant(NOW)
    documents = [world_document(world) for world in many_worlds(WORLDS, SEED)]
    simulated = simulate(spark, [(document, now) for document in documents])
    return [
        (document, found, judge_world(document, now))
        for document, found in zip(documents, simulated, strict=True)
    ]


def test_the_generated_worlds_are_worth_judging(judged):
    """Enough of the worlds have something due and something held, or the comparison would say little."""
    assert len(judged) > WORLDS * 0.9
    assert sum(len(expected.due) for _, _, expected in judged) > 50
    assert sum(len(expected.held) for _, _, expected in judged) > 100
    held = [words for _, _, expected in judged for found in expected.held.values() for words in found]
    assert sum(words.endswith(" <- restored") for words in held) > 5


def test_the_pipeline_equals_the_oracle(judged):
    """Due, held and deadlines of every generated world equal the oracle's."""
    for document, found, expected in judged:
        deadlines = {row["address"]: row["deadline"] for row in found.decisions}

        assert sorted(expected.due) == found.addresses(Decision.DUE), document
        assert sorted(expected.held) == found.addresses(Decision.HELD), document
        assert dict(expected.deadlines) == deadlines, document


def test_what_is_named_as_holding_an_item_has_not_lapsed(judged):
    """The reference that a held row names is one that, by the oracle, really keeps the item."""
    for document, found, expected in judged:
        for row in found.decisions:
            if row["decision"] == Decision.HELD and row["holder"] == row["address"]:
                kind = {HoldReason.OUTSIDE: "outside", HoldReason.METADATA: "metadata"}[row["hold"]]

                assert f"{row['address']} <- {kind}" in expected.held[row["address"]], document
            elif row["decision"] == Decision.HELD and row["hold"] == HoldReason.RESTORED:
                assert {f"{row['address']} <- restored"} == expected.held[row["address"]], document
            elif row["decision"] == Decision.HELD:
                key, _, rest = row["holder"].partition(" ")
                phrase, name = rest.rsplit(" ", 1)

                assert f"{key} <- {WORDS[phrase]} {name}" in expected.held[row["address"]], document
