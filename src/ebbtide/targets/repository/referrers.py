"""
Referrers: the branches and tags that reach each commit.

The branches of a commit are kept as the distinct *policy classes* among them, so this table does not grow
with the number of branches: a thousand feature branches that all rules treat alike are one class.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from ebbtide.core.errors import MetadataError
from ebbtide.targets.repository.model import Commit
from ebbtide.targets.repository.policy import LakePolicy, PolicyClass, ReferrerKind

ClassKey = TypeVar("ClassKey", bound=Hashable)


@dataclass(frozen=True, order=True)
class Referrer:
    """A class of referrers that the rules treat alike: their kind, the name of one of them, and its days."""

    kind: ReferrerKind
    name: str
    days: PolicyClass


def commit_referrers(
    commits: Mapping[str, Commit],
    branches: Mapping[str, str],
    tags: Mapping[str, str],
    policy: LakePolicy,
    default_branch: str = "",
) -> dict[str, tuple[Referrer, ...]]:
    """
    Return the referrers of each commit, one per policy class; a commit without any is dangling.

    A class is named after the default branch if that is in it, or else after its first name.
    """
    heads = [(head, ReferrerKind.BRANCH, name) for name, head in branches.items()]
    heads += [(head, ReferrerKind.TAG, name) for name, head in tags.items()]
    keyed = ((head, (kind, policy.class_of(kind, name)), name) for head, kind, name in heads)
    reached = reached_by(commits, keyed, default_branch)
    dangling = policy.class_of(ReferrerKind.DANGLING)
    referrers = {}
    for commit_id, classes in reached.items():
        found = [Referrer(kind, name, days) for (kind, days), name in classes.items()]
        referrers[commit_id] = tuple(sorted(found, key=_referrer_order)) or (
            Referrer(ReferrerKind.DANGLING, commit_id, dangling),
        )
    return referrers


def _referrer_order(referrer: Referrer) -> tuple[str, str]:
    return (referrer.kind, referrer.name)


def reached_by(
    commits: Mapping[str, Commit], heads: Iterable[tuple[str, ClassKey, str]], preferred: str = ""
) -> dict[str, Mapping[ClassKey, str]]:
    """
    Return for each commit the classes of the heads that reach it, with the preferred or first name of each.

    Children are visited before parents, so each commit is visited once, whatever the shape of the history.
    """
    reached: dict[str, dict[ClassKey, str]] = {commit_id: {} for commit_id in commits}
    for head, key, name in heads:
        if head not in reached:
            raise broken_history(f"{name!r} points at commit {head}, which is missing")
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
    """Return the commits, each before its parents; MetadataError if one is missing or there is a cycle."""
    children = dict.fromkeys(commits, 0)
    for commit in commits.values():
        for parent in commit.parents:
            if parent not in children:
                raise broken_history(f"commit {commit.id} has parent {parent}, which is missing")
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
    """Return the error for a history that cannot be trusted."""
    return MetadataError(
        what,
        why="what it references is unknown, so nothing may be deleted",
        fix="repair the repository's history, then plan again",
    )
