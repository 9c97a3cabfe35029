"""
Judging many histories at once: Spark in full, Spark step by step, and the oracle must say the same.

Every plan's world is judged in full. Step by step go those that asked lifecycle, which alone remembers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession
from tests.machine.history import History, World

from ebbtide.core.decision import CollectorName, Decision
from ebbtide.targets.repository.oracle import judge_world
from ebbtide.targets.repository.simulation import Simulated, simulate, simulate_histories

_BY_CHANCE = ("world",)
"""A world's number in its job."""


@dataclass(frozen=True)
class Disagreement:
    """A world about which not all agree."""

    seed: int
    plan: int
    what: str
    story: tuple[str, ...]

    def __str__(self) -> str:
        """Say what differs, and how the repository came there."""
        told = "\n    ".join(self.story)
        return f"plan {self.plan} of a history of seed {self.seed}: {self.what}\n    {told}"


def judge(spark: SparkSession, histories: Sequence[History]) -> list[Disagreement]:
    """Give the first world of each history about which Spark and the oracle, or two ways of Spark, differ."""
    remembered = [_remembered(history) for history in histories]
    worlds = [world for history in histories for world in history.worlds]
    again = [world for steps in remembered for world in steps.values()]
    full = iter(simulate(spark, worlds + again))
    judged = [[next(full) for _ in history.worlds] for history in histories]
    stepwise = simulate_histories(spark, [list(steps.values()) for steps in remembered])
    found = []
    for history, ones, steps, by_steps in zip(histories, judged, remembered, stepwise, strict=True):
        pairs = enumerate(zip(ones, history.worlds, strict=True), start=1)
        whats = [(place, what) for place, (one, world) in pairs for what in unlike_oracle(one, world)]
        whats += [
            (place, what)
            for place, step in zip(steps, by_steps, strict=True)
            for what in unlike_full(next(full), step)
        ]
        found += [Disagreement(history.seed, *what, tuple(history.story)) for what in sorted(whats)[:1]]
    return found


def unlike_oracle(full: Simulated, world: World) -> Iterator[str]:
    """Say in what Spark and the oracle differ about one world."""
    expected = judge_world(*world)
    deadlines = {row["address"]: row["deadline"] for row in full.decisions}
    finders = {row["address"]: row["collector"] for row in full.decisions if row["decision"] == Decision.DUE}
    yield from _unequal(
        {
            "due, oracle and full": (sorted(expected.due), full.addresses(Decision.DUE)),
            "held, oracle and full": (sorted(expected.held), full.addresses(Decision.HELD)),
            "deadlines, oracle and full": (dict(expected.deadlines), deadlines),
            "finders, oracle and full": (dict(expected.collectors), finders),
        }
    )


def unlike_full(full: Simulated, stepwise: Simulated) -> Iterator[str]:
    """Say in what Spark in full and Spark step by step differ about one world."""
    yield from _unequal(
        {
            "rows, full and incremental": (_rows(full), _rows(stepwise)),
            "tables, full and incremental": (_tables(full), _tables(stepwise)),
        }
    )


def _unequal(pairs: Mapping[str, tuple[object, object]]) -> Iterator[str]:
    for name, (one, other) in pairs.items():
        if one != other:
            yield f"{name}:\n  {one}\n  {other}"


def _remembered(history: History) -> dict[int, World]:
    """
    Give the plans that asked lifecycle, by lifecycle alone, by their places.

    Only it builds on what it said before; what other kinds of runs come between must make no difference.
    """
    return {
        place: (replace(document, collect=(CollectorName.LIFECYCLE,)), now)
        for place, (document, now) in enumerate(history.worlds, start=1)
        if CollectorName.LIFECYCLE in document.collect
    }


def _rows(simulated: Simulated) -> list[list[tuple[str, object]]]:
    """Give the decision rows in an order, without what depends on the company that a world has in its job."""
    rows = [{**row, **dict.fromkeys(_BY_CHANCE)} for row in simulated.decisions]
    return sorted((sorted(row.items()) for row in rows), key=repr)


def _tables(simulated: Simulated) -> tuple[object, ...]:
    return simulated.policy_table, simulated.current_rules, simulated.potential_commits
