"""Explaining an address says what the pipeline says of it, on every world, without Spark."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.services.explained import said, told
from tests.worlds import NOW, many_worlds

from ebbtide.core.decision import CollectorName, Decision, HoldReason
from ebbtide.core.instant import NEVER, parse_instant
from ebbtide.engine.removed_table import RestoredItem
from ebbtide.storage.address import canonical
from ebbtide.targets.repository.explanation import KEPT, combined_verdict, explain, held_until
from ebbtide.targets.repository.simulation import _worlds, simulate
from ebbtide.targets.repository.world_document import world_document

pytestmark = pytest.mark.spark

WORLDS = 120
SEED = 20261118


@pytest.fixture(scope="module")
def explained(spark, tmp_path_factory):
    """Judge many worlds in one job, and explain every address that each of them names."""
    now = parse_instant(NOW)
    documents = [world_document(world) for world in many_worlds(WORLDS, SEED, every=True)]
    cases = [(document, now) for document in documents]
    simulated = simulate(spark, cases)
    worlds = _worlds(tmp_path_factory.mktemp("worlds"), dict(enumerate(cases)), None)
    found = []
    for number, document in enumerate(documents):
        held = [*(commit.entries for commit in document.commits), *document.staged.values()]
        named = {
            canonical(entry.address, document.namespace) for entries in held for entry in entries.values()
        }
        rows = {row["address"]: row for row in simulated[number].decisions}
        answers = explain(worlds[number], *named)
        found += [(document, rows.get(answer.address), answer) for answer in answers]
    return found


def test_every_row_is_explained_as_it_was_decided(explained):
    """Decision, deadline, reason, holder, rules and paths are the same for every row of every world."""
    seen = Counter()
    for document, row, answer in explained:
        needed = [one for one in answer.verdicts if one.reason == HoldReason.HEAD]
        restored = RestoredItem(parse_instant(NOW), 0, document.restored.get(answer.address))
        verdict = held_until(combined_verdict(answer.verdicts), restored, parse_instant(NOW))
        if row is None:
            assert KEPT == verdict.decision, document
            assert verdict.reason, document
        elif needed and row["collector"] == CollectorName.RETENTION:
            # A simulated world has rows for what heads need; a run over a repository leaves them out.
            assert (KEPT, NEVER) == (verdict.decision, row["deadline"]), document
        else:
            same = {"paths": []} if needed else {}

            assert told(row) | same == said(verdict) | same, document
            seen[row["decision"], row["collector"]] += 1

    assert all(
        seen[decision, collector] > 5
        for decision in Decision
        for collector in (CollectorName.LIFECYCLE, CollectorName.RETENTION)
    ), seen
