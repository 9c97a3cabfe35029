"""Explaining an address says what the oracle says of it, on every world; neither needs Spark."""

from __future__ import annotations

import pytest
from tests.worlds import NOW, many_worlds

from ebbtide.core.decision import Decision, HoldReason
from ebbtide.core.instant import NEVER, parse_instant
from ebbtide.engine.removed_table import RestoredItem
from ebbtide.storage.address import canonical
from ebbtide.targets.repository.explanation import KEPT, ObjectExplanation, explain, held_since_restore
from ebbtide.targets.repository.oracle import judge_world
from ebbtide.targets.repository.simulation import _worlds
from ebbtide.targets.repository.world_document import WorldDocument, world_document

WORLDS = 200
SEED = 20261118


def entries_of(document: WorldDocument):
    """Give each key of each commit and of all staging, with the canonical address that it has there."""
    held = [*(commit.entries for commit in document.commits), *document.staged.values()]
    return {
        (key, canonical(entry.address, document.namespace))
        for entries in held
        for key, entry in entries.items()
    }


def restored_in(document: WorldDocument, address: str) -> RestoredItem:
    """Say until when a world holds an address because it was restored."""
    return RestoredItem(parse_instant(NOW), 0, document.restored.get(address))


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    """Write many generated worlds as ranges, each with what the oracle says of it."""
    now = parse_instant(NOW)
    documents = [world_document(world) for world in many_worlds(WORLDS, SEED, every=True)]
    cases = {number: (document, now) for number, document in enumerate(documents)}
    written = _worlds(tmp_path_factory.mktemp("worlds"), cases, None)
    return [
        (document, written[number], judge_world(document, now)) for number, document in enumerate(documents)
    ]


def is_needed_by_head(answer: ObjectExplanation) -> bool:
    """Tell whether a run would leave an address out, because the head of a branch needs it."""
    return any(one.reason == HoldReason.HEAD for one in answer.verdicts)


def test_every_address_is_explained_as_the_oracle_judges(worlds):
    """Decision, deadline and finder are the oracle's, and what it does not speak of is kept for a reason."""
    seen = set()
    for document, world, expected in worlds:
        named = {address for _, address in entries_of(document)}
        answers = [
            held_since_restore(answer, restored_in(document, answer.address), world.now)
            for answer in explain(world, *named)
        ]

        assert named == {answer.address for answer in answers}, document
        for answer in answers:
            address = answer.address
            deadline = expected.deadlines.get(address, NEVER)
            seen.add((answer.decision, answer.collector))

            assert answer.reason, document
            assert deadline == answer.deadline, document
            if address in expected.due:
                assert (str(Decision.DUE), expected.collectors[address]) == (
                    answer.decision,
                    answer.collector,
                )
            elif address in expected.held and not is_needed_by_head(answer):
                assert str(Decision.HELD) == answer.decision, document
            elif address not in expected.held:
                assert KEPT == answer.decision, document

    assert {(decision, name) for decision in Decision for name in ("lifecycle", "retention")} <= seen


def test_a_key_is_explained_by_the_addresses_that_it_had(worlds):
    """Who asks for a key gets each address that it ever had, with all references to it, by any key."""
    for document, world, _ in worlds[:20]:
        entries = entries_of(document)
        for key in {key for key, _ in entries}:
            found = explain(world, key)

            assert {a for k, a in entries if k == key} == {one.address for one in found} - {key}
            for one in found:
                assert {k for k, a in entries if a == one.address} == {r.key for r in one.references}
