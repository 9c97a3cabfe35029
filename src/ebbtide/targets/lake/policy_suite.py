"""Test suites for policies: a world, a time and what is expected of them; all cases in one Spark job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import SparkSession

from ebbtide.core.decision import Decision, HoldReason
from ebbtide.core.documents import nearest
from ebbtide.core.errors import BadInput, WorldError
from ebbtide.core.instant import parse_instant
from ebbtide.targets.lake.simulation import Simulated, simulate
from ebbtide.targets.lake.world_document import WorldDocument, world_document

FIELDS = ("name", "kind", "world", "now", "expect")
_USUAL = (HoldReason.NOT_YET, HoldReason.HEAD)
"""Why most of a world is held, which a test need not say."""


@dataclass(frozen=True)
class Case:
    """One test of a policy."""

    name: str
    world: WorldDocument
    now: datetime
    expect: dict[str, list[str]]


@dataclass(frozen=True)
class CaseResult:
    """What came of one case; both sides hold only what the case asked about."""

    name: str
    passed: bool
    expected: dict[str, list[str]]
    actual: dict[str, list[str]]

    def to_plain(self) -> dict[str, Any]:
        """Give the public JSON form."""
        return vars(self).copy()

    def differences(self) -> list[str]:
        """Say what is other than expected."""
        return [f"expected {_lists(self.expected)}", f"actual   {_lists(self.actual)}"]


def _lists(value: dict[str, list[str]]) -> str:
    return "; ".join(f"{name} {', '.join(items) or 'nothing'}" for name, items in value.items())


def run_cases(spark: SparkSession, cases: Sequence[Case]) -> list[CaseResult]:
    """Judge all cases at once and compare each with what it expects."""
    if not cases:
        return []
    simulated = simulate(spark, [(case.world, case.now) for case in cases])
    return [_compare(case, found) for case, found in zip(cases, simulated, strict=True)]


def _compare(case: Case, found: Simulated) -> CaseResult:
    actual = {name: found.addresses(Decision(name)) for name in case.expect}
    passed = all(_matches(name, expected, found) for name, expected in case.expect.items())
    return CaseResult(case.name, passed, case.expect, actual)


def _matches(name: str, expected: list[str], found: Simulated) -> bool:
    """
    Compare one list. `due` must be exact.

    `held` must name whatever has lapsed by a rule and is kept by something else; items whose time has simply
    not come, and those that the head of a branch needs, may be named or left out, so that a test need not
    list every young or current object of its world.
    """
    every = set(found.addresses(Decision(name)))
    if name == Decision.DUE:
        return set(expected) == every
    usual = {row["address"] for row in found.decisions if row["reason"] in _USUAL}
    return every - usual <= set(expected) <= every


def lake_case(data: dict[str, Any], where: str) -> Case:
    """Check a case about a lake; an error says where it is."""
    for name in data:
        if name not in FIELDS:
            raise WorldError(f"{where}: unknown field {name!r}", fix=nearest(str(name), FIELDS))
    label = f"{where} ({data.get('name', 'unnamed')})"
    try:
        world, now = world_document(data.get("world")), parse_instant(data.get("now", ""))
    except BadInput as wrong:
        raise type(wrong)(f"{label}: {wrong.what}", why=wrong.why, fix=wrong.fix) from None
    return Case(str(data.get("name", "unnamed")), world, now, _expect(data.get("expect"), label))


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
