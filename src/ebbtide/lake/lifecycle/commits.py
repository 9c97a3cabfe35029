"""
Step 2: which commits may hold something to delete, and who reaches each commit.

The branches of a commit are kept as the distinct *policy classes* among them, so this table does not grow
with the number of branches: a thousand feature branches that all rules treat alike are one class.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import TypeVar

from ebbtide.errors import MetadataError
from ebbtide.lake.catalog.model import Commit
from ebbtide.lake.lifecycle.policies import CurrentRule
from ebbtide.rules.lake_policy import LakePolicy, PolicyClass, Referrer

ClassKey = TypeVar("ClassKey", bound=Hashable)

_NEVER_POTENTIAL = datetime.max.replace(tzinfo=UTC)
_FROM_THE_BEGINNING = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, order=True)
class Tie:
    """One way to reach a commit: a kind of referrer, how the rules treat it, and one name of that class."""

    referrer: Referrer
    name: str
    days: PolicyClass


@dataclass(frozen=True)
class PotentialCommit:
    """A commit that may hold addresses which no earlier run could delete, with the branches that reach it."""

    commit_id: str
    branches: tuple[str, ...]


def potential_commits(
    commits: Mapping[str, Commit], branches: Mapping[str, str], rules: Sequence[CurrentRule]
) -> list[PotentialCommit]:
    """
    Find the commits that the dates leave: those after the latest limit among the branches that reach them.

    An object goes only when every branch lets go of it, so a commit that several branches reach is limited by
    the latest of their limits (the seed's intersection). A commit that no branch reaches takes the default.
    """
    limits = _branch_limits(rules)
    names = reached_by(commits, ((head, name, name) for name, head in branches.items()))
    found = []
    for commit_id, commit in sorted(commits.items()):
        reaching = tuple(sorted(names[commit_id]))
        limit = max(_limit_of(name, limits) for name in reaching or ("",))
        if commit.created > limit:
            found.append(PotentialCommit(commit_id, reaching))
    return found


def commit_ties(
    commits: Mapping[str, Commit],
    branches: Mapping[str, str],
    tags: Mapping[str, str],
    policy: LakePolicy,
    default_branch: str = "",
) -> dict[str, tuple[Tie, ...]]:
    """
    Say who reaches each commit, one tie a policy class; a commit that nobody reaches is dangling.

    A class is called by its first name, or by the default branch's if that is one of it.
    """
    heads = [(head, Referrer.BRANCH, name) for name, head in branches.items()]
    heads += [(head, Referrer.TAG, name) for name, head in tags.items()]
    keyed = ((head, (kind, policy.class_of(kind, name)), name) for head, kind, name in heads)
    reached = reached_by(commits, keyed, default_branch)
    dangling = policy.class_of(Referrer.DANGLING)
    ties = {}
    for commit_id, classes in reached.items():
        found = [Tie(kind, name, days) for (kind, days), name in classes.items()]
        ties[commit_id] = tuple(sorted(found, key=_tie_order)) or (
            Tie(Referrer.DANGLING, commit_id, dangling),
        )
    return ties


def _tie_order(tie: Tie) -> tuple[str, str]:
    return (tie.referrer, tie.name)


def reached_by(
    commits: Mapping[str, Commit], heads: Iterable[tuple[str, ClassKey, str]], preferred: str = ""
) -> dict[str, Mapping[ClassKey, str]]:
    """
    Carry each head's class down to all its ancestors, keeping the preferred or the first name of a class.

    Children come before parents, so each commit is visited once, whatever the shape of the history.
    """
    reached: dict[str, dict[ClassKey, str]] = {commit_id: {} for commit_id in commits}
    for head, key, name in heads:
        if head not in reached:
            raise _broken_history(f"{name!r} points at commit {head}, which is not there")
        _add(reached[head], key, name, preferred)
    for commit_id in _children_first(commits):
        for parent in commits[commit_id].parents:
            for key, name in reached[commit_id].items():
                _add(reached[parent], key, name, preferred)
    return dict(reached)


def _add(classes: dict[ClassKey, str], key: ClassKey, name: str, preferred: str) -> None:
    known = classes.get(key)
    if known is None or (name != preferred, name) < (known != preferred, known):
        classes[key] = name


def _children_first(commits: Mapping[str, Commit]) -> list[str]:
    children = dict.fromkeys(commits, 0)
    for commit in commits.values():
        for parent in commit.parents:
            if parent not in children:
                raise _broken_history(f"commit {commit.id} has parent {parent}, which is not there")
            children[parent] += 1
    ready = [commit_id for commit_id, count in children.items() if count == 0]
    ordered = []
    while ready:
        commit_id = ready.pop()
        ordered.append(commit_id)
        for parent in commits[commit_id].parents:
            children[parent] -= 1
            if children[parent] == 0:
                ready.append(parent)
    if len(ordered) != len(commits):
        raise _broken_history("a commit is its own ancestor")
    return ordered


def _broken_history(what: str) -> MetadataError:
    return MetadataError(
        what,
        why="what it references is unknown, so nothing may be deleted",
        fix="repair the repository's history, then plan again",
    )


def _branch_limits(rules: Sequence[CurrentRule]) -> dict[str, datetime]:
    """Give each named branch, and "" for the others, its earliest last deleted date; none means all."""
    limits: dict[str, datetime] = {}
    for rule in rules:
        limit = _midnight(rule.last_deleted)
        limits[rule.branch] = min(limits.get(rule.branch, _NEVER_POTENTIAL), limit)
    return limits


def _limit_of(branch: str, limits: Mapping[str, datetime]) -> datetime:
    # The default row concerns every branch, so a named branch is limited by the earlier of the two.
    return min(limits.get(branch, _NEVER_POTENTIAL), limits.get("", _NEVER_POTENTIAL))


def _midnight(day: date | None) -> datetime:
    return _FROM_THE_BEGINNING if day is None else datetime.combine(day, time.min, UTC)
