"""The toy target from the command line: nothing in Ebbtide knows it, and the commands work on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime

import pytest
from tests.services.ebb import ebb
from tests.toy_target.installation import PROJECT, install, installed

__all__ = ["ebb"]

OLD, NEW, TODAY = "2026-01-01T00:00:00Z", "2026-02-10T00:00:00Z", "2026-02-15T00:00:00Z"
WEEK_LATER = "2026-02-22T01:00:00Z"
DUE_SINCE = "2026-01-31T00:00:00Z"
POLICY = ".ebbtide-files.json"
MOST_LINES = 200


def write(file, moment, text="text"):
    """Write a file at a moment."""
    file.parent.mkdir(exist_ok=True, parents=True)
    file.write_text(text)
    seconds = datetime.fromisoformat(moment).timestamp()
    os.utime(file, (seconds, seconds))


def files(folder):
    """Name the files that users see."""
    found = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    return {name for name in found if not name.startswith(".ebbtide")}


@pytest.fixture
def inbox(ebb, tmp_path):
    """Give a folder with a policy of 30 days, two files that are older, and one that is not."""
    folder = ebb.folder / "inbox"
    for name, written in {"a/1": OLD, "a/2": OLD, "new": NEW}.items():
        write(folder / name, written)
    (folder / POLICY).write_text('{"days": 30}')
    with installed(tmp_path / "site"):
        yield folder


def test_it_is_small():
    """The whole package has at most 200 lines."""
    lines = [line for file in PROJECT.rglob("*.py") for line in file.read_text().splitlines()]

    assert len(lines) <= MOST_LINES


def test_another_process_finds_it(tmp_path):
    """An installed package is found by its entry point: help names it, and explain works."""
    write(tmp_path / "inbox/old", OLD)
    (tmp_path / "inbox" / POLICY).write_text('{"days": 30}')
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(install(tmp_path / "site"))}

    def ebb(*words):
        command = [sys.executable, "-c", "from ebbtide.cli.main import main; main()", *words]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    assert "files:FOLDER" in ebb("plan", "--help").stdout
    said = ebb("explain", "files:inbox", "old", "--json")
    assert (0, "") == (said.returncode, said.stderr)
    assert {"decision": "due", "deadline": DUE_SINCE} == json.loads(said.stdout)


@pytest.mark.spark
def test_plan_show_explain_apply_report_runs(ebb, inbox):
    """Old files are planned, shown, explained, deleted and reported; the new file and the policy stay."""
    planned = ebb.json("plan", "files:inbox", now=TODAY)
    rows = ebb.lines("plan", "show", "files:inbox:latest", "--all")
    shown, _ = ebb("plan", "show", "latest")
    (held,) = ebb.lines("plan", "show", "latest", "--all", "--held")

    assert ("files", 2, 3) == (
        planned["collector"],
        planned["summary"]["due"]["objects"],
        planned["summary"]["known_objects"],
    )
    assert {"a/1": DUE_SINCE, "a/2": DUE_SINCE} == {row["address"]: row["deadline"] for row in rows}
    assert "would delete 2 files" in shown
    assert ("new", "not yet due", "kept for 30 days") == (held["address"], held["reason"], held["held_by"])
    assert "due" == ebb.json("explain", "files:inbox", "a/1", now=TODAY)["decision"]
    assert "held" == ebb.json("explain", "files:inbox", "new", now=TODAY)["decision"]
    ebb("explain", "files:inbox", POLICY, code=2)

    write(inbox / "a/2", NEW, "somebody has written it again since the plan")
    applied = ebb.json("apply", "latest", "--yes", now=TODAY)

    assert {"deleted": 1, "changed": 1} == {name: one["objects"] for name, one in applied["outcomes"].items()}
    assert {"a/2", "new"} == files(inbox)
    ebb("report", "latest")
    page = (ebb.folder / "ebbtide-run-1.html").read_text()
    assert ("a/1" in page, "version None" in page) == (True, False)
    assert [("files", "succeeded")] == [
        (one["collector"], one["state"]) for one in ebb.json("runs", "files:inbox")
    ]


@pytest.mark.spark
def test_the_bin(ebb, inbox):
    """What a run sets aside lies in the bin for its days, then a plan for the bin deletes it."""
    said, _ = ebb("recycle", "set", "files:inbox", "--days", "7")
    ebb("plan", "files:inbox", now=TODAY)
    applied = ebb.json("apply", "latest", "--yes", now=TODAY)
    listed = ebb.json("recycle", "ls", "files:inbox")
    items = ebb.lines("recycle", "ls", "files:inbox", "--items")
    early = ebb.json("plan", "files:inbox", "--bin", now=TODAY)

    assert "set aside for 7 days" in said
    assert (2, 0) == (applied["set_aside"]["objects"], applied["freed"]["objects"])
    assert ({"new"}, 0) == (files(inbox), early["summary"]["due"]["objects"])
    assert (7, [(1, 2)]) == (
        listed["recycle_days"],
        [(one["run"], one["objects"]) for one in listed["runs"]],
    )
    assert ["a/1", "a/2"] == [one["address"] for one in items]

    ebb("plan", "files:inbox", "--bin", now=WEEK_LATER)
    emptied = ebb.json("apply", "latest", "--yes", "--override-breaker", now=WEEK_LATER)

    assert 2 == emptied["freed"]["objects"]
    assert not [file for file in (inbox / ".ebbtide-bin").rglob("*") if file.is_file()]


@pytest.mark.spark
def test_restore(ebb, inbox):
    """A restored file is back with its bytes and held; plans from before are stale, and its hold ends."""
    ebb("recycle", "set", "files:inbox", "--days", "7")
    ebb("plan", "files:inbox", now=TODAY)
    ebb("apply", "1", "--yes", now=TODAY)
    write(inbox / "b", OLD)
    ebb("plan", "files:inbox", now=TODAY)
    ebb("restore", "1", "a/1", "--to", "out", now=TODAY)
    restored, _ = ebb("restore", "1", "a/1", now=TODAY)
    _, again = ebb("restore", "files:inbox", "a/1", now=TODAY, code=4)
    ebb("apply", "2", "--yes", now=TODAY, code=3)

    assert "restored 1 object" in restored
    assert "held until 2026-02-22" in restored
    assert "already restored by run 3" in again
    assert ({"a/1", "b", "new"}, "text") == (files(inbox), (ebb.folder / "out/a/1").read_text())
    assert "held" == ebb.json("explain", "files:inbox", "a/1", now=TODAY)["decision"]
    assert 1 == ebb.json("plan", "files:inbox", now=TODAY)["summary"]["due"]["objects"]
    assert "due" == ebb.json("explain", "files:inbox", "a/1", now=WEEK_LATER)["decision"]
    assert 2 == ebb.json("plan", "files:inbox", now=WEEK_LATER)["summary"]["due"]["objects"]


@pytest.mark.parametrize(
    ("policy", "target", "code"),
    [
        (None, "files:inbox", 2),
        ("{}", "files:inbox", 2),
        ('{"days": 0}', "files:inbox", 2),
        ('{"days": true}', "files:inbox", 2),
        ('{"days": 30, "weeks": 1}', "files:inbox", 2),
        ('{"days": 30}', "files:.", 2),
        ('{"days": 30}', "files:", 2),
        ('{"days": 30}', "files:nowhere", 2),
    ],
)
def test_what_cannot_be_planned(ebb, inbox, policy, target, code):
    """A policy that is missing or wrong, or a folder that is missing or holds the state root, is refused."""
    (inbox / POLICY).unlink()
    if policy is not None:
        (inbox / POLICY).write_text(policy)
    ebb("init")
    _, said = ebb("plan", target, code=code, now=TODAY)

    assert "what to do" in said
    assert {"a/1", "a/2", "new"} == files(inbox)
