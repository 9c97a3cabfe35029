"""The seed's own examples, through `ebb simulate` and `ebb policy test`, with the commands that users run."""

import json
from contextlib import nullcontext

import pytest

from ebbtide.cli.main import run
from ebbtide.cli.state import State

pytestmark = pytest.mark.spark

OLD = "1998-01-01T00:00:00Z"
RULE1 = {"prefix": "foo/bar", "days": 10, "enabled": True, "branch_days": {"b1": 5, "b2": 8}}
RULE2 = {"prefix": "foo/zoo", "enabled": True, "branch_days": {"b1": 5}}


def entry(address, created=OLD):
    """Write an entry."""
    return {"address": address, "created": created, "size": 1}


def commit(name, parents, created, entries=None):
    """Write a commit."""
    return {"id": name, "parents": parents, "created": created, "entries": entries or {}}


DEDUPLICATION = {
    "policy": {"bar": {"prefix": "foo/bar", "days": 10}, "tar": {"prefix": "foo/tar", "days": 10}},
    "branches": {"main": "c1"},
    "commits": [
        commit(
            "c1",
            [],
            OLD,
            {
                "foo/bar/a": entry("1"),
                "foo/bar/b": entry("4"),
                "foo/tar/a": entry("1"),
                "foo/tar/b": entry("2"),
                "foo/other/c": entry("2"),
            },
        )
    ],
}


@pytest.fixture
def ebb(spark, tmp_path, monkeypatch, capsys):
    """Run a command in a folder of its own, on the tests' Spark, and give its exit code and output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(State, "spark", lambda *_: nullcontext(spark))

    def call(*arguments, files=()):
        for name, content in files:
            (tmp_path / name).write_text(json.dumps(content))
        code = run(list(arguments))
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def test_the_policy_table_and_current_rules(ebb):
    """On 20/01/1998, after a run of the day before with rule one alone, the seed's tables come out."""
    world = {
        "policy": {"rule1": RULE1, "rule2": RULE2},
        "branches": {},
        "commits": [],
        "runs": [{"run_id": 1, "now": "1998-01-19T00:00:00Z", "succeeded": True, "policy": {"rule1": RULE1}}],
    }
    code, text, error = ebb(
        "simulate", "lake", "w.json", "--now", "1998-01-20", "--json", files=[("w.json", world)]
    )
    found = json.loads(text)
    table = [
        (row["run_id"], row["rule_id"], row["prefix"], row["branch"], row["date_to_be_deleted"])
        for row in found["policy_table"]
    ]
    rules = [
        (row["prefix"], row["branch"], row["date_to_be_deleted"], row["last_deleted"])
        for row in found["current_rules"]
    ]

    assert (0, "") == (code, error)
    assert [
        (1, "rule1", "foo/bar", "", "1998-01-09"),
        (1, "rule1", "foo/bar", "b1", "1998-01-14"),
        (1, "rule1", "foo/bar", "b2", "1998-01-11"),
        (2, "rule1", "foo/bar", "", "1998-01-10"),
        (2, "rule1", "foo/bar", "b1", "1998-01-15"),
        (2, "rule1", "foo/bar", "b2", "1998-01-12"),
        (2, "rule2", "foo/zoo", "b1", "1998-01-15"),
    ] == table
    assert [
        ("foo/bar", "", "1998-01-10", "1998-01-09"),
        ("foo/bar", "b1", "1998-01-15", "1998-01-14"),
        ("foo/bar", "b2", "1998-01-12", "1998-01-11"),
        ("foo/zoo", "b1", "1998-01-15", None),
    ] == rules


def test_policy_suites(ebb):
    """The five-row example and its neighbours pass as a suite; a wrong expectation fails and is shown."""
    branches = {
        "policy": {"r": {"prefix": "", "days": 10, "branch_days": {"b1": 5}}},
        "branches": {"main": "c1", "b1": "c2"},
        "commits": [
            commit("c1", [], OLD, {"both": entry("1")}),
            commit("c2", ["c1"], OLD, {"both": entry("1"), "only": entry("2")}),
        ],
    }
    suite = [
        {
            "name": "dedup",
            "kind": "lake",
            "world": DEDUPLICATION,
            "now": "1998-01-20",
            "expect": {"due": ["1", "4"], "held": ["2"]},
        },
        {
            "name": "five days",
            "kind": "lake",
            "world": branches,
            "now": "1998-01-06",
            "expect": {"due": ["2"], "held": ["1"]},
        },
        {
            "name": "ten days",
            "world": branches,
            "now": "1998-01-11T00:00:00Z",
            "expect": {"due": ["1", "2"], "held": []},
        },
        {"name": "wrong", "world": DEDUPLICATION, "now": "1998-01-20", "expect": {"due": ["2"]}},
    ]
    code, text, _ = ebb("policy", "test", "suite.json", "--json", files=[("suite.json", suite)])
    found = json.loads(text)

    assert 1 == code
    assert [True, True, True, False] == [case["passed"] for case in found]
    assert {"due": ["1", "4"]} == found[3]["actual"]
    assert {"due": ["2"]} == found[3]["expected"]


def test_simulation_says_who_holds_what(ebb):
    """Of the five rows 1 and 4 go with their paths and rules, and 2 stays because of foo/other/c."""
    code, text, _ = ebb(
        "simulate", "lake", "w.json", "--now", "1998-01-20", "--json", files=[("w.json", DEDUPLICATION)]
    )
    found = json.loads(text)
    held = found["held"][0]

    assert 0 == code
    assert [
        {
            "address": "1",
            "paths": ["foo/bar/a", "foo/tar/a"],
            "matched_rules": ["bar", "tar"],
            "collector": "lifecycle",
            "deadline": "1998-01-11T00:00:00Z",
        },
        {
            "address": "4",
            "paths": ["foo/bar/b"],
            "matched_rules": ["bar"],
            "collector": "lifecycle",
            "deadline": "1998-01-11T00:00:00Z",
        },
    ] == found["due"]
    assert ("2", "foo/other/c on branch main") == (held["address"], held["by"])
    assert [{"commit_id": "c1", "branches": ["main"]}] == found["potential_commits"]
