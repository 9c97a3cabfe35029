"""
Ties: who reaches each commit.

The branches of a commit are kept as the distinct *policy classes* among them, so this table does not grow
with the number of branches: a thousand feature branches that all rules treat alike are one class.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from ebbtide.core.errors import MetadataError
from ebbtide.targets.lake.catalog.model import Commit
from ebbtide.targets.repository.policy import LakePolicy, PolicyClass, Referrer

ClassKey = TypeVar("ClassKey", bound=Hashable)


@dataclass(frozen=True, order=True)
class Tie:
    """One way to reach a commit: a kind of referrer, how the rules treat it, and one name of that class."""

    referrer: Referrer
    name: str
    days: PolicyClass


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
            raise broken_history(f"{name!r} points at commit {head}, which is not there")
        _add(reached[head], key, name, preferred)
    for commit_id in children_first(commits):
        for parent in commits[commit_id].parents:
            for key, name in reached[commit_id].items():
                _add(reached[parent], key, name, preferred)
    return dict(reached)


def _add(classes: dict[ClassKey, str], key: ClassKey, name: str, preferred: str) -> None:
    known = classes.get(key)
    if known is None or (name != preferred, name) < (known != preferred, known):
        classes[key] = name


def children_first(commits: Mapping[str, Commit]) -> list[str]:
    """Order commits so that each comes before its parents; stop if one is missing or a cycle closes."""
    children = dict.fromkeys(commits, 0)
    for commit in commits.values():
        for parent in commit.parents:
            if parent not in children:
                raise broken_history(f"commit {commit.id} has parent {parent}, which is not there")
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
        raise broken_history("a commit is its own ancestor")
    return ordered


def broken_history(what: str) -> MetadataError:
    """Say that a history cannot be trusted."""
    return MetadataError(
        what,
        why="what it references is unknown, so nothing may be deleted",
        fix="repair the repository's history, then plan again",
    )
