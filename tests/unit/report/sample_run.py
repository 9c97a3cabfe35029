"""
A run as a real one would look, for tests of the page and for the picture in the README.

To get the page: ``Path("report.html").write_text(render(planned_run()))``; for a picture of it see
``tests.services.chromium.photograph``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from ebbtide.core.decision import HoldReason
from ebbtide.core.instant import NEVER
from ebbtide.core.manifest import Manifest, Summary, Tally
from ebbtide.report.page import ReportData

NOW = datetime(2025, 3, 14, tzinfo=UTC)
GIB = 1024**3

POLICY = {
    "checkpoints": {"prefix": "ml/checkpoints/", "days": 30, "branch_days": {"main": 90}, "enabled": True},
    "event-logs": {"prefix": "raw/events/", "days": 180, "enabled": True},
    "experiments": {"prefix": "", "branch_days": {"exp-churn": 14, "exp-pricing": 14}, "enabled": True},
    "scratch": {"prefix": "scratch/", "days": 7, "enabled": True},
}

SUMMARY = Summary(
    due=Tally("due", 1_284_310, 1_874 * GIB),
    held=Tally("held", 412_877, 903 * GIB),
    known_objects=9_731_204,
    by_rule=(
        Tally("checkpoints", 18_442, 1_012 * GIB),
        Tally("event-logs", 902_118, 571 * GIB),
        Tally("experiments", 201_006, 302 * GIB),
        Tally("scratch", 170_011, 38 * GIB),
    ),
    by_prefix=(
        Tally("ml/checkpoints/", 18_442, 1_012 * GIB),
        Tally("raw/events/", 902_118, 571 * GIB),
        Tally("features/churn/", 118_540, 168 * GIB),
        Tally("features/pricing/", 75_199, 85 * GIB),
        Tally("scratch/nightly/", 140_330, 31 * GIB),
        Tally("scratch/adhoc/", 29_681, 7 * GIB),
    ),
    by_label={
        "branch": (
            Tally("on branch main", 920_560, 1_391 * GIB),
            Tally("on branch exp-churn", 121_733, 201 * GIB),
            Tally("on branch ingest-2024", 162_744, 181 * GIB),
            Tally("on branch exp-pricing", 79_273, 101 * GIB),
        )
    },
    by_age=(
        Tally("7 to 29 days", 371_017, 340 * GIB),
        Tally("30 to 89 days", 11_006, 604 * GIB),
        Tally("90 to 179 days", 7_436, 408 * GIB),
        Tally("180 to 364 days", 681_050, 423 * GIB),
        Tally("365 to 729 days", 213_801, 99 * GIB),
    ),
    held_by_reason=(
        Tally(HoldReason.TAG, 38_204, 521 * GIB),
        Tally(HoldReason.NOT_YET, 301_554, 236 * GIB),
        Tally(HoldReason.OTHER_PATH, 71_008, 121 * GIB),
        Tally(HoldReason.STAGED, 2_111, 25 * GIB),
    ),
)

MANIFEST = Manifest(
    run_id=42,
    target="lake:analytics",
    target_uid="01hq3zr8b2",
    namespace="s3://acme-lake/analytics",
    collector="lifecycle",
    made_at=NOW + timedelta(hours=3, minutes=4, seconds=11),
    now=NOW,
    policy=json.dumps(POLICY, sort_keys=True),
    policy_hash="8f31c0a9d2b74e6610f4b7a35c19d8e2f60b4a7791c3e5d80214f6ab39c7d5e1",
    snapshot={
        "sequence": 88_214,
        "taken_at": "2025-03-14T03:03:02+00:00",
        "branches": 37,
        "tags": 112,
        "commits": 20_418,
        "staged_entries": 5_302,
        "default_branch_head": "c0ffee5f1d9a43b2",
    },
    batches=26,
    digest="5d41402abc4b2a76b9719d911017c592",
    summary=SUMMARY,
)

_ADDRESS = "s3://acme-lake/analytics/repos/01hq3zr8b2/branches/7f/zzzyx8_0a1/{}"

DUE_SAMPLE = (
    {
        "names": ["ml/checkpoints/churn-v3/epoch-0041.pt", "ml/checkpoints/churn-v3/best.pt"],
        "address": _ADDRESS.format("9c1f04aa"),
        "rules": ["checkpoints"],
        "deadline": NOW - timedelta(days=12),
        "size": 612 * 1024**2,
    },
    {
        "names": ["raw/events/2024/08/31/part-00017.parquet"],
        "address": _ADDRESS.format("1b77e0d3"),
        "rules": ["event-logs"],
        "deadline": NOW - timedelta(days=15),
        "size": 131_904_512,
    },
    {
        "names": ["features/churn/2025-02-20/part-00003.parquet"],
        "address": _ADDRESS.format("e52c9930"),
        "rules": ["experiments"],
        "deadline": NOW - timedelta(days=8),
        "size": 44_040_192,
    },
    {
        "names": ["scratch/nightly/2025-03-05/tmp_join.parquet"],
        "address": _ADDRESS.format("04d8ab71"),
        "rules": ["experiments", "scratch"],
        "deadline": NOW - timedelta(days=1),
        "size": 98_304,
    },
)

HELD_SAMPLE = (
    {
        "names": ["ml/checkpoints/churn-v2/final.pt"],
        "address": _ADDRESS.format("77aa01fe"),
        "hold": str(HoldReason.TAG),
        "holder": "ml/checkpoints/churn-v2/final.pt under tag release-2024-11",
        "deadline": NEVER,
    },
    {
        "names": ["scratch/adhoc/top_customers.csv"],
        "address": _ADDRESS.format("c3109d52"),
        "hold": str(HoldReason.OTHER_PATH),
        "holder": "reports/q1/top_customers.csv on branch main",
        "deadline": NEVER,
    },
    {
        "names": ["raw/events/2024/09/20/part-00002.parquet"],
        "address": _ADDRESS.format("ab90ff12"),
        "hold": str(HoldReason.NOT_YET),
        "holder": "raw/events/2024/09/20/part-00002.parquet on branch main",
        "deadline": NOW + timedelta(days=6),
    },
)

FAILED_SAMPLE = (
    {
        "address": _ADDRESS.format("d00dfeed"),
        "outcome": "denied",
        "reason": "AccessDenied: s3:DeleteObject is not allowed for role ebbtide-writer",
        "rules": ["event-logs"],
        "size": 131_072_000,
        "at": NOW + timedelta(hours=3, minutes=21, seconds=8),
    },
    {
        "address": _ADDRESS.format("5107d011"),
        "outcome": "failed",
        "reason": "SlowDown, 8 tries in 94 s",
        "rules": ["checkpoints"],
        "size": 641_728_512,
        "at": NOW + timedelta(hours=3, minutes=24, seconds=50),
    },
)

FAILED_OUTCOMES = {
    "deleted": Tally("deleted", 1_283_640, 1_869 * GIB),
    "absent": Tally("absent", 17, 2 * GIB),
    "changed": Tally("changed", 341, GIB),
    "denied": Tally("denied", 290, GIB),
    "failed": Tally("failed", 22, GIB),
}

SUCCEEDED_OUTCOMES = {
    "deleted": Tally("deleted", 1_283_952, 1_871 * GIB),
    "absent": Tally("absent", 17, 2 * GIB),
    "changed": Tally("changed", 341, GIB),
}

_BATCH, _LAPTOP = " (Ebbtide 0.4.0 on batch-3)", " (Ebbtide 0.4.1 on mira-laptop)"
_PLANNING = (
    (
        NOW + timedelta(hours=3, minutes=3),
        "airflow",
        f"planning lake:analytics began{_BATCH}",
    ),
    (NOW + timedelta(hours=3, minutes=4, seconds=12), "airflow", "planning -> planned"),
)
_APPLYING = (
    (NOW + timedelta(hours=3, minutes=15, seconds=30), "mira", "planned -> approved"),
    (
        NOW + timedelta(hours=3, minutes=15, seconds=31),
        "mira",
        f"approved -> applying{_LAPTOP}",
    ),
)
_END = NOW + timedelta(hours=3, minutes=41, seconds=2)


def planned_run(**changes: object) -> ReportData:
    """Give a run that waits to be applied; `changes` are fields of its manifest."""
    manifest = replace(MANIFEST, **changes)  # type: ignore[arg-type]
    return ReportData(manifest, "planned", {}, DUE_SAMPLE, HELD_SAMPLE, (), _PLANNING)


def succeeded_run() -> ReportData:
    """Give a run that did everything it planned."""
    events = (*_PLANNING, *_APPLYING, (_END, "mira", "applying -> succeeded"))
    return replace(planned_run(), state="succeeded", outcomes=SUCCEEDED_OUTCOMES, events=events)


def failed_run() -> ReportData:
    """Give a run that could not delete some of what it planned."""
    said = "applying -> failed: 312 of 1284310 items could not be deleted"
    return applied_run("failed", FAILED_OUTCOMES, events=(*_PLANNING, *_APPLYING, (_END, "mira", said)))


def applied_run(state: str, outcomes: Mapping[str, Tally], **changes: object) -> ReportData:
    """Give a run in any state with any outcomes."""
    changed = {"state": state, "outcomes": outcomes, "failed_sample": FAILED_SAMPLE} | changes
    return replace(planned_run(), **changed)  # type: ignore[arg-type]


def empty_run() -> ReportData:
    """Give a plan that deletes nothing, of a target that has nothing."""
    nothing = Summary(due=Tally("due", 0, 0), held=Tally("held", 0, 0), known_objects=0)
    manifest = replace(MANIFEST, summary=nothing, batches=0)
    return ReportData(manifest, "planned", {}, (), (), (), ())


_BUCKET_SUMMARY = Summary(
    due=Tally("due", 4, 7 * 1024),
    held=Tally("held", 1, 1024),
    known_objects=9,
    by_rule=(Tally("logs", 3, 6 * 1024), Tally("uploads", 1, 1024)),
    by_prefix=(Tally("logs/2024/", 4, 7 * 1024),),
    by_age=(Tally("30 to 89 days", 4, 7 * 1024),),
    held_by_reason=(Tally("a legal hold", 1, 1024),),
    by_action=(
        Tally("transition", 1, 4 * 1024),
        Tally("delete_version", 2, 2 * 1024),
        Tally("abort_upload", 1, 1024),
    ),
)


def _bucket_row(action: str, version: str, goal: str | None = None) -> dict[str, object]:
    return {
        "names": ["logs/2024/a.log"],
        "address": "logs/2024/a.log",
        "rules": ["logs"],
        "deadline": NOW,
        "size": 1024,
        "action": action,
        "version": version,
        "destination": goal,
    }


def bucket_run(state: str = "planned", outcomes: Mapping[str, Tally] | None = None) -> ReportData:
    """Give a run over a bucket."""
    manifest = replace(
        MANIFEST,
        target="s3://acme-logs",
        namespace="s3://acme-logs",
        collector="bucket",
        policy=json.dumps({"source": "stored", "versioning": "Enabled", "configuration": {"Rules": []}}),
        snapshot={"versioning": "Enabled"},
        summary=_BUCKET_SUMMARY,
        batches=1,
    )
    due = (_bucket_row("transition", "v3", "COLD"), _bucket_row("delete_version", "v1"))
    held = _bucket_row("none", "v2") | {
        "decision": "held",
        "hold": "a legal hold",
        "holder": "a legal hold",
    }
    failed = {
        "address": "logs/2024/a.log",
        "version": "v1",
        "outcome": "failed",
        "rules": ["logs"],
        "size": 1024,
    }
    trouble = (failed,) if outcomes and "failed" in outcomes else ()
    return ReportData(manifest, state, outcomes or {}, due, (held,), trouble, _PLANNING)


HOSTILE = "<script>alert('x')</script>\"'><img src=http://evil.example/x onerror=alert(1)>&amp;{{ 7*7 }}"


def hostile_run() -> ReportData:
    """Give a run in which every name is made to break out, or to break the layout."""
    long = "données/" + "目録🌊é" * 250
    labels = (
        HOSTILE,
        long,
        "\u202egnp.exe",
        "",
        *(f"prefix-{number:02}/{'x' * 40}/" for number in range(46)),
    )
    many = tuple(Tally(label, 10**12, 10**15 // (row + 1)) for row, label in enumerate(labels))
    row = {
        "names": [HOSTILE, long],
        "address": f"s3://{long}",
        "rules": [HOSTILE, long],
        "hold": HOSTILE,
        "reason": HOSTILE,
        "holder": long,
        "outcome": HOSTILE,
        "deadline": NEVER,
        "size": 10**18,
    }
    due, held = Tally("due", 10**12, 10**16), Tally("held", 10**12, 10**16)
    summary = Summary(due, held, 10**13, *[many] * 5, by_label={"branch": many})
    manifest = replace(
        MANIFEST,
        summary=summary,
        target=HOSTILE,
        namespace=long,
        collector=HOSTILE,
        policy=json.dumps({HOSTILE: {"prefix": long}}),
        policy_hash=HOSTILE,
        snapshot={HOSTILE: long, "heads": {HOSTILE: [long]}},
        breaker=(HOSTILE, long),
        warnings=(HOSTILE, long),
    )
    outcomes = {HOSTILE: Tally(HOSTILE, 10**12, 10**16), "failed": Tally("failed", 1, 1)}
    return ReportData(manifest, HOSTILE, outcomes, (row,), (row,), (row,), ((NOW, HOSTILE, long),))
