"""Until when commits keep what they reach: small histories, drawn in text, and who is active in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from ebbtide.core.decision import HoldReason
from ebbtide.core.errors import MetadataError
from ebbtide.core.instant import NEVER, parse_instant
from ebbtide.targets.repository.model import Commit
from ebbtide.targets.repository.retention_rules import RetentionRules
from ebbtide.targets.repository.terms import Term, commit_terms, staging_term

FIVE = RetentionRules(5)
NO_TAGS = RetentionRules(5, tags_protect=False)
MAIN_ONLY = RetentionRules(None, {"main": 5})
CHAIN = "a @1; b: a @3; c: b @8"
MERGED = "a @1; b: a @2; f1: a @3; f2: f1 @4; m: b f2 @6; n: m @7"
FORKED = "a @1; b: a @2; c: b @4; x: b @3"
LEFT = "a @1; b: a @2; l1: b @3; l2: l1 @5"
CRISS_CROSS = "a @1; b: a @2; c: a @2; d: b c @4; e: c b @6"


def day(number: float) -> datetime:
    """Give a moment by its day in January 1998, counted from one."""
    return datetime(1998, 1, 1, tzinfo=UTC) + timedelta(days=number - 1)


def history(text: str) -> dict[str, Commit]:
    """Read commits such as ``b: a @3``: id, parents in order, and the day."""
    commits = {}
    for row in filter(None, text.split("; ")):
        names, _, created = row.partition(" @")
        commit_id, _, parents = names.partition(":")
        commits[commit_id] = Commit(commit_id, "m", tuple(parents.split()), day(float(created)))
    return commits


@dataclass(frozen=True)
class Row:
    """One case: a history, what points into it, the rules, a time, and the commits that are active then."""

    name: str
    commits: str
    branches: dict[str, str]
    now: str
    active: str
    rules: RetentionRules = FIVE
    tags: dict[str, str] = field(default_factory=dict)


ROWS = [
    Row("an empty repository", "", {}, "1998-01-20", ""),
    Row("a head is kept for ever", "a @1", {"main": "a"}, "2098-01-01", "a"),
    Row("old heads within their days", CHAIN, {"main": "c"}, "1998-01-07", "a b c"),
    Row("counted from the child", CHAIN, {"main": "c"}, "1998-01-08", "b c"),
    Row("a child exactly the days ago", CHAIN, {"main": "c"}, "1998-01-13", "c"),
    Row("a microsecond before that", CHAIN, {"main": "c"}, "1998-01-12T23:59:59.999999Z", "b c"),
    Row("durations, not midnights", "a @1; b: a @2.5", {"main": "b"}, "1998-01-07T11:59:59Z", "a b"),
    Row("durations are exact", "a @1; b: a @2.5", {"main": "b"}, "1998-01-07T12:00:00Z", "b"),
    Row("a clock that went back", "a @5; b: a @3", {"main": "b"}, "1998-01-08", "b"),
    Row("a merge keeps its first parent alone", MERGED, {"main": "n"}, "1998-01-09", "b m n"),
    Row("the merged, deleted branch is dangling", MERGED, {"main": "n"}, "1998-01-08", "b f1 f2 m n"),
    Row("to where it was forked", MERGED, {"main": "n"}, "1998-01-07", "a b f1 f2 m n"),
    Row("a living branch keeps its merged head", MERGED, {"main": "n", "f": "f2"}, "1998-01-20", "f2 n"),
    Row(
        "and its old heads by its own days",
        MERGED,
        {"main": "n", "f": "f2"},
        "1998-01-12",
        "a f1 f2 n",
        RetentionRules(5, {"f": 10}),
    ),
    Row(
        "shared history is kept by the branch with the most days",
        FORKED,
        {"main": "c", "long": "x"},
        "1998-01-21",
        "a b c x",
        RetentionRules(5, {"long": 20}),
    ),
    Row(
        "from where the branches part",
        FORKED,
        {"main": "c", "long": "x"},
        "1998-01-22",
        "b c x",
        RetentionRules(5, {"long": 20}),
    ),
    Row("a dangling chain counts from its leaf", LEFT, {"main": "b"}, "1998-01-09", "b l1 l2"),
    Row("a dangling chain goes whole", LEFT, {"main": "b"}, "1998-01-10", "b"),
    Row(
        "a dangling walk keeps what a branch lets go",
        "a @1; b: a @2; c: b @3; l: b @4",
        {"main": "c"},
        "1998-01-11",
        "b c l",
        RetentionRules(9, {"main": 2}),
    ),
    Row("a branch that was reset", CHAIN, {"main": "a"}, "1998-01-12", "a b c"),
    Row("a branch that was reset long ago", CHAIN, {"main": "a"}, "1998-01-13", "a"),
    Row("a branch on an old commit", CHAIN, {"main": "c", "old": "a"}, "1998-01-20", "a c"),
    Row("no branch at all", CHAIN, {}, "1998-01-12", "b c"),
    Row("a tag keeps its commit alone", CHAIN, {"main": "c"}, "1998-01-20", "b c", tags={"v1": "b"}),
    Row("a tag that is switched off", CHAIN, {"main": "c"}, "1998-01-20", "c", NO_TAGS, {"v1": "b"}),
    Row("a tagged leaf", LEFT, {"main": "b"}, "1998-01-20", "b l2", tags={"v1": "l2"}),
    Row("a tagged leaf, switched off", LEFT, {"main": "b"}, "1998-01-20", "b", NO_TAGS, {"v1": "l2"}),
    Row("a named branch without default", CHAIN, {"main": "c"}, "2098-01-01", "c", MAIN_ONLY),
    Row("other branches without default", CHAIN, {"dev": "c"}, "2098-01-01", "a b c", MAIN_ONLY),
    Row("a dangling chain without default", LEFT, {"main": "b"}, "2098-01-01", "a b l1 l2", MAIN_ONLY),
    Row("a criss-cross", CRISS_CROSS, {"main": "d", "dev": "e"}, "1998-01-09", "c d e"),
    Row("half of a criss-cross", CRISS_CROSS, {"main": "d"}, "1998-01-10", "c d e"),
    Row("half of a criss-cross, later", CRISS_CROSS, {"main": "d"}, "1998-01-11", "d"),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_who_is_active(row):
    """At its time each history has exactly the active commits that its row says."""
    commits, now = history(row.commits), parse_instant(row.now)
    terms = commit_terms(commits, row.branches, row.tags, row.rules)

    assert set(commits) == set(terms)
    assert set(row.active.split()) == {commit_id for commit_id, term in terms.items() if term.until > now}


def test_a_term_says_who_keeps_a_commit_and_why():
    """Heads, tags, old heads and dangling commits are each named in words that follow a key."""
    commits = history("a @1; b: a @2; c: b @4; d: c @5; l: d @6")
    terms = commit_terms(commits, {"main": "d"}, {"v1": "b"}, FIVE)
    expected = {
        "a": Term(day(7), "in commit a of branch main", HoldReason.NOT_YET),
        "b": Term(NEVER, "under tag v1", HoldReason.TAG),
        "c": Term(day(10), "in commit c of branch main", HoldReason.NOT_YET),
        "d": Term(NEVER, "at the head of branch main", HoldReason.HEAD),
        "l": Term(day(11), "in dangling commit l", HoldReason.NOT_YET),
    }

    assert expected == terms


@pytest.mark.parametrize(
    ("branches", "tags", "days", "expected"),
    [
        ({"x": "b", "w": "b"}, {"v1": "b"}, 5, Term(NEVER, "at the head of branch w", HoldReason.HEAD)),
        ({"x": "c"}, {"v2": "b", "v1": "b"}, None, Term(NEVER, "under tag v1", HoldReason.TAG)),
        ({"x": "c", "w": "c"}, {}, None, Term(NEVER, "in commit b of branch w", HoldReason.KEPT)),
        ({"x": "c", "w": "c"}, {}, 5, Term(day(13), "in commit b of branch w", HoldReason.NOT_YET)),
        ({"y": "a"}, {}, None, Term(NEVER, "in dangling commit b", HoldReason.KEPT)),
        ({"x": "c"}, {}, 2**31 - 1, Term(NEVER, "in commit b of branch x", HoldReason.KEPT)),
    ],
)
def test_of_equals_one_is_named_whatever_the_order(branches, tags, days, expected):
    """A head comes before a tag, a tag before what has no days, and of alike ones the smallest text."""
    rules = RetentionRules(days, {"unknown": 3})
    turned = {name: dict(reversed(refs.items())) for name, refs in (("b", branches), ("t", tags))}
    one = commit_terms(history(CHAIN), branches, tags, rules)
    other = commit_terms(history("; ".join(reversed(CHAIN.split("; ")))), turned["b"], turned["t"], rules)

    assert expected == one["b"]
    assert one == other


def test_a_branch_is_named_before_a_dangling_walk_of_as_many_days():
    """Where a branch and a deleted one kept a commit equally long, the branch is told."""
    commits = history("a @1; b: a @2; c: b @4; l: b @4")

    assert "in commit b of branch main" == commit_terms(commits, {"main": "c"}, {}, FIVE)["b"].keeper


def test_staging_keeps_for_ever():
    """What is staged has a term without an end."""
    assert Term(NEVER, "staged on branch b1", HoldReason.STAGING) == staging_term("b1")


@pytest.mark.parametrize(
    ("commits", "branches", "tags"),
    [
        ("a: gone @1", {"main": "a"}, {}),
        ("a: b @1; b: a @1", {"main": "a"}, {}),
        ("a @1", {"main": "gone"}, {}),
        ("a @1", {"main": "a"}, {"v1": "gone"}),
    ],
)
def test_a_broken_history_stops_the_run(commits, branches, tags):
    """A missing parent, a cycle, or a branch or tag to nowhere is never 'nobody keeps it'."""
    with pytest.raises(MetadataError):
        commit_terms(history(commits), branches, tags, NO_TAGS)


def test_many_branches_share_a_long_history():
    """Ten thousand commits under a thousand branches each take the most days of the branches above them."""
    count, step = 10_000, 10
    created = [day(1) + timedelta(minutes=number) for number in range(count)]
    commits = {
        f"c{number}": Commit(f"c{number}", "m", (f"c{number - 1}",) if number else (), created[number])
        for number in range(count)
    }
    heads = {f"b{number}": number for number in range(step - 1, count, step)}
    days = {name: 1 + (count - head) // 100 + head % 70 for name, head in heads.items()}
    terms = commit_terms(commits, {name: f"c{n}" for name, n in heads.items()}, {}, RetentionRules(1, days))
    most, expected = 0, {}
    for number in reversed(range(count)):
        if number % step == step - 1:
            expected[f"c{number}"] = NEVER
            most = max(most, days[f"b{number}"])
        else:
            expected[f"c{number}"] = created[number + 1] + timedelta(days=most)

    assert expected == {commit_id: term.until for commit_id, term in terms.items()}
