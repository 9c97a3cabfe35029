"""
Simulated worlds: a small repository written by hand, judged by the very same Spark pipeline as a real one.

The world's commits and staging are written as real ranges into a scratch folder, so that what a policy test
proves is what a plan does. Hundreds of worlds share one job.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from ebbtide.lake.catalog.model import Commit, StagedRange
from ebbtide.lake.catalog.ranges import COMMITTED, ENTRIES, STAGED, write_metarange, write_range
from ebbtide.lake.lifecycle.commits import PotentialCommit, potential_commits
from ebbtide.lake.lifecycle.decisions import deduplicated, expired_addresses
from ebbtide.lake.lifecycle.policies import CurrentRule, PolicyRow, PolicyRun, current_rules, policy_table
from ebbtide.lake.lifecycle.ranges import range_table
from ebbtide.lake.lifecycle.references import references
from ebbtide.lake.lifecycle.standings import standings
from ebbtide.lake.lifecycle.world import World
from ebbtide.lake.world_document import WorldDocument, WrittenEntry
from ebbtide.plan.decision import Decision
from ebbtide.rules.instant import format_instant
from ebbtide.store.base import Store, StoreSpec
from ebbtide.store.opening import open_store


@dataclass(frozen=True)
class Simulated:
    """What the pipeline says of one simulated world."""

    policy_table: list[PolicyRow]
    current_rules: list[CurrentRule]
    potential_commits: list[PotentialCommit]
    decisions: list[dict[str, Any]]

    def to_plain(self) -> dict[str, Any]:
        """Give the public JSON form, sorted."""
        return {
            "policy_table": [_plain_row(row) for row in self.policy_table],
            "current_rules": [_plain_row(rule) for rule in self.current_rules],
            "potential_commits": [
                {"commit_id": c.commit_id, "branches": list(c.branches)} for c in self.potential_commits
            ],
            "due": [
                {
                    "address": row["address"],
                    "paths": row["paths"],
                    "matched_rules": row["rules"],
                    "deadline": format_instant(row["deadline"]),
                }
                for row in self._with(Decision.DUE)
            ],
            "held": [
                {
                    "address": row["address"],
                    "paths": row["paths"],
                    "reason": row["reason"],
                    "by": row["held_by"],
                    "deadline": format_instant(row["deadline"]),
                }
                for row in self._with(Decision.HELD)
            ],
        }

    def addresses(self, decision: Decision) -> list[str]:
        """List the addresses with this decision, sorted."""
        return [row["address"] for row in self._with(decision)]

    def _with(self, decision: Decision) -> list[dict[str, Any]]:
        chosen = [row for row in self.decisions if row["decision"] == decision]
        return sorted(chosen, key=lambda row: str(row["address"]))


def simulate(spark: SparkSession, cases: Sequence[tuple[WorldDocument, datetime]]) -> list[Simulated]:
    """Judge many worlds, each at its own time, in one Spark job."""
    with tempfile.TemporaryDirectory(prefix="ebbtide-worlds-") as scratch:
        store = open_store(StoreSpec(Path(scratch).as_uri()))
        worlds = {number: _world(store, document, now) for number, (document, now) in enumerate(cases)}
        decisions = _decide(spark, worlds).toArrow().to_pylist() if worlds else []
    found: dict[int, list[dict[str, Any]]] = {number: [] for number in worlds}
    for row in decisions:
        found[row["world"]].append(row)
    return [_simulated(document, worlds[number], found[number]) for number, (document, _) in enumerate(cases)]


def _decide(spark: SparkSession, worlds: Mapping[int, World]) -> DataFrame:
    judged = standings(references(range_table(spark, worlds), worlds))
    return deduplicated(expired_addresses(judged, worlds), worlds)


def _simulated(document: WorldDocument, world: World, decisions: list[dict[str, Any]]) -> Simulated:
    run_id = max((run.run_id for run in document.runs), default=0) + 1
    runs = [*document.runs, PolicyRun(run_id, world.now, world.policy, succeeded=False)]
    table = policy_table(runs)
    rules = current_rules(table, run_id, [run.run_id for run in runs if run.succeeded])
    return Simulated(table, rules, potential_commits(world.commits, world.branches, rules), decisions)


def _world(store: Store, document: WorldDocument, now: datetime) -> World:
    commits = {
        written.id: Commit(
            id=written.id,
            metarange_id=_write(store, COMMITTED, written.entries),
            parents=written.parents,
            created=written.created,
        )
        for written in document.commits
    }
    staged = tuple(
        StagedRange(branch, _write(store, STAGED, entries), len(entries))
        for branch, entries in document.staged.items()
    )
    return World(
        store=store.spec,
        namespace=None,
        policy=document.policy,
        now=now,
        commits=commits,
        branches=document.branches,
        tags=document.tags,
        staged=staged,
    )


def _write(store: Store, folder: str, entries: Mapping[str, WrittenEntry]) -> str:
    if not entries:
        return write_metarange(store, folder, [])
    rows = [
        {"key": key, "address": e.address, "created": e.created, "size": e.size, "checksum": ""}
        for key, e in sorted(entries.items())
    ]
    return write_metarange(store, folder, [write_range(store, folder, pa.Table.from_pylist(rows, ENTRIES))])


def _plain_row(row: PolicyRow | CurrentRule) -> dict[str, Any]:
    days = ("date_to_be_deleted", "last_deleted")
    return {
        name: value.isoformat() if name in days and value is not None else value
        for name, value in vars(row).items()
    }
