"""Hypothesis strategies for small lake worlds, shaped so that rules, branches and addresses often meet."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

PREFIXES = ["", "a", "a/", "a/b", "a/b/", "b/", "ü/"]
KEYS = ["a", "a/b", "a/b/c", "a/bc", "a/x", "b/1", "b/2", "c", "ü/1", "z"]
ADDRESSES = [str(number) for number in range(8)]
BRANCHES = ["main", "b1", "b2"]
DAYS = st.integers(1, 6)
HOURS = st.sampled_from(["00:00:00", "00:00:01", "12:30:00", "23:59:59.999999"])
NOW = "1998-01-20T00:00:00Z"


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
            "address": draw(st.sampled_from(ADDRESSES)),
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


def many_worlds(count: int, number: int) -> list[dict[str, Any]]:
    """Give so many worlds, the same for the same seed, to be judged in one Spark job."""
    found: list[dict[str, Any]] = []

    @seed(number)
    @settings(
        max_examples=count,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        deadline=None,
        database=None,
    )
    @given(worlds())
    def collect(world: dict[str, Any]) -> None:
        found.append(world)

    collect()
    return found
