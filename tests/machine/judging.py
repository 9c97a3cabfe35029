"""Judging many histories at once: Spark in full, Spark step by step, and the oracle must say the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession
from tests.machine.history import History, World

from ebbtide.lake.oracle import judge_world
from ebbtide.lake.simulation import Simulated, simulate, simulate_histories
from ebbtide.plan.decision import Decision

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
    worlds = [world for history in histories for world in history.worlds]
    full = iter(simulate(spark, worlds))
    stepwise = simulate_histories(spark, [history.worlds for history in histories])
    found = []
    for history, steps in zip(histories, stepwise, strict=True):
        judged = [(next(full), step, world) for step, world in zip(steps, history.worlds, strict=True)]
        whats = (
            Disagreement(history.seed, place, what, tuple(history.story))
            for place, case in enumerate(judged, start=1)
            for what in differences(*case)
        )
        found += list(whats)[:1]
    return found


def differences(full: Simulated, stepwise: Simulated, world: World) -> Iterator[str]:
    """Say in what the three differ about one world."""
    expected = judge_world(*world)
    deadlines = {row["address"]: row["deadline"] for row in full.decisions}
    pairs = {
        "due, oracle and full": (sorted(expected.due), full.addresses(Decision.DUE)),
        "held, oracle and full": (sorted(expected.held), full.addresses(Decision.HELD)),
        "deadlines, oracle and full": (dict(expected.deadlines), deadlines),
        "rows, full and incremental": (_rows(full), _rows(stepwise)),
        "tables, full and incremental": (_tables(full), _tables(stepwise)),
    }
    for name, (one, other) in pairs.items():
        if one != other:
            yield f"{name}:\n  {one}\n  {other}"


def _rows(simulated: Simulated) -> list[list[tuple[str, object]]]:
    """Give the decision rows in an order, without what depends on the company that a world has in its job."""
    rows = [{**row, **dict.fromkeys(_BY_CHANCE)} for row in simulated.decisions]
    return sorted((sorted(row.items()) for row in rows), key=repr)


def _tables(simulated: Simulated) -> tuple[object, ...]:
    return simulated.policy_table, simulated.current_rules, simulated.potential_commits
