"""Merge and revert: a branch takes over, or takes back, the changes between two commits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection

from ebbtide.core.errors import Refused
from ebbtide.storage.store import Store
from ebbtide.targets.lake.catalog import history, refs, staging
from ebbtide.targets.lake.catalog.commits import CommitMessage, Commits, land
from ebbtide.targets.lake.catalog.model import Repository
from ebbtide.targets.lake.catalog.range_writer import CHANGES, Cursor, Segment, apply_changes, is_in, windows
from ebbtide.targets.lake.catalog.ranges import ENTRIES, Table
from ebbtide.targets.lake.catalog.refs import Branch
from ebbtide.targets.repository.model import Commit, RangeInfo

_CONTENT = [name for name in ENTRIES.names if name != "key"]

DIFFERENCES = pa.schema(
    list(CHANGES) + [ENTRIES.field(n).with_name(f"was_{n}").with_nullable(True) for n in _CONTENT]
)
"""Changes with the previous content (null if there was none)."""

SHOWN_CONFLICTS = 10


def differences(store: Store, left: Iterable[Segment], right: Iterable[Segment]) -> Iterator[Table]:
    """Yield the changes that turn left into right, in key order; shared ranges are not decoded."""
    pairs = windows(Cursor(store, left, ENTRIES), Cursor(store, right, ENTRIES))
    for before, after in pairs:
        page = _differences_page(before, after)
        if page.num_rows:
            yield page


def three_way(
    store: Store, base: list[RangeInfo], source: list[RangeInfo], target: list[RangeInfo]
) -> Iterator[Table]:
    """
    Yield the changes that source made since base and that target lacks; refuse conflicts.

    A key that both sides changed is a conflict, unless both have the same content.
    """
    theirs = Cursor(store, differences(store, base, source), DIFFERENCES)
    ours = Cursor(store, differences(store, base, target), DIFFERENCES)
    conflicts: list[str] = []
    for wanted, present in windows(theirs, ours):
        in_both = is_in(wanted, present)
        both, same = wanted.filter(in_both), present.filter(is_in(present, wanted))
        # Both tables are sorted by the same unique keys, so row i of one is row i of the other.
        clash = _differ(both, same, ["address", "size", "checksum"])
        conflicts += both.filter(clash).column("key").to_pylist()
        if len(conflicts) >= SHOWN_CONFLICTS:
            break
        yield wanted.filter(pc.invert(in_both)).select(CHANGES.names)
    if conflicts:
        _refuse_conflicts(conflicts)


def _refuse_conflicts(conflicts: list[str]) -> None:
    """Raise the error that names the first conflicts."""
    shown = ", ".join(repr(key) for key in conflicts[:SHOWN_CONFLICTS])
    more = " and maybe more" if len(conflicts) >= SHOWN_CONFLICTS else ""
    raise Refused(
        f"the two sides conflict in {shown}{more}",
        why="both changed these keys since their common ancestor, each in its own way",
        fix="make the two sides agree on these keys, commit, and try again",
    )


def _differences_page(before: Table, after: Table) -> Table:
    """Compare two tables of the same window of keys."""
    stays, stayed = is_in(before, after), is_in(after, before)
    old, new = before.filter(stays), after.filter(stayed)
    changed = pc.fill_null(_any_differs(old, new, _CONTENT), False)
    parts = [
        _joined(before.filter(pc.invert(stays)), None),
        _joined(old.filter(changed), new.filter(changed)),
        _joined(None, after.filter(pc.invert(stayed))),
    ]
    filled = [part for part in parts if part.num_rows]
    if not filled:
        return DIFFERENCES.empty_table()
    return filled[0] if len(filled) == 1 else pa.concat_tables(filled).sort_by("key")


def _joined(before: Table, after: Table) -> Table:
    """Combine both sides in one row; a side that is None gives nulls."""
    rows = before if after is None else after
    columns = {"key": rows.column("key"), "tombstone": pa.repeat(after is None, rows.num_rows)}
    for name in _CONTENT:
        nothing = pa.nulls(rows.num_rows, ENTRIES.field(name).type)
        columns[name] = nothing if after is None else after.column(name)
        columns[f"was_{name}"] = nothing if before is None else before.column(name)
    return pa.table([columns[name] for name in DIFFERENCES.names], schema=DIFFERENCES)


def _differ(left: Table, right: Table, names: list[str]) -> Any:
    """Mark rows of aligned changes that differ; a null (the content of a tombstone) equals anything."""
    content = pc.fill_null(_any_differs(left, right, names), False)
    return pc.or_(content, pc.not_equal(left.column("tombstone"), right.column("tombstone")))


def _any_differs(left: Table, right: Table, names: list[str]) -> Any:
    """Mark the rows of two aligned tables that differ in any of these columns."""
    found = pc.not_equal(left.column(names[0]), right.column(names[0]))
    for name in names[1:]:
        found = pc.or_kleene(found, pc.not_equal(left.column(name), right.column(name)))
    return found


@dataclass(frozen=True)
class _Merge:
    """Changes from `base` to `source`, to be applied to the head of `target`."""

    repo: Repository
    target: Branch
    head: Commit
    base: Commit
    source: Commit
    parents: tuple[str, ...]


class Merges(Commits):
    """Three-way merges. As in lakeFS, a branch with staged changes is refused: commit or reset them first."""

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
        Merge the changes that the source made since the common ancestor into a branch.

        This always makes a commit with two parents, first the branch, then the source. What is staged on the
        source is not merged. Conflicts, and a source that brings nothing new, are refused.
        """
        words = CommitMessage(message or f"Merge {source_ref!r} into {into_branch!r}", committer, metadata)
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
        """Undo a commit by a new commit; for a merge, `parent` (1 or 2) says which side to go back to."""
        words = CommitMessage(message or f"Revert {ref!r}", committer)
        history.check_words(*words)
        return self._until_landed(
            branch,
            lambda: self._apply(repo, self._plan_revert(repo, branch, ref, parent), words),
        )

    def _plan_merge(self, repo: str, source_ref: str, into_branch: str) -> _Merge:
        """Find the two sides and their common ancestor."""
        with self._reading(repo) as (connection, found):
            target, head = _clean_branch(connection, found, into_branch)
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
        return _Merge(found, target, head, common, source, (head.id, source.id))

    def _plan_revert(self, repo: str, branch: str, ref: str, parent: int | None) -> _Merge:
        """Express a revert as a merge of the changes from a commit to its parent."""
        with self._reading(repo) as (connection, found):
            target, head = _clean_branch(connection, found, branch)
            undone = refs.resolve(connection, found, ref).commit
            number = _parent_number(undone, ref, parent)
            before = refs.commit(connection, found, undone.parents[number - 1])
        return _Merge(found, target, head, undone, before, (head.id,))

    def _apply(self, repo: str, plan: _Merge, words: CommitMessage) -> Commit | None:
        """Write the result and land it; return None if the branch moved in between."""
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
            _refuse_staged(writing.connection, plan.target)
        return commit

    def _result(self, plan: _Merge) -> list[RangeInfo]:
        """Return the ranges of the merged version."""
        content = self._content(plan.repo.namespace)
        base, source, target = (
            content.ranges(commit.metarange_id) for commit in (plan.base, plan.source, plan.head)
        )
        if base == target:
            return source
        changes = three_way(content.store, base, source, target)
        return apply_changes(content.store, target, changes, range_keys=plan.repo.range_keys)


def _clean_branch(connection: Connection, repo: Repository, name: str) -> tuple[Branch, Commit]:
    """Return a branch and its head; refuse a branch with staged entries."""
    branch = refs.branch(connection, repo, name)
    _refuse_staged(connection, branch)
    return branch, refs.commit(connection, repo, branch.head)


def _refuse_staged(connection: Connection, branch: Branch) -> None:
    """Refuse a branch with staged entries."""
    if not staging.is_empty(connection, branch):
        raise Refused(
            f"branch {branch.name!r} has {staging.count(connection, branch)} staged changes",
            why="they were made on top of its present head",
            fix="commit or reset them first",
        )


def _parent_number(undone: Commit, ref: str, parent: int | None) -> int:
    """Return the number of the parent that a revert goes back to."""
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
