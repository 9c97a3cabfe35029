"""`ebb lake ls` of a repository from which a run has taken objects."""

from __future__ import annotations

import pytest
from tests.services.lake import REPOSITORY

from ebbtide.targets.lake.removed_objects import ObjectState, with_states

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("days", "state"), [(None, ObjectState.GONE), (7, ObjectState.RECYCLED)])
def test_entries_say_where_their_objects_are(lake, days, state):
    """What a run deleted is gone, what it set aside is in the bin, and all else is stored."""
    if days:
        lake.ledger.set_recycling("lake:lake", lake.catalog.repository(REPOSITORY).uid, days)
    before = dict(states(lake))
    made = lake.plan()
    lake.apply(made, override_breaker=True)

    found = states(lake)

    assert {ObjectState.STORED} == set(before.values())
    assert {"raw/1", "raw/2", "raw/3", "raw/4"} == {key for key, where in found.items() if where == state}
    assert {state, ObjectState.STORED} == set(found.values())


def states(lake):
    """Give the state of each key of main."""
    entries = lake.catalog.ls(REPOSITORY, "main")
    return {entry.key: where for entry, where in with_states(lake.shop, REPOSITORY, entries)}
