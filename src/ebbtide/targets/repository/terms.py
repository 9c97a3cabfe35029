"""
Terms: until when each commit keeps what it reaches, and who keeps it.

A commit is *active* while it is the head of a branch, and for the days of the branch after another commit
replaced it. Only first parents were heads of the branch that is walked: a second parent was merged, and the
branch it came from keeps it. A commit on no walk is dangling, and is kept for the default days.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from ebbtide.core.decision import HoldReason
from ebbtide.core.instant import NEVER, days_after
from ebbtide.targets.repository.model import Commit
from ebbtide.targets.repository.referrers import broken_history, children_first
from ebbtide.targets.repository.retention_rules import RetentionRules

_PREFERRED = (HoldReason.HEAD, HoldReason.TAG, HoldReason.KEPT, HoldReason.NOT_YET)
"""Of several terms of equal length the first of these is named, then the smallest text."""


@dataclass(frozen=True, order=True)
class Term:
    """Until when a commit or staged entries keep what they reach; messages put the keeper after a key."""

    until: datetime
    keeper: str
    why: str

    @property
    def lapses(self) -> bool:
        """Return True if it ends at all."""
        return self.until < NEVER


@dataclass(frozen=True)
class _Walk:
    """The longest walk through a commit: its days and its branch; a dangling leaf has no branch."""

    days: int | None
    branch: str | None

    @property
    def order(self) -> tuple[bool, int, bool, str]:
        """The longest walk is the smallest, then branches by name; dangling walks come last."""
        return (self.days is not None, -(self.days or 0), self.branch is None, self.branch or "")

    def term(self, commit_id: str, since: datetime) -> Term:
        """Return the term of a commit that was a head until a moment."""
        until = NEVER if self.days is None else days_after(since, self.days)
        if self.branch is None:
            keeper = f"in dangling commit {commit_id}"
        else:
            keeper = f"in commit {commit_id} of branch {self.branch}"
        return Term(until, keeper, HoldReason.KEPT if until == NEVER else HoldReason.NOT_YET)


def commit_terms(
    commits: Mapping[str, Commit],
    branches: Mapping[str, str],
    tags: Mapping[str, str],
    rules: RetentionRules,
) -> dict[str, Term]:
    """
    Return the latest term of every commit; a commit is active at a time if its term ends later.

    Children are visited before parents and pass on only their longest walk, so every commit is visited once,
    however many branches share it.
    """
    ordered = children_first(commits)
    terms: dict[str, Term] = {}
    for commit_id, term in _pinned(commits, branches, tags, rules):
        _keep(terms, commit_id, term)
    walks = _branch_walks(branches, rules)
    for commit_id in ordered:
        commit = commits[commit_id]
        if commit_id not in walks:
            walks[commit_id] = _Walk(rules.default_days, None)
            _keep(terms, commit_id, walks[commit_id].term(commit_id, commit.created))
        for parent in commit.parents[:1]:
            _keep(terms, parent, walks[commit_id].term(parent, commit.created))
            _pass(walks, parent, walks[commit_id])
    return terms


def staging_term(branch: str) -> Term:
    """Return the term of staged entries: they are kept until they are committed or reset."""
    return Term(NEVER, f"staged on branch {branch}", HoldReason.STAGING)


def _pinned(
    commits: Mapping[str, Commit], branches: Mapping[str, str], tags: Mapping[str, str], rules: RetentionRules
) -> Iterator[tuple[str, Term]]:
    """Return the terms of heads, and of tagged commits if tags protect; a tag keeps no ancestors."""
    for refs in (branches, tags):
        for name, head in refs.items():
            if head not in commits:
                raise broken_history(f"{name!r} points at commit {head}, which is missing")
    for name, head in branches.items():
        yield head, Term(NEVER, f"at the head of branch {name}", HoldReason.HEAD)
    if rules.tags_protect:
        for name, commit_id in tags.items():
            yield commit_id, Term(NEVER, f"under tag {name}", HoldReason.TAG)


def _branch_walks(branches: Mapping[str, str], rules: RetentionRules) -> dict[str, _Walk]:
    walks: dict[str, _Walk] = {}
    for name, head in branches.items():
        _pass(walks, head, _Walk(rules.days_for(name), name))
    return walks


def _pass(walks: dict[str, _Walk], commit_id: str, walk: _Walk) -> None:
    known = walks.get(commit_id)
    if known is None or walk.order < known.order:
        walks[commit_id] = walk


def _keep(terms: dict[str, Term], commit_id: str, term: Term) -> None:
    known = terms.get(commit_id)
    if known is None or _rank(term) > _rank(known) or (_rank(term) == _rank(known) and term < known):
        terms[commit_id] = term


def _rank(term: Term) -> tuple[datetime, int]:
    return (term.until, -_PREFERRED.index(HoldReason(term.why)))
