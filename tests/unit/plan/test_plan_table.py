"""Plans of earlier versions, read as typed verdicts."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.plan.test_manifest import MANIFEST

from ebbtide.core.manifest import Tally, _seal, manifest_from_json
from ebbtide.engine.run_tables import typed_row

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def earlier_row(collector: str, task: dict[str, Any] | None, *branches: str) -> dict[str, Any]:
    """Return a row as format 2 had it."""
    return {
        "hash": 1,
        "address": "a",
        "deadline": NOW,
        "reason": "it is pinned",
        "held_by": "pin 1",
        "paths": ["p"],
        "rules": ["r"],
        "branches": list(branches),
        "size": 2,
        "created": NOW,
        "collector": collector,
        "task": task,
    }


def task(action: str, version: str, goal: str | None, **condition: Any) -> dict[str, Any]:
    """Return a task as format 2 had it."""
    unknown = {"etag": None, "latest": None, "newer": None}
    return {"action": action, "version": version, "goal": goal, **unknown, **condition}


NOTHING = {"etag": None, "is_latest": None, "newer_versions": None, "siblings": None}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (
            earlier_row("lifecycle", None, "on branch main"),
            ("lifecycle", "delete", None, None, None, {"branch": "on branch main"}),
        ),
        (
            earlier_row("transition", task("transition", "v1", "COLD", etag="e", latest=True, newer=0)),
            (
                "bucket",
                "transition",
                "v1",
                "COLD",
                NOTHING | {"etag": "e", "is_latest": True, "newer_versions": 0},
                {},
            ),
        ),
        (
            earlier_row("recycle", task("recycle", "latest", "latest v1")),
            ("bucket", "recycle", "latest", None, NOTHING | {"siblings": ["latest", "v1"]}, {}),
        ),
        (
            earlier_row("files", task("delete", "", None, etag="e")),
            ("files", "delete", "", None, NOTHING | {"etag": "e"}, {}),
        ),
    ],
)
def test_a_row_of_an_earlier_plan_is_typed(row, expected):
    """An action is no longer in the place of a collector, and a goal is a destination or siblings."""
    found = typed_row(row, "bucket")
    names = ("collector", "action", "version", "destination", "condition", "labels")

    assert expected == tuple(found[name] for name in names)
    assert ("it is pinned", "pin 1", ["p"]) == (found["hold"], found["holder"], found["names"])


def test_a_row_of_today_stays_as_it_is():
    """The labels of a typed row, which Parquet has as pairs, are a mapping."""
    row = {"names": ["p"], "labels": [("branch", "main")]}

    assert {"names": ["p"], "labels": {"branch": "main"}} == typed_row(row, "files")


def earlier_manifest(**summary: Any) -> str:
    """Return a manifest as format 2 had it."""
    plain = json.loads(MANIFEST.to_json()) | {"format": 2}
    del plain["batches"]
    for name in ("by_label", "by_action"):
        del plain["summary"][name]
    plain["summary"] |= summary
    return json.dumps(plain | {"seal": _seal(plain)})


@pytest.mark.parametrize(
    ("counted", "collectors", "actions"),
    [
        (("lifecycle", 2), (Tally("lifecycle", 2, 5),), (Tally("delete", 2, 5),)),
        (("expire", 2), (Tally("lifecycle", 2, 5),), (Tally("expire", 2, 5),)),
    ],
)
def test_an_earlier_manifest_counts_actions_apart(counted, collectors, actions):
    """What format 2 counted by collector is counted by action where it was one; branches are labels."""
    row = {"label": counted[0], "objects": counted[1], "bytes": 5}
    branch = {"label": "main", "objects": 1, "bytes": 1}
    summary = manifest_from_json(earlier_manifest(by_collector=[row], by_branch=[branch])).summary

    assert (collectors, actions) == (summary.by_collector, summary.by_action)
    assert {"branch": (Tally("main", 1, 1),)} == summary.by_label


def test_scripts_still_find_branches_and_waves():
    """A manifest has its counts by branch and its number of batches under the names that they always had."""
    plain = json.loads(MANIFEST.to_json())

    assert ([], 1, 1) == (plain["summary"]["by_branch"], plain["waves"], plain["batches"])
