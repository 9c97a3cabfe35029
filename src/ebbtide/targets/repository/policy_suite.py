"""Lakes written by hand: `ebb simulate lake`, and test suites for policies, all cases in one Spark job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import SparkSession

from ebbtide.core.decision import Decision, HoldReason
from ebbtide.core.display import Table
from ebbtide.core.documents import nearest
from ebbtide.core.errors import BadInput, WorldError
from ebbtide.input_files import read_document
from ebbtide.targets.repository.policy import lake_policy, policy_hash, policy_warnings
from ebbtide.targets.repository.simulation import Simulated, simulate
from ebbtide.targets.repository.world_document import WorldDocument, world_document
from ebbtide.targets.target import (
    CaseResult,
    CheckedPolicy,
    Option,
    Options,
    PolicySuite,
    StartSpark,
    Workspace,
    WorldResult,
    case_header,
    case_time,
    needed,
)

INPUTS = (
    Option(
        ("world",), "A world in JSON, YAML or TOML; '-' reads standard input.", is_flag=False, required=True
    ),
)
TABLES = {
    "policy_table": "Policy table",
    "current_rules": "Current rules",
    "potential_commits": "Potential commits",
    "due": "Due",
    "held": "Held",
}
FIELDS = ("name", "kind", "world", "now", "expect")
_USUAL = (HoldReason.NOT_YET, HoldReason.HEAD)
"""Why most of a world is held, which a test does not have to list."""


class LakeSimulation:
    """Runs the lifecycle pipeline on a world."""

    help = (
        "Run the lifecycle pipeline on a world: its policy table, commits, and which objects are due or held."
    )
    inputs = INPUTS

    def run(self, given: Options, now: datetime, workspace: Workspace, spark: StartSpark) -> WorldResult:  # noqa: ARG002 - as the protocol has it
        """Decide as of `now`."""
        document = world_document(read_document(given["world"]))
        with spark() as session:
            plain = simulate(session, [(document, now)])[0].to_plain()
        return WorldResult(tuple(_table(title, plain[key]) for key, title in TABLES.items()), plain)


def _table(title: str, rows: Sequence[dict[str, Any]]) -> Table:
    columns = tuple(rows[0]) if rows else ("(nothing)",)
    return Table(title, columns, [tuple(_cell(row[column]) for column in columns) for row in rows])


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    return "" if value is None else str(value)


class LakeSuite(PolicySuite):
    """Tests of lake policies."""

    needs_spark = True

    def case(self, data: dict[str, Any], where: str) -> LakeCase:
        """Return a case about a lake; WorldError names the field that is invalid."""
        name, label = case_header(data, where, FIELDS)
        try:
            world = world_document(data.get("world"))
        except BadInput as wrong:
            raise type(wrong)(f"{label}: {wrong.what}", why=wrong.why, fix=wrong.fix) from None
        return LakeCase(name, world, case_time(data, label), _expect(data.get("expect"), label))

    def run(self, spark: SparkSession | None, cases: Sequence[LakeCase]) -> Sequence[CaseResult]:
        """Evaluate all cases in one Spark job and compare each with its expectation."""
        simulated = simulate(needed(spark), [(case.world, case.now) for case in cases])
        return [_compare(case, found) for case, found in zip(cases, simulated, strict=True)]

    def check(self, document: Any) -> CheckedPolicy:
        """Check a policy without setting it."""
        policy = lake_policy(document)
        return CheckedPolicy(
            len(policy.rules), len(policy.enabled), policy_hash(policy), policy_warnings(policy)
        )


@dataclass(frozen=True)
class LakeCase:
    """One test of a policy."""

    name: str
    world: WorldDocument
    now: datetime
    expect: dict[str, list[str]]


def _lists(value: dict[str, list[str]]) -> str:
    return "; ".join(f"{name} {', '.join(items) or 'nothing'}" for name, items in value.items())


def _compare(case: LakeCase, found: Simulated) -> CaseResult:
    actual = {name: found.addresses(Decision(name)) for name in case.expect}
    passed = all(_matches(name, expected, found) for name, expected in case.expect.items())
    differences = (f"expected {_lists(case.expect)}", f"actual   {_lists(actual)}")
    return CaseResult(case.name, passed, case.expect, actual, differences)


def _matches(name: str, expected: list[str], found: Simulated) -> bool:
    """
    Compare one list. `due` must be exact.

    `held` must name every item that a rule would delete and something else keeps. Items that are simply too
    young, and those that the head of a branch needs, may be named or left out, so that a test does not have
    to list every young or current object of its world.
    """
    every = set(found.addresses(Decision(name)))
    if name == Decision.DUE:
        return set(expected) == every
    usual = {row["address"] for row in found.decisions if row["hold"] in _USUAL}
    return every - usual <= set(expected) <= every


def _expect(data: Any, where: str) -> dict[str, list[str]]:
    if not isinstance(data, dict) or not data:
        raise WorldError(f"{where} expects nothing", fix='write "expect": {"due": [...], "held": [...]}')
    names = [str(decision) for decision in Decision]
    expected = {}
    for name, addresses in data.items():
        if name not in names:
            raise WorldError(f"{where}: unknown expectation {name!r}", fix=nearest(str(name), names))
        if not isinstance(addresses, list):
            raise WorldError(f"{where}: {name} is not a list of addresses", fix='write ["1", "4"]')
        expected[name] = sorted(str(address) for address in addresses)
    return expected
