"""Hypothesis strategies for small lake worlds, shaped so that rules, branches and addresses often meet."""

from __future__ import annotations

import random
from datetime import timedelta
from itertools import permutations
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from ebbtide.core.instant import format_instant, parse_instant

PREFIXES = ["", "a", "a/", "a/b", "a/b/", "b/", "ü/"]
KEYS = ["a", "a/b", "a/b/c", "a/bc", "a/x", "b/1", "b/2", "c", "ü/1", "z"]
ADDRESSES = [str(number) for number in range(8)]
ODD_ADDRESSES = [
    "s3://elsewhere/8",
    "_lakefs/9",
    "s3://simulated-namespace/1",
    "s3a://simulated-namespace//2",
    "s3://simulated-namespace/%33",
    "d//4",
]
"""Outside the namespace, metadata, and other spellings, of which the last two may name other objects."""
BRANCHES = ["main", "b1", "b2"]
COLLECTORS = ["lifecycle", "uncommitted", "retention"]
COLLECTED = [list(names) for number in (1, 2, 3) for names in permutations(COLLECTORS, number)]
UNREFERENCED = ["u1", "u2", "u3", "u4", "_lakefs/u5", "s3://elsewhere/u6", "s3://simulated-namespace/u7"]
DAYS = st.integers(1, 6)
HOURS = st.sampled_from(["00:00:00", "00:00:01", "12:30:00", "23:59:59.999999"])
NOW = "1998-01-20T00:00:00Z"
AROUND = [
    timedelta(days=-3),
    timedelta(hours=-1),
    timedelta(microseconds=-1),
    timedelta(0),
    timedelta(microseconds=1),
    timedelta(minutes=30),
]

RESTORED_UNTIL = [
    format_instant(parse_instant(NOW) + after) for after in (*AROUND, timedelta(days=2), timedelta(days=9))
]


@st.composite
def moments(draw: st.DrawFn) -> str:
    """Draw times around the boundaries that rules with a few days have."""
    return f"1998-01-{draw(st.integers(10, 21)):02d}T{draw(HOURS)}Z"


@st.composite
def rules(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a rule with days, branch days, or both."""
    rule: dict[str, Any] = {
        "prefix": draw(st.sampled_from(PREFIXES)),
        "enabled": draw(st.sampled_from([True, True, True, False])),
        "branch_days": draw(st.dictionaries(st.sampled_from(BRANCHES), DAYS, max_size=2)),
    }
    if not rule["branch_days"] or draw(st.booleans()):
        rule["days"] = draw(DAYS)
    if draw(st.integers(0, 4)) == 0:
        rule["tag_days"] = draw(DAYS)
    return rule


@st.composite
def entries(draw: st.DrawFn, most: int = 6) -> dict[str, Any]:
    """Draw the whole content of a commit or of a branch's staging."""
    keys = draw(st.lists(st.sampled_from(KEYS), unique=True, max_size=most))
    return {
        key: {
            "address": draw(st.sampled_from(ADDRESSES * 3 + ODD_ADDRESSES)),
            "created": draw(moments()),
            "size": draw(st.integers(0, 9)),
        }
        for key in keys
    }


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a world with dangling commits, shared history and addresses that have many keys."""
    count = draw(st.integers(1, 6))
    commits = []
    for number in range(count):
        known = [commit["id"] for commit in commits]
        parents = draw(st.lists(st.sampled_from(known), unique=True, max_size=2)) if known else []
        commits.append(
            {"id": f"c{number}", "parents": parents, "created": draw(moments()), "entries": draw(entries())}
        )
    ids = st.sampled_from([commit["id"] for commit in commits])
    branches = draw(st.dictionaries(st.sampled_from(BRANCHES), ids, max_size=3))
    staged = {name: draw(entries(3)) for name in branches if draw(st.booleans())}
    return {
        "policy": draw(st.dictionaries(st.sampled_from(["r1", "r2", "r3"]), rules(), max_size=3)),
        "branches": branches,
        "tags": draw(st.dictionaries(st.sampled_from(["v1"]), ids, max_size=1)),
        "commits": commits,
        "staged": staged,
    }


@st.composite
def retentions(draw: st.DrawFn) -> dict[str, Any]:
    """Draw retention rules with a default, branch days, or both."""
    retention: dict[str, Any] = {
        "branch_days": draw(st.dictionaries(st.sampled_from(BRANCHES), DAYS, max_size=2)),
        "tags_protect": draw(st.booleans()),
    }
    if not retention["branch_days"] or draw(st.integers(0, 3)):
        retention["default_days"] = draw(DAYS)
    return retention


@st.composite
def objects(draw: st.DrawFn, grace_hours: int) -> dict[str, Any]:
    """Draw what the store lists: most addresses, and some that nothing names, near the end of their grace."""
    found = {}
    for address in ADDRESSES + UNREFERENCED:
        if draw(st.integers(0, 5)):
            after = draw(st.sampled_from(AROUND))
            last_modified = parse_instant(NOW) - timedelta(hours=grace_hours) + after
            found[address] = {
                "last_modified": format_instant(last_modified),
                "size": draw(st.integers(0, 9)),
            }
    return found


@st.composite
def collected_worlds(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a world for any of the collectors, alone or together."""
    world = draw(worlds())
    grace_hours = draw(st.sampled_from([0, 1, 24, 36]))
    return {
        **world,
        "retention": draw(retentions()),
        "objects": draw(objects(grace_hours)),
        "grace_hours": grace_hours,
        "collect": draw(st.sampled_from(COLLECTED)),
    }


def many_worlds(count: int, number: int, *, every: bool = False) -> list[dict[str, Any]]:
    """
    Give so many worlds, the same for the same seed, to be judged in one Spark job.

    They are for the lifecycle alone, or else for every collector.
    """
    found: list[dict[str, Any]] = []

    @seed(number)
    @settings(
        max_examples=count,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        deadline=None,
        database=None,
    )
    @given(collected_worlds() if every else worlds())
    def collect(world: dict[str, Any]) -> None:
        # Not drawn, so that what else is drawn does not depend on it.
        chance = random.Random(f"{number} {len(found)}")
        some = [address for address in ADDRESSES if chance.random() < 0.25]
        found.append({**world, "restored": {address: chance.choice(RESTORED_UNTIL) for address in some}})

    collect()
    return found
