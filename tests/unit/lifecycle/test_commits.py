"""Step 2: who reaches a commit, and which commits the dates leave."""

from datetime import UTC, date, datetime

import pytest

from ebbtide.core.errors import MetadataError
from ebbtide.targets.repository.lifecycle import CurrentRule, potential_commits
from ebbtide.targets.repository.model import Commit
from ebbtide.targets.repository.policy import ReferrerKind, lake_policy
from ebbtide.targets.repository.referrers import Referrer, commit_referrers

ANY = date(1998, 1, 20)
SEED_RULES = [
    CurrentRule("foo/bar", "", ANY, date(1998, 1, 9)),
    CurrentRule("foo/bar", "b1", ANY, date(1998, 1, 14)),
    CurrentRule("foo/zoo", "b1", ANY, None),
    CurrentRule("foo/bar", "b2", ANY, date(1998, 1, 17)),
    CurrentRule("foo/bar", "b3", ANY, date(1998, 1, 5)),
]


def chain(*days):
    """Make a straight history, one commit on each of the days, oldest first."""
    commits = {}
    for number, day in enumerate(days):
        parents = (f"c{days[number - 1]}",) if number else ()
        commits[f"c{day}"] = Commit(f"c{day}", "m", parents, datetime(1998, 1, day, 12, tzinfo=UTC))
    return commits


@pytest.mark.parametrize(
    ("branches", "expected"),
    [
        (["b1"], ["c2", "c6", "c10", "c18"]),
        (["b3"], ["c6", "c10", "c18"]),
        (["b1", "b3"], ["c6", "c10", "c18"]),
        (["b1", "b2", "b3"], ["c10", "c18"]),
        (["other"], ["c10", "c18"]),
        (["b2"], ["c10", "c18"]),
    ],
)
def test_the_seeds_cases_of_commits_only_accessible_from(branches, expected):
    """The latest limit among a commit's branches counts, each the earlier of its own and the default."""
    commits = chain(2, 6, 10, 18)
    found = potential_commits(commits, dict.fromkeys(branches, "c18"), SEED_RULES)

    assert sorted(expected) == [commit.commit_id for commit in found]
    assert {tuple(branches)} == {commit.branches for commit in found}


def test_a_commit_on_a_branch_that_no_rule_covers_is_not_potential():
    """What an uncovered branch reaches cannot go, so there is nothing to look for."""
    rules = [CurrentRule("x", "b1", ANY, None)]

    assert [] == potential_commits(chain(2), {"b1": "c2", "main": "c2"}, rules)


def test_a_commit_at_the_very_date_was_dealt_with():
    """Only commits after the last deleted date are potential; at that midnight everything was deleted."""
    commit = Commit("c", "m", (), datetime(1998, 1, 9, tzinfo=UTC))

    assert [] == potential_commits({"c": commit}, {"main": "c"}, SEED_RULES[:1])


def test_branches_that_rules_treat_alike_are_one_tie():
    """A commit keeps one referrer for each policy class, with the first name of the class."""
    policy = lake_policy({"r": {"prefix": "", "days": 3, "branch_days": {"main": 30}}})
    branches = {f"feature-{number}": "c2" for number in range(1000)} | {"main": "c2"}
    actual = commit_referrers(chain(1, 2), branches, {}, policy)
    expected = (
        Referrer(ReferrerKind.BRANCH, "feature-0", (3,)),
        Referrer(ReferrerKind.BRANCH, "main", (30,)),
    )

    assert {"c1": expected, "c2": expected} == actual


def test_tags_and_dangling_commits_have_ties_of_their_own():
    """A tag reaches its commit's ancestors; a commit that nobody reaches is dangling."""
    policy = lake_policy({"r": {"prefix": "", "days": 3}})
    commits = chain(1, 2) | {"lost": Commit("lost", "m", ("c1",), datetime(1998, 1, 3, tzinfo=UTC))}
    actual = commit_referrers(commits, {}, {"v1": "c2"}, policy)
    tag = (Referrer(ReferrerKind.TAG, "v1", (None,)),)

    assert {"c1": tag, "c2": tag, "lost": (Referrer(ReferrerKind.DANGLING, "lost", (3,)),)} == actual


@pytest.mark.parametrize(
    ("parents", "head"),
    [({"a": ("gone",)}, "a"), ({"a": ()}, "gone"), ({"a": ("b",), "b": ("a",)}, "a")],
)
def test_a_broken_history_stops_the_run(parents, head):
    """A missing parent, a branch to nowhere or a cycle is never 'no references'."""
    commits = {name: Commit(name, "m", p, datetime(1998, 1, 1, tzinfo=UTC)) for name, p in parents.items()}
    with pytest.raises(MetadataError):
        commit_referrers(commits, {"main": head}, {}, lake_policy({}))


def test_a_long_history_needs_no_deep_stack():
    """A hundred thousand commits in a row are walked without recursion."""
    count = 100_000
    moment = datetime(1998, 1, 1, tzinfo=UTC)
    commits = {str(n): Commit(str(n), "m", (str(n - 1),) if n else (), moment) for n in range(count)}
    referrers = commit_referrers(commits, {"main": str(count - 1)}, {}, lake_policy({}))

    assert (Referrer(ReferrerKind.BRANCH, "main", ()),) == referrers["0"]
