"""The terms of commits, found in one pass, are what the oracle finds by walking every branch by itself."""

from __future__ import annotations

import pytest
from tests.worlds import NOW, many_worlds

from ebbtide.core.decision import CollectorName
from ebbtide.core.instant import parse_instant
from ebbtide.targets.repository.model import Commit
from ebbtide.targets.repository.oracle import _lapses, judge_world
from ebbtide.targets.repository.terms import commit_terms
from ebbtide.targets.repository.world_document import world_document

WORLDS = 400
SEED = 20261116


@pytest.fixture(scope="module")
def documents():
    """Draw the worlds once."""
    return [world_document(world) for world in many_worlds(WORLDS, SEED, every=True)]


def test_terms_end_when_the_oracle_says(documents):
    """In every generated world each commit is kept until the same moment."""
    for document in documents:
        commits = {c.id: Commit(c.id, "m", c.parents, c.created) for c in document.commits}
        terms = commit_terms(commits, document.branches, document.tags, document.retention)

        assert _lapses(document) == {commit_id: term.until for commit_id, term in terms.items()}, document


def test_the_worlds_of_every_collector_are_worth_judging(documents):
    """Each collector finds something in enough of the worlds, and something is held, or they say little."""
    judged = [judge_world(document, parse_instant(NOW)) for document in documents]
    found = [collector for judgement in judged for collector in judgement.collectors.values()]

    assert len(judged) > WORLDS * 0.9
    assert all(found.count(collector) > 40 for collector in CollectorName), found
    assert sum(len(judgement.held) for judgement in judged) > 100
