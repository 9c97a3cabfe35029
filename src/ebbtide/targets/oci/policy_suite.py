"""Registries written by hand: `ebb simulate registry`, and tests of image policies. Neither needs Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ebbtide.core.display import Table
from ebbtide.core.documents import nearest
from ebbtide.core.errors import BadInput, WorldError
from ebbtide.input_files import read_document, read_text, shown_name
from ebbtide.targets.oci.model import OLDEST_SCAN, Image, ImageDecision, ImageVerdict, RunningImages
from ebbtide.targets.oci.oracle import judge
from ebbtide.targets.oci.policies.document import policies_hash, read_policies
from ebbtide.targets.oci.policies.policy import Policies
from ebbtide.targets.oci.running import read_running, running_of
from ebbtide.targets.oci.simulated_images import check_images, plain_judgement, read_image, read_lines
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
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONGEST_SCAN_AGE = 87_600
INPUTS = (
    Option(
        ("--policies",),
        "policies, assign, keep_newest and unmatched, in JSON, YAML or TOML.",
        is_flag=False,
        required=True,
    ),
    Option(("--images",), "Images, one JSON object per line; '-' reads stdin.", is_flag=False, required=True),
    Option(
        ("--running",),
        "What runs: a Kubernetes pod list, a JSON list, or one image per line.",
        is_flag=False,
    ),
    Option(
        ("--oldest-scan",),
        "Hours after which a scan is too old.",
        is_flag=False,
        default=str(OLDEST_SCAN / timedelta(hours=1)),
        metavar="HOURS",
    ),
)
COLUMNS = ("tag or digest", "decision", "policy", "deadline", "held by")
FIELDS = ("name", "kind", "policies", "images", "running", "now", "expect")


class RegistrySimulation:
    """Lets image policies decide about images."""

    help = (
        "Decide with image policies about images written by hand: one line for each manifest, then its tags."
    )
    inputs = INPUTS

    def run(self, given: Options, now: datetime, workspace: Workspace, spark: StartSpark) -> WorldResult:  # noqa: ARG002 - as the protocol has it
        """Decide as of `now`."""
        policies = read_policies(read_document(given["policies"]), shown_name(given["policies"]))
        images = read_lines(read_text(given["images"]), shown_name(given["images"]))
        name = given.get("running")
        running = None if name is None else read_running(read_text(name), name)
        judged = judge(policies, images, now, running, _scan_age(given["oldest_scan"]))
        rows = [plain_judgement(judgement) for judgement in judged]
        return WorldResult(
            (Table("Judgements", COLUMNS, [_cells(row) for row in rows]),), rows, as_lines=True
        )


def _scan_age(text: str) -> timedelta:
    try:
        hours = float(text)
    except ValueError:
        hours = -1
    if not 0 <= hours <= LONGEST_SCAN_AGE:
        fix = f"use a number of hours from 0 to {LONGEST_SCAN_AGE}"
        raise BadInput(f"--oldest-scan is {text!r}", fix=fix)
    return timedelta(hours=hours)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    end = f":{row['tag']}" if "tag" in row else f"@{row['digest']}"
    shown = [row[name.replace(" ", "_")] for name in COLUMNS[1:]]
    return (row["repository"] + end, *("" if value is None else str(value) for value in shown))


class RegistrySuite(PolicySuite):
    """Tests of image policies."""

    def case(self, data: dict[str, Any], where: str) -> RegistryCase:
        """Check one case."""
        return registry_case(data, where)

    def run(self, spark: SparkSession | None, cases: Sequence[RegistryCase]) -> Sequence[CaseResult]:  # noqa: ARG002 - it needs none
        """Evaluate each case."""
        return run_cases(cases)

    def check(self, document: Any) -> CheckedPolicy:
        """Check image policies without setting them."""
        policies = read_policies(document, "the policies")
        count = len(policies.named)
        return CheckedPolicy(count, count, policies_hash(policies))


@dataclass(frozen=True)
class RegistryCase:
    """One test of image policies."""

    name: str
    policies: Policies
    images: tuple[Image, ...]
    running: RunningImages | None
    now: datetime
    expect: dict[str, str]


def registry_case(data: dict[str, Any], where: str) -> RegistryCase:
    """Check a case about a registry; an error says where it is."""
    name, label = case_header(data, where, FIELDS)
    lines = data.get("images")
    if not isinstance(lines, list):
        raise WorldError(f"{label}: images is not a list", fix='write "images": [{"repository": ...}, ...]')
    places = [f"{label}, image {number}" for number in range(1, len(lines) + 1)]
    images = [read_image(line, where) for line, where in zip(lines, places, strict=True)]
    check_images(zip(places, images, strict=True))
    given = data.get("running")
    return RegistryCase(
        name,
        read_policies(data.get("policies"), f"{label}: policies"),
        tuple(images),
        None if given is None else running_of(given, f"{label}: running"),
        case_time(data, label),
        _expect(data.get("expect"), images, label),
    )


def run_cases(cases: Sequence[RegistryCase]) -> list[CaseResult]:
    """Judge each case and compare it with what it expects."""
    return [_compare(case) for case in cases]


def _compare(case: RegistryCase) -> CaseResult:
    judged = judge(case.policies, case.images, case.now, case.running)
    found = {_name(judgement): str(judgement.decision) for judgement in judged}
    actual = {name: found[name] for name in case.expect}
    differences = [
        f"{name}: expected {expected}, actual {actual[name]}"
        for name, expected in case.expect.items()
        if expected != actual[name]
    ]
    return CaseResult(case.name, not differences, case.expect, actual, differences)


def _name(judgement: ImageVerdict) -> str:
    end = f"@{judgement.digest}" if judgement.tag is None else f":{judgement.tag}"
    return f"{judgement.repository}{end}"


def _expect(data: Any, images: Sequence[Image], label: str) -> dict[str, str]:
    if not isinstance(data, dict) or not data:
        fix = 'write "expect": {"team/app:v1": "keep", "team/app@sha256:...": "recycle"}'
        raise WorldError(f"{label} expects nothing", fix=fix)
    names = {f"{image.repository}@{image.digest}" for image in images}
    names |= {f"{image.repository}:{tag.name}" for image in images for tag in image.tags}
    decisions = [str(decision) for decision in ImageDecision]
    for name, decision in data.items():
        if name not in names:
            found = f"{label}: expect names {name!r}, which is none of its images"
            raise WorldError(found, fix=nearest(str(name), sorted(names)) if names else "add images")
        if decision not in decisions:
            found = f"{label}: {decision!r} is expected of {name}"
            raise WorldError(found, fix=nearest(str(decision), decisions))
    return dict(data)
