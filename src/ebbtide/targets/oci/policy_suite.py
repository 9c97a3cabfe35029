"""Tests of image policies: a registry, a time and what is expected of its tags and manifests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ebbtide.core.documents import nearest
from ebbtide.core.errors import BadInput, WorldError
from ebbtide.core.instant import parse_instant
from ebbtide.targets.oci.lines import check_images, read_image
from ebbtide.targets.oci.model import Decision, Image, Judgement, Running
from ebbtide.targets.oci.oracle import judge
from ebbtide.targets.oci.policies.document import read_policies
from ebbtide.targets.oci.policies.policy import Policies
from ebbtide.targets.oci.running import running_of

FIELDS = ("name", "kind", "policies", "images", "running", "now", "expect")


@dataclass(frozen=True)
class Case:
    """One test of image policies."""

    name: str
    policies: Policies
    images: tuple[Image, ...]
    running: Running | None
    now: datetime
    expect: dict[str, str]


@dataclass(frozen=True)
class CaseResult:
    """What came of one case; both sides hold only what the case asked about."""

    name: str
    passed: bool
    expected: dict[str, str]
    actual: dict[str, str]

    def to_plain(self) -> dict[str, Any]:
        """Give the public JSON form."""
        return vars(self).copy()

    def differences(self) -> list[str]:
        """Say what is other than expected."""
        return [
            f"{name}: expected {expected}, actual {self.actual[name]}"
            for name, expected in self.expected.items()
            if expected != self.actual[name]
        ]


def registry_case(data: dict[str, Any], where: str) -> Case:
    """Check a case about a registry; an error says where it is."""
    for name in data:
        if name not in FIELDS:
            raise WorldError(f"{where}: unknown field {name!r}", fix=nearest(str(name), FIELDS))
    label = f"{where} ({data.get('name', 'unnamed')})"
    lines = data.get("images")
    if not isinstance(lines, list):
        raise WorldError(f"{label}: images is not a list", fix='write "images": [{"repository": ...}, ...]')
    places = [f"{label}, image {number}" for number in range(1, len(lines) + 1)]
    images = [read_image(line, where) for line, where in zip(lines, places, strict=True)]
    check_images(zip(places, images, strict=True))
    given = data.get("running")
    return Case(
        str(data.get("name", "unnamed")),
        read_policies(data.get("policies"), f"{label}: policies"),
        tuple(images),
        None if given is None else running_of(given, f"{label}: running"),
        _now(data.get("now"), label),
        _expect(data.get("expect"), images, label),
    )


def run_cases(cases: Sequence[Case]) -> list[CaseResult]:
    """Judge each case and compare it with what it expects."""
    return [_compare(case) for case in cases]


def _compare(case: Case) -> CaseResult:
    judged = judge(case.policies, case.images, case.now, case.running)
    found = {_name(judgement): str(judgement.decision) for judgement in judged}
    actual = {name: found[name] for name in case.expect}
    return CaseResult(case.name, case.expect == actual, case.expect, actual)


def _name(judgement: Judgement) -> str:
    end = f"@{judgement.digest}" if judgement.tag is None else f":{judgement.tag}"
    return f"{judgement.repository}{end}"


def _now(value: Any, label: str) -> datetime:
    try:
        return parse_instant(value)
    except BadInput as wrong:
        raise WorldError(f"{label}: now: {wrong.what}", fix=wrong.fix) from None


def _expect(data: Any, images: Sequence[Image], label: str) -> dict[str, str]:
    if not isinstance(data, dict) or not data:
        fix = 'write "expect": {"team/app:v1": "keep", "team/app@sha256:...": "recycle"}'
        raise WorldError(f"{label} expects nothing", fix=fix)
    names = {f"{image.repository}@{image.digest}" for image in images}
    names |= {f"{image.repository}:{tag.name}" for image in images for tag in image.tags}
    decisions = [str(decision) for decision in Decision]
    for name, decision in data.items():
        if name not in names:
            found = f"{label}: expect names {name!r}, which is none of its images"
            raise WorldError(found, fix=nearest(str(name), sorted(names)) if names else "add images")
        if decision not in decisions:
            found = f"{label}: {decision!r} is expected of {name}"
            raise WorldError(found, fix=nearest(str(decision), decisions))
    return dict(data)
