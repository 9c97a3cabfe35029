"""A run that keeps what an earlier one added up decides as one that reads everything."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from tests.worlds import NOW, many_worlds

from ebbtide.core.instant import parse_instant
from ebbtide.targets.repository.simulation import simulate, simulate_histories
from ebbtide.targets.repository.world_document import world_document

pytestmark = [pytest.mark.spark, pytest.mark.long]

HISTORIES = 80
STEPS = 4
SEED = 8255


@pytest.fixture(scope="module")
def histories():
    """
    Chain generated worlds into histories in which anything may have happened between two runs.

    Each step takes its policy, heads, tags, staging and commits each from the world before or from another
    one; the time goes forward or back.
    """
    chance = random.Random(SEED)
    worlds = many_worlds(HISTORIES * STEPS, SEED)
    chains = []
    for number in range(0, len(worlds) - STEPS + 1, STEPS):
        world, now, chain = worlds[number], parse_instant(NOW), []
        for other in worlds[number : number + STEPS]:
            world = mixed(world, other, chance)
            now += timedelta(days=chance.randint(-3, 5))
            chain.append((world_document(world), now))
        chains.append(chain)
    return chains


def mixed(world, other, chance):
    """Take what a history may change at one step from another world; heads that lose their commit go."""
    commits = {commit["id"]: commit for commit in (world if chance.random() < 0.7 else other)["commits"]}
    known = set(commits)
    whole = {name: (world if chance.random() < 0.6 else other)[name] for name in world}
    branches = {name: head for name, head in whole["branches"].items() if head in known}
    return whole | {
        "commits": list(commits.values()),
        "branches": branches,
        "tags": {name: head for name, head in whole["tags"].items() if head in known},
        "staged": {name: rows for name, rows in whole["staged"].items() if name in branches},
    }


def test_incremental_equals_full(spark, histories):
    """Every row of every decision is the same, to the last word."""
    chained = simulate_histories(spark, histories)
    alone = simulate(spark, [case for history in histories for case in history])

    expected = [rows(found) for found in alone]
    actual = [rows(found) for history in chained for found in history]

    assert HISTORIES * STEPS * 0.9 < len(expected)
    assert 200 < sum(map(len, expected))
    assert expected == actual


def rows(simulated):
    """Give a world's decisions in an order of their own, without its number."""
    plain = [{name: value for name, value in row.items() if name != "world"} for row in simulated.decisions]
    return sorted(plain, key=lambda row: row["address"])
