"""Merge and revert: one branch takes over, or takes back, the changes between two commits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from ebbtide.core.errors import Refused
from ebbtide.targets.lake.catalog import history, refs, staging
from ebbtide.targets.lake.catalog.committing import Committing, Words, land
from ebbtide.targets.lake.catalog.differences import three_way
from ebbtide.targets.lake.catalog.merging import apply_changes
from ebbtide.targets.lake.catalog.model import Commit, RangeInfo, Repository
from ebbtide.targets.lake.catalog.refs import Branch


@dataclass(frozen=True)
class _Plan:
    """Changes from `base` to `source`, to be laid over the head of `target`."""

    repo: Repository
    target: Branch
    head: Commit
    base: Commit
    source: Commit
    parents: tuple[str, ...]


class Reconciling(Committing):
    """Three-way merges. As in lakeFS, a branch with staged changes is refused: commit or reset it first."""

    def merge(
        self,
        repo: str,
        source_ref: str,
        into_branch: str,
        message: str = "",
        committer: str = "",
        metadata: Mapping[str, str] | None = None,
    ) -> Commit:
        """
        Bring a branch all changes that source's commits made since the two last agreed.

        Always makes a commit with two parents, first the branch, then the source. What is staged on the
        source is not merged. Conflicts, and a source that brings nothing new, are refused.
        """
        words = Words(message or f"Merge {source_ref!r} into {into_branch!r}", committer, metadata)
        history.check_words(*words)
        return self._until_landed(
            into_branch,
            lambda: self._apply(repo, self._plan_merge(repo, source_ref, into_branch), words),
        )

    def revert(
        self,
        repo: str,
        branch: str,
        ref: str,
        message: str = "",
        committer: str = "",
        *,
        parent: int | None = None,
    ) -> Commit:
        """Undo one commit's changes by a new commit; of a merge say which parent (1, 2) to go back to."""
        words = Words(message or f"Revert {ref!r}", committer)
        history.check_words(*words)
        return self._until_landed(
            branch,
            lambda: self._apply(repo, self._plan_revert(repo, branch, ref, parent), words),
        )

    def _plan_merge(self, repo: str, source_ref: str, into_branch: str) -> _Plan:
        """Find the two sides and where they last agreed."""
        with self._reading(repo) as (connection, found):
            target, head = _clean(connection, found, into_branch)
            source = refs.resolve(connection, found, source_ref).commit
            base = history.merge_base(connection, found, head.id, source.id)
            if base == source.id:
                raise Refused(
                    f"there is nothing to merge from {source_ref!r} into {into_branch!r}",
                    why="the branch has all its commits already",
                    fix="commit on the source first",
                )
            if base is None:
                raise Refused(f"{source_ref!r} and {into_branch!r} have no common ancestor")
            common = refs.commit(connection, found, base)
        return _Plan(found, target, head, common, source, (head.id, source.id))

    def _plan_revert(self, repo: str, branch: str, ref: str, parent: int | None) -> _Plan:
        """Turn the undoing of a commit into a merge: from that commit to its parent."""
        with self._reading(repo) as (connection, found):
            target, head = _clean(connection, found, branch)
            undone = refs.resolve(connection, found, ref).commit
            number = _parent_number(undone, ref, parent)
            before = refs.commit(connection, found, undone.parents[number - 1])
        return _Plan(found, target, head, undone, before, (head.id,))

    def _apply(self, repo: str, plan: _Plan, words: Words) -> Commit | None:
        """Write the result and land it; None if the branch moved in between."""
        commit = self._new_commit(plan.repo, self._result(plan), plan.parents, words)
        if len(plan.parents) == 1 and commit.metarange_id == plan.head.metarange_id:
            raise Refused(
                f"there is nothing to revert on branch {plan.target.name!r}",
                why="it holds none of that commit's changes any more",
                fix="look at its log",
            )
        with self._referring(repo) as writing:
            if not land(writing, plan.target, commit):
                return None
            # Checked again under the lock: an upload may have come since, made against another head.
            _refuse_dirty(writing.connection, plan.target)
        return commit

    def _result(self, plan: _Plan) -> list[RangeInfo]:
        """Give the ranges of the merged version."""
        content = self._content(plan.repo.namespace)
        base, source, target = (
            content.ranges(commit.metarange_id) for commit in (plan.base, plan.source, plan.head)
        )
        if base == target:
            return source
        changes = three_way(content.store, base, source, target)
        return apply_changes(content.store, target, changes, range_keys=plan.repo.range_keys)


def _clean(connection: Connection, repo: Repository, name: str) -> tuple[Branch, Commit]:
    """Find a branch that has nothing staged."""
    branch = refs.branch(connection, repo, name)
    _refuse_dirty(connection, branch)
    return branch, refs.commit(connection, repo, branch.head)


def _refuse_dirty(connection: Connection, branch: Branch) -> None:
    """Refuse a branch that has something staged."""
    if not staging.is_empty(connection, branch):
        raise Refused(
            f"branch {branch.name!r} has {staging.count(connection, branch)} staged changes",
            why="they were made on top of its present head",
            fix="commit or reset them first",
        )


def _parent_number(undone: Commit, ref: str, parent: int | None) -> int:
    """Say which parent a revert goes back to."""
    known = len(undone.parents)
    if parent is None and known == 1:
        return 1
    if parent is not None and 1 <= parent <= known:
        return parent
    if known == 0:
        raise Refused(f"{ref!r} is the first commit", why="there is nothing before it to go back to")
    raise Refused(
        f"{ref!r} has {known} parents",
        why="undoing it needs to know which of them to go back to" if parent is None else "",
        fix=f"give parent=1 to {known}; 1 is the branch that was merged into",
    )
