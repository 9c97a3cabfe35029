"""The Spark pipeline says what the oracle says, on every world."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from tests.worlds import NOW, worlds

from ebbtide.lake.oracle import judge_world
from ebbtide.lake.simulation import simulate
from ebbtide.lake.world_document import world_document
from ebbtide.plan.decision import Decision
from ebbtide.rules.instant import parse_instant

pytestmark = pytest.mark.spark


@seed(20261115)
@settings(
    max_examples=4,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    deadline=None,
)
@given(batch=st.lists(worlds(), min_size=60, max_size=60))
def test_pipeline_equals_oracle(spark, batch):
    """Due, held and deadlines of many generated worlds, judged in one job, equal the oracle's."""
    documents = [world_document(world) for world in batch]
    now = parse_instant(NOW)
    simulated = simulate(spark, [(document, now) for document in documents])

    for document, found in zip(documents, simulated, strict=True):
        expected = judge_world(document, now)
        deadlines = {row["address"]: row["deadline"] for row in found.decisions}

        assert sorted(expected.due) == found.addresses(Decision.DUE), document
        assert sorted(expected.held) == found.addresses(Decision.HELD), document
        assert dict(expected.deadlines) == deadlines, document


@seed(20261115)
@settings(max_examples=1, phases=[Phase.generate], suppress_health_check=list(HealthCheck), deadline=None)
@given(batch=st.lists(worlds(), min_size=60, max_size=60))
def test_what_holds_an_item_has_not_lapsed(spark, batch):
    """The reference that a held row names is one that, by the oracle, really keeps the item."""
    documents = [world_document(world) for world in batch]
    now = parse_instant(NOW)
    words = {
        "on branch": "branch",
        "staged on branch": "staging",
        "under tag": "tag",
        "in dangling commit": "dangling",
    }
    for document, found in zip(documents, simulate(spark, [(d, now) for d in documents]), strict=True):
        expected = judge_world(document, now)
        for row in found.decisions:
            if row["decision"] == Decision.HELD:
                key, _, rest = row["held_by"].partition(" ")
                phrase, name = rest.rsplit(" ", 1)

                assert f"{key} <- {words[phrase]} {name}" in expected.held[row["address"]], document
