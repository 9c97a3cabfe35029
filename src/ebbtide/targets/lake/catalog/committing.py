"""
Commits: staged rows become a new version.

The lock is held only to seal the layers and to move the head; ranges are written in between, with nobody
waiting. What can happen meanwhile, and why it is safe:

- *An upload, link, copy or delete*: lands in the next layer. The sealed rows stay as they were read, and stay
  references, so a run that looks for garbage meanwhile spares what this commit is about to hold.
- *A reset*: raises the branch's epoch; this commit sees that and starts again, from what is left.
- *Another commit, a merge, a revert*: moves the head; the same.
- *The branch is deleted, or deleted and made anew*: the second step finds no branch or another id.
- *A crash*: the sealed rows stay staged below the new layer; the next commit takes them in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import update

from ebbtide.core.errors import Refused
from ebbtide.targets.lake.catalog import history, needs, provenance, reclaim, refs, schema, staging
from ebbtide.targets.lake.catalog.importing import OwnAddresses, checked
from ebbtide.targets.lake.catalog.merging import apply_changes
from ebbtide.targets.lake.catalog.model import Commit, RangeInfo, Repository
from ebbtide.targets.lake.catalog.needs import Imported
from ebbtide.targets.lake.catalog.part import CatalogPart
from ebbtide.targets.lake.catalog.provenance import Kind
from ebbtide.targets.lake.catalog.ranges import COMMITTED, Table, write_metarange
from ebbtide.targets.lake.catalog.refs import Branch
from ebbtide.targets.lake.catalog.writing import Writing


class Words(NamedTuple):
    """What a person says about a commit."""

    message: str
    committer: str = ""
    metadata: Mapping[str, str] | None = None


class Committing(CatalogPart):
    """Making commits and moving heads."""

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
        """Turn all that is staged on a branch into its next commit; one that changes nothing is refused."""
        history.check_words(message, committer, metadata)
        words = Words(message, committer, metadata)
        return self._until_landed(
            branch, lambda: self._commit_once(repo, branch, words, allow_empty=allow_empty)
        )

    def import_entries(
        self,
        repo: str,
        branch: str,
        tables: Iterable[Table],
        message: str,
        *,
        committer: str = "",
        metadata: Mapping[str, str] | None = None,
        created: datetime | None = None,
    ) -> Commit:
        """
        Commit entries that are given as Arrow tables on top of a branch, without staging them.

        The columns are those of `ranges.ENTRIES`; keys ascend over all tables and addresses are canonical.
        What is staged on the branch stays staged. This is the way to bring in millions of entries; addresses
        inside the namespace must be of objects that a grace period protects or that another entry holds. If
        the reaper has taken one of them meanwhile, nothing is imported.
        """
        history.check_words(message, committer, metadata)
        with self._reading(repo) as (connection, found):
            target = refs.branch(connection, found, branch)
            head = refs.commit(connection, found, target.head)
            others = refs.neighbours(connection, found)
        content = self._content(found.namespace)
        own = OwnAddresses(reclaim.own(found.uid))
        changes = own.watched(checked(tables, found.namespace, others))
        ranges = apply_changes(
            content.store, content.ranges(head.metarange_id), changes, range_keys=found.range_keys
        )
        words = Words(message, committer, metadata)
        commit = self._new_commit(found, ranges, (head.id,), words, created, Kind.IMPORT)
        made = Imported(commit.metarange_id, head.metarange_id)
        looked = 0
        if own.seen:
            with self._reading(repo) as (connection, found):
                looked = needs.refuse_reaped(connection, found.uid, content, made)
        with self._referring(repo) as writing:
            if not land(writing, target, commit):
                raise Refused(f"branch {branch!r} moved during the import", fix="import again")
            if own.seen:
                # What was fenced since the look is few, or nothing; from now on the record keeps the others.
                needs.refuse_reaped(writing.connection, found.uid, content, made, after=looked)
                needs.note_import(writing, made)
        return commit

    def reset(self, repo: str, branch: str, prefix: str | None = None, *, to: str | None = None) -> int:
        """
        Drop what is staged (under a prefix), or with `to` also move the head, as `git reset --hard` does.

        Gives the number of staged rows that it dropped.
        """
        if prefix is not None and to is not None:
            raise Refused("a reset takes a prefix or a ref, not both", fix="leave one of them out")
        with self._writing(repo) if to is None else self._referring(repo) as writing:
            found = refs.branch(writing.connection, writing.repository, branch)
            if to is not None:
                head = refs.resolve(writing.connection, writing.repository, to).commit.id
                _set_head(writing, found, head)
            return staging.drop_prefix(writing, found, prefix or "")

    def _commit_once(self, repo: str, branch: str, words: Words, *, allow_empty: bool) -> Commit | None:
        """Seal, write ranges, land; None if the branch moved in between."""
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
            needs.note_commit(writing, target, layer)
            staging.drop_committed(writing, target, layer)
        return commit

    def _new_commit(
        self,
        repo: Repository,
        ranges: list[RangeInfo],
        parents: tuple[str, ...],
        words: Words,
        created: datetime | None = None,
        kind: Kind = Kind.OWN,
    ) -> Commit:
        """Note and write the metarange and put the commit together; nothing refers to it yet."""

        def note(metarange_id: str) -> None:
            with self._database.writing() as connection:
                provenance.note(connection, repo.uid, metarange_id, kind, self._clock())

        metarange_id = write_metarange(self._content(repo.namespace).store, COMMITTED, ranges, note)
        said = (words.message, words.committer, dict(words.metadata or {}))
        return history.identified(Commit("", metarange_id, parents, created or self._clock(), *said))


def land(writing: Writing, prepared_for: Branch, commit: Commit) -> bool:
    """Record a commit and move the head to it, if the branch is still as it was when this was prepared."""
    found = refs.branch(writing.connection, writing.repository, prepared_for.name)
    now, then = (found.id, found.head, found.epoch), prepared_for
    if now != (then.id, then.head, then.epoch):
        return False
    history.add(writing.connection, writing.repository, commit)
    provenance.settle(writing.connection, writing.repository.uid, commit.metarange_id)
    _set_head(writing, found, commit.id)
    return True


def _set_head(writing: Writing, branch: Branch, head: str) -> None:
    """Point a branch at a commit, in the caller's transaction."""
    table = schema.branches
    writing.connection.execute(update(table).where(table.c.id == branch.id).values(head=head))


def _nothing_to_commit(branch: str) -> Refused:
    """Say why there is no commit."""
    return Refused(
        f"there is nothing to commit on branch {branch!r}",
        why="nothing is staged there that differs from its head",
        fix="upload or delete something first, or allow an empty commit",
    )
