"""Buckets written by hand: `ebb simulate bucket`, and tests of lifecycle rules in one Spark job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import SparkSession

from ebbtide.core.display import Table
from ebbtide.core.documents import check_fields, nearest
from ebbtide.core.errors import LifecycleError, WorldError
from ebbtide.core.instant import system_clock
from ebbtide.input_files import read_text, shown_name
from ebbtide.targets.s3.evaluation.key_intervals import BucketSetting
from ebbtide.targets.s3.model import Action, Upload, Version, Versioning
from ebbtide.targets.s3.rules.configuration import MINIMUM_SIZE, MinimumSize
from ebbtide.targets.s3.rules.document import configuration_hash, read_configuration, read_rules_file
from ebbtide.targets.s3.rules.warnings import configuration_warnings
from ebbtide.targets.s3.simulation import check_items, plain_verdict, read_item, read_lines, simulate
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
        ("--rules",),
        "A LifecycleConfiguration in JSON, XML, YAML or TOML.",
        is_flag=False,
        required=True,
    ),
    Option(
        ("--versions",),
        "Versions and uploads, one JSON object per line; '-' reads stdin.",
        is_flag=False,
        required=True,
    ),
    Option(
        ("--versioning",),
        "Whether the bucket keeps versions.",
        is_flag=False,
        choices=tuple(str(one) for one in Versioning),
        default=str(Versioning.ENABLED),
    ),
    Option(
        ("--minimum-size",),
        f"{MINIMUM_SIZE}, which XML cannot say: {' or '.join(MinimumSize)}.",
        is_flag=False,
    ),
)
COLUMNS = ("key", "version or upload", "action", "storage class", "rule", "due", "held by")
FIELDS = ("name", "kind", "rules", "versioning", "now", "minimum_size", "versions", "expect")
EXPECTED = ("action", "storage_class", "rule_id", "due", "held_by")

Expectation = dict[str, Any] | None
"""What is expected for one line; None if it is not checked."""


class BucketSimulation:
    """Lets lifecycle rules decide about versions."""

    help = "Decide with lifecycle rules about versions written by hand: one line for each, in order."
    inputs = INPUTS

    def run(self, given: Options, now: datetime, workspace: Workspace, spark: StartSpark) -> WorldResult:
        """Decide as of `now`."""
        locations = workspace.settings.bucket.locations
        configuration = read_rules_file(given["rules"], locations, given.get("minimum_size"))
        setting = BucketSetting(configuration, now, Versioning(given["versioning"]))
        items = read_lines(read_text(given["versions"]), shown_name(given["versions"]))
        with spark() as session:
            (verdicts,) = simulate(session, [(setting, items)])
        rows = [plain_verdict(item, verdict) for item, verdict in zip(items, verdicts, strict=True)]
        return WorldResult((Table("Verdicts", COLUMNS, [_cells(row) for row in rows]),), rows, as_lines=True)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    shown = ["" if row[name] is None else str(row[name]) for name in EXPECTED]
    return (str(row["key"]), str(row.get("version_id") or row.get("upload_id")), *shown)


class BucketSuite(PolicySuite):
    """Tests of lifecycle rules."""

    needs_spark = True

    def case(self, data: dict[str, Any], where: str) -> BucketCase:
        """Check a case about a bucket; an error says where it is."""
        name, label = case_header(data, where, FIELDS)
        versions = data.get("versions")
        if not isinstance(versions, list):
            raise WorldError(f"{label}: versions is not a list", fix='write "versions": [{"key": ...}, ...]')
        items = [read_item(item, f"{label}, version {number}") for number, item in enumerate(versions, 1)]
        check_items(items, label)
        setting, refused = _setting(data, label)
        expect = _expect(data.get("expect"), len(items), label)
        return BucketCase(name, setting, refused, tuple(items), expect)

    def run(self, spark: SparkSession | None, cases: Sequence[BucketCase]) -> Sequence[CaseResult]:
        """Evaluate all cases in one Spark job and compare each with its expectation."""
        judged = iter(simulate(needed(spark), [(case.setting, case.items) for case in cases if case.setting]))
        results = []
        for case in cases:
            if case.setting is None:
                said = (f"S3 refuses these rules: {case.refused}",)
                results.append(CaseResult(case.name, False, list(case.expect), [], said, case.refused))
                continue
            rows = [plain_verdict(*pair) for pair in zip(case.items, next(judged), strict=True)]
            actual = [_asked(expected, row) for expected, row in zip(case.expect, rows, strict=True)]
            expected = list(case.expect)
            results.append(
                CaseResult(case.name, expected == actual, expected, actual, _differences(expected, actual))
            )
        return results

    def check(self, document: Any) -> CheckedPolicy:
        """Check a lifecycle configuration without setting it."""
        found = read_configuration(document)
        warnings = configuration_warnings(found, now=system_clock())
        return CheckedPolicy(len(found.rules), len(found.enabled), configuration_hash(found), warnings)


@dataclass(frozen=True)
class BucketCase:
    """One test of lifecycle rules; it has no setting if S3 refuses the rules, and then it fails."""

    name: str
    setting: BucketSetting | None
    refused: str
    items: tuple[Version | Upload, ...]
    expect: tuple[Expectation, ...]


def _differences(expected: Sequence[Expectation], actual: Sequence[Expectation]) -> list[str]:
    return [
        f"line {number}: expected {_words(wanted)}, actual {_words(found)}"
        for number, (wanted, found) in enumerate(zip(expected, actual, strict=True), 1)
        if wanted != found
    ]


def _words(values: Expectation) -> str:
    return ", ".join(f"{name} {value}" for name, value in (values or {}).items())


def _asked(expected: Expectation, row: dict[str, Any]) -> Expectation:
    """Return the found values of the expected fields."""
    return None if expected is None else {name: row[name] for name in expected}


def _setting(data: dict[str, Any], label: str) -> tuple[BucketSetting | None, str]:
    now = case_time(data, label)
    try:
        versioning = Versioning(data.get("versioning") or Versioning.ENABLED)
    except ValueError:
        names = [str(one) for one in Versioning]
        raise WorldError(
            f"{label}: versioning is {data['versioning']!r}", fix=nearest(str(data["versioning"]), names)
        ) from None
    try:
        configuration = read_configuration(data.get("rules"), minimum_size=data.get("minimum_size"))
    except LifecycleError as refused:
        return None, str(refused)
    return BucketSetting(configuration, now, versioning), ""


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
    check_fields(where, data, EXPECTED)
    actions = [str(action) for action in Action]
    if "action" in data and data["action"] not in actions:
        raise WorldError(f"{where}: action is {data['action']!r}", fix=nearest(str(data["action"]), actions))
    return dict(data)
