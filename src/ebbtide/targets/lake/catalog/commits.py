"""
Commits: staged rows become a new version.

The lock is held only to seal the layers and to move the head; ranges are written in between, without it.
What can happen meanwhile, and why it is safe:

- *An upload, link, copy or delete*: goes to the next layer. The sealed rows stay as they were read, and stay
  references, so a run that looks for garbage meanwhile keeps what this commit is about to refer to.
- *A reset*: raises the epoch of the branch; this commit sees that and starts again, from what is left.
- *Another commit, a merge, a revert*: moves the head; the same.
- *The branch is deleted, or deleted and created again*: the second step finds no branch, or another id.
- *A crash*: the sealed rows stay staged below the new layer; the next commit takes them in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import NamedTuple

from sqlalchemy import update

from ebbtide.core.errors import Refused
from ebbtide.targets.lake.catalog import history, lost_history, reclaim_queue, refs, schema, staging
from ebbtide.targets.lake.catalog.fence import FencedCatalog
from ebbtide.targets.lake.catalog.lost_history import Provenance
from ebbtide.targets.lake.catalog.model import Repository
from ebbtide.targets.lake.catalog.range_writer import apply_changes
from ebbtide.targets.lake.catalog.ranges import write_metarange
from ebbtide.targets.lake.catalog.refs import Branch, WriteTransaction
from ebbtide.targets.repository.model import COMMITTED, Commit, RangeInfo


class CommitMessage(NamedTuple):
    """The message, committer and metadata of a commit."""

    message: str
    committer: str = ""
    metadata: Mapping[str, str] | None = None


class Commits(FencedCatalog):
    """Commits of staged entries, and resets."""

    def commit(
        self,
        repo: str,
        branch: str,
        message: str,
        committer: str = "",
        metadata: Mapping[str, str] | None = None,
        *,
        allow_empty: bool = False,
    ) -> Commit:
        """Commit everything staged on a branch; refuse a commit that changes nothing."""
        history.check_words(message, committer, metadata)
        words = CommitMessage(message, committer, metadata)
        return self._until_landed(
            branch, lambda: self._commit_once(repo, branch, words, allow_empty=allow_empty)
        )

    def reset(self, repo: str, branch: str, prefix: str | None = None, *, to: str | None = None) -> int:
        """
        Drop what is staged (under a prefix), or with `to` also move the head, as `git reset --hard` does.

        Return the number of staged rows that were dropped.
        """
        if prefix is not None and to is not None:
            raise Refused("a reset takes a prefix or a ref, not both", fix="leave one of them out")
        with self._writing(repo) if to is None else self._referring(repo) as writing:
            found = refs.branch(writing.connection, writing.repository, branch)
            if to is not None:
                head = refs.resolve(writing.connection, writing.repository, to).commit.id
                _set_head(writing, found, head)
            return staging.drop_prefix(writing, found, prefix or "")

    def _commit_once(
        self, repo: str, branch: str, words: CommitMessage, *, allow_empty: bool
    ) -> Commit | None:
        """Seal, write ranges and land; return None if the branch moved in between."""
        with self._writing(repo) as writing:
            found = writing.repository
            target = refs.branch(writing.connection, found, branch)
            head = refs.commit(writing.connection, found, target.head)
            if not allow_empty and staging.is_empty(writing.connection, target):
                raise _nothing_to_commit(branch)
            layer = staging.seal(writing.connection, target)
        content = self._content(found.namespace)
        with self._reading(repo) as (connection, _):
            ranges = apply_changes(
                content.store,
                content.ranges(head.metarange_id),
                staging.changes(connection, target, layer=layer),
                range_keys=found.range_keys,
            )
        commit = self._new_commit(found, ranges, (head.id,), words)
        with self._writing(repo) as writing:
            if not land(writing, target, commit):
                return None
            if commit.metarange_id == head.metarange_id and not allow_empty:
                raise _nothing_to_commit(branch)
            reclaim_queue.note_commit(writing, target, layer)
            staging.drop_committed(writing, target, layer)
        return commit

    def _new_commit(
        self,
        repo: Repository,
        ranges: list[RangeInfo],
        parents: tuple[str, ...],
        words: CommitMessage,
        created: datetime | None = None,
        note: Callable[[Repository, str], None] | None = None,
    ) -> Commit:
        """Note and write the metarange, and return a commit that nothing refers to yet."""
        noted = partial(note or self._note_own, repo)
        metarange_id = write_metarange(self._content(repo.namespace).store, COMMITTED, ranges, noted)
        said = (words.message, words.committer, dict(words.metadata or {}))
        return history.identified(Commit("", metarange_id, parents, created or self._clock(), *said))

    def _note_own(self, repo: Repository, metarange_id: str) -> None:
        """Note the metarange of a commit, merge or revert."""
        with self._database.writing() as connection:
            lost_history.note_metarange(connection, repo.uid, metarange_id, Provenance.OWN, self._clock())


def land(writing: WriteTransaction, prepared_for: Branch, commit: Commit) -> bool:
    """Record a commit and move the head to it, unless the branch has changed since this was prepared."""
    found = refs.branch(writing.connection, writing.repository, prepared_for.name)
    now, then = (found.id, found.head, found.epoch), prepared_for
    if now != (then.id, then.head, then.epoch):
        return False
    history.add(writing.connection, writing.repository, commit)
    lost_history.settle_metarange(writing.connection, writing.repository.uid, commit.metarange_id)
    _set_head(writing, found, commit.id)
    return True


def _set_head(writing: WriteTransaction, branch: Branch, head: str) -> None:
    """Point a branch at a commit, in the caller's transaction."""
    table = schema.branches
    writing.connection.execute(update(table).where(table.c.id == branch.id).values(head=head))


def _nothing_to_commit(branch: str) -> Refused:
    """Return the error for a commit without changes."""
    return Refused(
        f"there is nothing to commit on branch {branch!r}",
        why="nothing is staged there that differs from its head",
        fix="upload or delete something first, or allow an empty commit",
    )
