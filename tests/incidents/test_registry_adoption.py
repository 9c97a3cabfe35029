"""Registries that were purged as soon as Ebbtide met them (issue 15, A8)."""

from __future__ import annotations

import json

import pytest
from tests.services.ebb import Ebb, ebb
from tests.services.image_kit import push_image
from tests.services.image_place import APP, FIRST, LATER, ImagePlace, adopt

from ebbtide.cli.state import State
from ebbtide.core.errors import EnvironmentProblem

__all__ = ["ebb"]

RULES = [{"repository": "team/*", "tag": "v.*", "policy": "Released"}]


@pytest.fixture
def strange(ebb, tmp_path):
    """Give a registry that Ebbtide has scanned and nobody has adopted: one tag has a rule, two have none."""
    place = ImagePlace(ebb, tmp_path / "images", adopted=False)
    place.policies({"assign": RULES})
    for name in ("v1", "x", "y"):
        push_image(place.client, APP, [name], name=name)
    place.scan(FIRST)
    return place


@pytest.mark.spark
def test_the_first_plan_shows_what_would_go_and_stops(strange, monkeypatch):
    """Until somebody adopts a registry nothing is planned, and the policies of that day are what counts."""
    place = strange
    monkeypatch.setenv("EBBTIDE_USER", "olga")
    shown, said = place.ebb("image", "purge", place.target, "--yes", now=LATER, code=3)
    runs = place.ebb.json("runs")
    place.policies({"assign": RULES, "unmatched": "keep"})
    adopted, _ = place.ebb("plan", place.target, "--adopt", now=LATER)
    [entry] = place.ebb.lines("image", "log", place.target, "adoption")

    [default] = [line.split() for line in shown.splitlines() if line.startswith("Default (no rule matches)")]
    assert ["2", "2", "4"] == [default[4], default[5], default[7]]
    assert "due now: 4 items" in shown
    assert "4 of them only because no rule matches" in shown
    assert f"ebb plan {place.target} --adopt" in said
    assert ["abandoned"] == [run["state"] for run in runs]
    assert "due only because no rule matched: none" in adopted
    assert "no rule matches it" in adopted
    assert ("olga", 3, 2) == (entry["by"], sum(row["tags"] for row in entry["after"]), len(entry["after"]))


@pytest.mark.spark
def test_an_adopted_registry_is_purged_as_the_seed_says(strange):
    """With --adopt tags without a rule fall under Default, and the plan counts what goes for want of one."""
    place = strange
    survey = json.loads(place.ebb("plan", place.target, "--json", now=LATER, code=3)[0])
    planned = place.plan("--adopt")
    rows = place.ebb.lines("plan", "show", "latest", "--all")

    due = {row["policy"]: row["due"] for row in survey["policies"]}
    assert (False, {"Released": 0, "Default": 4}) == (survey["adopted"], due)
    assert {"label": "no rule matched", "objects": 4} in [
        {name: row[name] for name in ("label", "objects")} for row in planned["summary"]["by_rule"]
    ]
    assert 4 == planned["summary"]["due"]["objects"]
    assert [["Default", "no rule matched"]] * 4 == [row["rules"] for row in rows]


@pytest.mark.spark
def test_the_newest_of_a_new_registry_are_told_by_their_creation_dates(ebb, tmp_path):
    """Tags that a first scan found are ordered by when their images were built; without a date all stay."""
    place = ImagePlace(ebb, tmp_path / "images")
    place.policies({"keep_newest": [{"repository": "*", "tag": ".*", "count": 2}]})
    for tag, day in (("d", 4), ("a", 1), ("c", 3), ("b", 2)):
        push_image(place.client, APP, [tag], name=tag, created=f"2025-01-0{day}T00:00:00.123456789Z")
        push_image(place.client, "team/undated", [tag], name=tag, created="1970-01-01T00:00:00Z")
    place.scan(FIRST)
    place.plan()
    due = {name for name in place.due() if ":" in name and "@" not in name}
    dated = place.ebb.json("image", "explain", place.ref(f"{APP}:d"), now=LATER)
    unknown = place.ebb.json("image", "explain", place.ref("team/undated:d"), now=LATER)

    assert {f"{APP}:a", f"{APP}:b"} == due
    assert "order is unknown" not in json.dumps(dated)
    assert "order is unknown" in json.dumps(unknown)


def test_adopting_needs_the_role(tmp_path, monkeypatch, capsys):
    """Where roles are given only a purge-policy-writer may adopt; others are refused, and that is logged."""

    def start(*_):
        raise EnvironmentProblem("Spark would start")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(State, "spark", start)
    place = ImagePlace(Ebb(tmp_path, capsys), tmp_path / "images", adopted=False)
    monkeypatch.setenv("EBBTIDE_USER", "pia")
    place.ebb("image", "role", "grant", place.target, "pia", "purge-policy-writer")
    monkeypatch.setenv("EBBTIDE_USER", "mallory")
    _, refused = place.ebb("plan", place.target, "--adopt", code=2)
    [entry] = place.ebb.lines("image", "log", place.target, "adoption")
    monkeypatch.setenv("EBBTIDE_USER", "pia")
    _, allowed = place.ebb("plan", place.target, "--adopt", code=1)
    adopt(place.target, by="pia")
    monkeypatch.setenv("EBBTIDE_USER", "mallory")
    _, again = place.ebb("plan", place.target, "--adopt", code=1)

    assert "mallory may not adopt the registry" in refused
    assert ("mallory", True) == (entry["by"], bool(entry["refused"]))
    assert "Spark would start" in allowed
    assert "Spark would start" in again


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["plan", "lake:x", "--adopt"], "registries only"),
        (["plan", "s3://x", "--adopt"], "registries only"),
        (["plan", "{}", "--adopt", "--bin"], "--bin and --adopt are given"),
    ],
)
def test_adopt_is_about_the_images_of_registries(tmp_path, monkeypatch, capsys, words, said):
    """Anything else that is to be adopted is bad input."""
    monkeypatch.chdir(tmp_path)
    place = ImagePlace(Ebb(tmp_path, capsys), tmp_path / "images", adopted=False)

    assert said in place.ebb(*(word.format(place.target) for word in words), code=2)[1]
