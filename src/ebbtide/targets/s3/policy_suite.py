"""Tests of lifecycle rules: a bucket, a time and what is expected of each version; all cases in one job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from ebbtide.core.documents import nearest
from ebbtide.core.errors import BadInput, LifecycleError, WorldError
from ebbtide.core.instant import parse_instant
from ebbtide.targets.s3.evaluation.places import Setting
from ebbtide.targets.s3.lines import check_items, plain_verdict, read_item
from ebbtide.targets.s3.model import Action, Upload, Version, Versioning
from ebbtide.targets.s3.rules.document import read_configuration
from ebbtide.targets.s3.simulation import simulate

FIELDS = ("name", "kind", "rules", "versioning", "now", "minimum_size", "versions", "expect")
EXPECTED = ("action", "storage_class", "rule_id", "due", "held_by")

Expectation = dict[str, Any] | None
"""What is expected of one line; None if nobody asks."""


@dataclass(frozen=True)
class Case:
    """One test of lifecycle rules; rules that S3 refuses make no setting, and the test fails by that."""

    name: str
    setting: Setting | None
    refused: str
    items: tuple[Version | Upload, ...]
    expect: tuple[Expectation, ...]


@dataclass(frozen=True)
class CaseResult:
    """What came of one case; both sides hold only what the case asked about."""

    name: str
    passed: bool
    expected: list[Expectation]
    actual: list[Expectation]
    refused: str = ""

    def to_plain(self) -> dict[str, Any]:
        """Give the public JSON form."""
        plain = {name: value for name, value in vars(self).items() if name != "refused"}
        return plain | ({"refused": self.refused} if self.refused else {})

    def differences(self) -> list[str]:
        """Say what is other than expected."""
        if self.refused:
            return [f"S3 refuses these rules: {self.refused}"]
        return [
            f"line {number}: expected {_words(expected)}, actual {_words(actual)}"
            for number, (expected, actual) in enumerate(zip(self.expected, self.actual, strict=True), 1)
            if expected != actual
        ]


def _words(values: Expectation) -> str:
    return ", ".join(f"{name} {value}" for name, value in (values or {}).items())


def bucket_case(data: dict[str, Any], where: str) -> Case:
    """Check a case about a bucket; an error says where it is."""
    for name in data:
        if name not in FIELDS:
            raise WorldError(f"{where}: unknown field {name!r}", fix=nearest(str(name), FIELDS))
    label = f"{where} ({data.get('name', 'unnamed')})"
    versions = data.get("versions")
    if not isinstance(versions, list):
        raise WorldError(f"{label}: versions is not a list", fix='write "versions": [{"key": ...}, ...]')
    items = [read_item(item, f"{label}, version {number}") for number, item in enumerate(versions, 1)]
    check_items(items, label)
    setting, refused = _setting(data, label)
    expect = _expect(data.get("expect"), len(items), label)
    return Case(str(data.get("name", "unnamed")), setting, refused, tuple(items), expect)


def run_cases(spark: SparkSession, cases: Sequence[Case]) -> list[CaseResult]:
    """Judge all cases at once and compare each with what it expects."""
    judged = iter(simulate(spark, [(case.setting, case.items) for case in cases if case.setting]))
    results = []
    for case in cases:
        if case.setting is None:
            results.append(CaseResult(case.name, False, list(case.expect), [], case.refused))
            continue
        rows = [plain_verdict(*pair) for pair in zip(case.items, next(judged), strict=True)]
        actual = [_asked(expected, row) for expected, row in zip(case.expect, rows, strict=True)]
        results.append(CaseResult(case.name, list(case.expect) == actual, list(case.expect), actual))
    return results


def _asked(expected: Expectation, row: dict[str, Any]) -> Expectation:
    """Give of what was found only what was asked about."""
    return None if expected is None else {name: row[name] for name in expected}


def _setting(data: dict[str, Any], label: str) -> tuple[Setting | None, str]:
    try:
        now = parse_instant(data.get("now", ""))
        versioning = Versioning(data.get("versioning") or Versioning.ENABLED)
    except BadInput as wrong:
        raise WorldError(f"{label}: now: {wrong.what}", fix=wrong.fix) from None
    except ValueError:
        names = [str(one) for one in Versioning]
        raise WorldError(
            f"{label}: versioning is {data['versioning']!r}", fix=nearest(str(data["versioning"]), names)
        ) from None
    try:
        configuration = read_configuration(data.get("rules"), minimum_size=data.get("minimum_size"))
    except LifecycleError as refused:
        return None, str(refused)
    return Setting(configuration, now, versioning), ""


def _expect(data: Any, count: int, label: str) -> tuple[Expectation, ...]:
    if not isinstance(data, list) or len(data) != count:
        raise WorldError(
            f"{label}: expect must have an entry for each of the {count} versions",
            fix='write {"action": "expire"}, or null for one that is not checked',
        )
    return tuple(_expectation(one, f"{label}, expectation {number}") for number, one in enumerate(data, 1))


def _expectation(data: Any, where: str) -> Expectation:
    if data is None:
        return None
    if not isinstance(data, dict) or not data:
        raise WorldError(f"{where} is {data!r}", fix='write {"action": "expire"} or null')
    for name in data:
        if name not in EXPECTED:
            raise WorldError(f"{where}: unknown field {name!r}", fix=nearest(str(name), EXPECTED))
    actions = [str(action) for action in Action]
    if "action" in data and data["action"] not in actions:
        raise WorldError(f"{where}: action is {data['action']!r}", fix=nearest(str(data["action"]), actions))
    return dict(data)
