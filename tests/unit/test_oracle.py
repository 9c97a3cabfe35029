"""The oracle itself, on small worlds whose answers were worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from ebbtide.core.decision import CollectorName
from ebbtide.core.instant import NEVER, parse_instant
from ebbtide.targets.repository.oracle import judge_world
from ebbtide.targets.repository.world_document import world_document

NOW = "1998-01-20T00:00:00Z"
NAMES = [str(collector) for collector in CollectorName]


def on(day: str) -> str:
    """Give a time in January 1998 by its day, and perhaps what follows it."""
    return f"1998-01-{day}"


def commit(name: str, parents: str, day: str, **addresses: str) -> dict[str, Any]:
    """Write a commit with a key for each address, all written on the 1st."""
    entries = {key: {"address": address, "created": on("01")} for key, address in addresses.items()}
    return {"id": name, "parents": parents.split(), "created": on(day), "entries": entries}


def judged(collect: list[str], **world: Any) -> Any:
    """Judge a world at the usual time."""
    return judge_world(world_document({"collect": collect, **world}), parse_instant(NOW))


CHAIN = [
    commit("a", "", "02", old="1", both="2", kept="3"),
    commit("b", "a", "10", middle="4", both="2"),
    commit("c", "b", "17", new="5", kept="3"),
]
STRAIGHT: dict[str, Any] = {"commits": CHAIN, "branches": {"main": "c"}}


def test_lifecycle_alone():
    """An object is due when the last of its references lapsed, and otherwise held by those that did not."""
    found = judged(
        ["lifecycle"],
        commits=[commit("a", "", "02", x="1", y="2"), commit("b", "a", "03", x="2", z="3")],
        branches={"main": "b"},
        staged={"main": {"y": {"address": "3", "created": on("18")}}},
        policy={
            "r": {"prefix": "x", "days": 5},
            "s": {"prefix": "y", "days": 3},
            "t": {"prefix": "z", "days": 1},
        },
    )

    assert {"1", "2"} == found.due
    assert {"3": {"y <- staging main"}} == found.held
    assert {"1": on("06"), "2": on("06"), "3": on("21")} == {
        address: deadline.date().isoformat() for address, deadline in found.deadlines.items()
    }
    assert {"1": CollectorName.LIFECYCLE, "2": CollectorName.LIFECYCLE} == found.collectors


def test_uncommitted_alone():
    """What nothing names is due when the grace period since its last write is over, and not before."""
    found = judged(
        ["uncommitted"],
        commits=[commit("a", "", "02", k="1"), commit("lost", "", "02", k="2")],
        branches={"main": "a"},
        staged={"main": {"k": {"address": "3", "created": on("02")}}},
        objects={
            **{name: {"last_modified": on("02")} for name in ("1", "2", "3", "_lakefs/x")},
            "u1": {"last_modified": on("19T12:00:00Z")},
            "u2": {"last_modified": on("19T12:00:00.000001Z")},
        },
        grace_hours=12,
    )

    assert {"u1"} == found.due
    assert {"u2": {"last modified <- grace"}} == found.held
    assert {"u1", "u2"} == set(found.deadlines)
    assert {"u1": CollectorName.UNCOMMITTED} == found.collectors


@pytest.mark.parametrize("spelling", ["data/1", "data//1", "data/1/"])
def test_an_object_that_is_named_in_another_spelling_is_not_uncommitted(spelling):
    """Spellings of one address are one address, so that a doubtful one is kept."""
    found = judged(
        ["uncommitted"],
        commits=[commit("a", "", "02", k="data/1")],
        objects={spelling: {"last_modified": on("02")}},
    )

    assert {} == found.deadlines


def test_a_grace_period_beyond_the_calendar_never_ends():
    """A last write near the end of the calendar has no deadline."""
    found = judged(["uncommitted"], objects={"u1": {"last_modified": "9999-12-31T12:00:00Z"}})

    assert {"u1": NEVER} == found.deadlines


def test_retention_alone():
    """Old heads let go after the branch's days; what the head or a younger commit needs is held by it."""
    found = judged(["retention"], **STRAIGHT, retention={"default_days": 5})

    assert {"1"} == found.due
    assert {
        "2": {"both <- commit b"},
        "3": {"kept <- commit c"},
        "4": {"middle <- commit b"},
    } == found.held
    assert {"1": parse_instant(on("15")), "2": parse_instant(on("22")), "3": NEVER} == {
        address: found.deadlines[address] for address in "123"
    }
    assert "5" not in found.deadlines


@pytest.mark.parametrize(
    ("child", "is_due"),
    [("15", True), ("15T00:00:00.000001Z", False), ("14T23:59:59.999999Z", True)],
)
def test_retention_counts_exact_days(child, is_due):
    """The days count from the very moment at which the child took the head's place."""
    commits = [commit("a", "", "02", k="1"), commit("b", "a", child)]
    found = judged(["retention"], commits=commits, branches={"main": "b"}, retention={"default_days": 5})

    assert is_due == ("1" in found.due)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"retention": {"default_days": 2}}, {"1", "2", "4"}),
        ({"retention": {"branch_days": {"main": 2}}}, {"1", "2", "4"}),
        ({"retention": {"branch_days": {"dev": 2}}}, set()),
        ({"retention": {"default_days": 2, "branch_days": {"main": 5}}}, {"1"}),
        ({"retention": {"default_days": 2}, "tags": {"v1": "b"}}, {"1"}),
        ({"retention": {"default_days": 2}, "tags": {"v1": "a"}}, {"4"}),
        ({"retention": {"default_days": 2, "tags_protect": False}, "tags": {"v1": "b"}}, {"1", "2", "4"}),
        ({"retention": {"default_days": 2}, "branches": {"main": "c", "old": "a"}}, {"4"}),
        ({"retention": {"default_days": 2}, "branches": {"main": "a"}}, {"4", "5"}),
        ({"retention": {"default_days": 5}, "branches": {"main": "a"}}, set()),
        ({"retention": {"default_days": 2}, "branches": {}}, {"1", "2", "3", "4", "5"}),
        ({"retention": {"default_days": 2147483647}}, set()),
    ],
)
def test_who_keeps_a_commit(fields, expected):
    """Branches by their days, heads, tags and dangling walks each keep what they should, and no more."""
    found = judged(["retention"], **(STRAIGHT | fields))

    assert expected == found.due


def test_a_merged_and_deleted_branch_is_dangling():
    """A second parent was no head of the branch that it was merged into, so it counts from its own time."""
    commits = [
        commit("a", "", "02", r="1"),
        commit("b", "a", "12", m="2"),
        commit("f1", "a", "11", f="3"),
        commit("f2", "f1", "14", f="4"),
        commit("m", "b f2", "18"),
    ]
    rules = {"default_days": 7}
    deleted = judged(["retention"], commits=commits, branches={"main": "m"}, retention=rules)
    kept = judged(["retention"], commits=commits, branches={"main": "m", "f": "f2"}, retention=rules)
    later = judged(
        ["retention"], commits=commits, branches={"main": "m"}, retention=rules | {"default_days": 6}
    )

    assert {"1"} == deleted.due
    assert {"2": on("25"), "3": on("21"), "4": on("21")} == {
        address: deleted.deadlines[address].date().isoformat() for address in deleted.held
    }
    assert {"1"} == kept.due
    assert {"2", "3"} == set(kept.held)
    assert {"1", "3", "4"} == later.due


def test_retention_keeps_what_is_staged_and_the_repositorys_metadata():
    """Staging never lapses, and nothing under _lakefs/ is ever due."""
    found = judged(
        ["retention"],
        commits=[commit("a", "", "02", x="1", y="_lakefs/2"), commit("b", "a", "03")],
        branches={"main": "b"},
        staged={"main": {"z": {"address": "1", "created": on("02")}}},
        retention={"default_days": 1},
    )

    assert frozenset() == found.due
    assert {"1": {"z <- staging main"}, "_lakefs/2": {"_lakefs/2 <- metadata"}} == found.held


UNION: dict[str, Any] = STRAIGHT | {
    "policy": {"r": {"prefix": "middle", "days": 4}, "s": {"prefix": "old", "days": 30}},
    "retention": {"default_days": 5},
    "objects": {"u1": {"last_modified": on("02")}, "5": {"last_modified": on("02")}},
}


def test_together_they_find_what_each_would_alone():
    """The union is due, each address by the collector with the earliest deadline, held as that one says."""
    found = judged(NAMES, **UNION)
    alone = [judged([name], **UNION).due for name in NAMES]

    assert {"1", "4", "u1"} == found.due
    assert frozenset().union(*alone) == found.due
    assert {
        "1": CollectorName.RETENTION,
        "4": CollectorName.LIFECYCLE,
        "u1": CollectorName.UNCOMMITTED,
    } == found.collectors
    assert {"2": {"both <- commit b"}, "3": {"kept <- commit c"}} == found.held


def test_of_equal_deadlines_the_first_collector_is_named():
    """Where lifecycle and retention let go at the same moment, lifecycle found it."""
    policy = {"r": {"prefix": "old", "days": 14}}
    found = judged(NAMES[::-1], **(UNION | {"policy": policy}))

    assert parse_instant(on("15")) == found.deadlines["1"]
    assert CollectorName.LIFECYCLE == found.collectors["1"]


def test_who_was_not_asked_says_nothing():
    """A collector that is not named does not judge, though the world has its fields."""
    assert {"4"} == judged(["lifecycle"], **UNION).due
    assert {"u1"} == judged(["uncommitted"], **UNION).due
    assert {"1"} == judged(["retention"], **UNION).due


def test_what_lies_outside_the_namespace_is_held():
    """No rule deletes outside the namespace or metadata; a URL below the namespace names an object inside."""
    found = judged(
        NAMES,
        policy={"r": {"prefix": "", "days": 1}},
        retention={"default_days": 1},
        namespace="s3://lake/ns",
        commits=[
            commit(
                "a", "", "02", o="s3://lake/other", m="_lakefs/x", i="s3a://lake/ns/in", d="s3://lake/ns/%64"
            ),
            commit("b", "a", "03"),
        ],
        branches={"main": "b"},
        objects={name: {"last_modified": on("02")} for name in ("s3://lake/lost", "s3://lake/ns/lost")},
    )

    assert {"in", "lost"} == found.due
    assert {
        "s3://lake/other": {"s3://lake/other <- outside"},
        "_lakefs/x": {"_lakefs/x <- metadata"},
        "d": {"d <- branch main"},
    } == found.held
