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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import update

from ebbtide.core.errors import BadInput, Refused
from ebbtide.storage.address import canonical, is_full
from ebbtide.storage.namespace import encloses
from ebbtide.targets.lake.catalog import history, lost_history, reclaim_queue, refs, schema, staging
from ebbtide.targets.lake.catalog.fence import FencedCatalog
from ebbtide.targets.lake.catalog.lost_history import Provenance
from ebbtide.targets.lake.catalog.model import Repository
from ebbtide.targets.lake.catalog.names import MAX_KEY_BYTES
from ebbtide.targets.lake.catalog.range_writer import CHANGES, apply_changes
from ebbtide.targets.lake.catalog.ranges import ENTRIES, Table, write_metarange
from ebbtide.targets.lake.catalog.reclaim_queue import Imported
from ebbtide.targets.lake.catalog.refs import Branch, WriteTransaction
from ebbtide.targets.repository.model import COMMITTED, METADATA, Commit, DeletedRepository, RangeInfo

Neighbour = Repository | DeletedRepository
"""The owner of a namespace: a repository, or a deleted one."""

_PLAIN = r"^[A-Za-z0-9_=-][A-Za-z0-9_=.-]*(/[A-Za-z0-9_=-][A-Za-z0-9_=.-]*)*$"
"""Relative addresses of this form are canonical; only others are checked one by one."""


def checked_entries(tables: Iterable[Table], namespace: str, others: Sequence[Neighbour]) -> Iterator[Table]:
    """Turn tables of entries into changes; refuse wrong columns, order, keys and addresses."""
    last: str | None = None
    for table in tables:
        if table.num_rows == 0:
            continue
        rows = _entries(table)
        keys = rows.column("key").combine_chunks()
        first = keys[0].as_py()
        ascending = pc.all(pc.less(keys.slice(0, len(keys) - 1), keys.slice(1))).as_py()
        if ascending is False or (last is not None and first <= last):
            raise BadInput(
                "the imported keys do not ascend",
                why="a range holds its keys in order, each once",
                fix="sort by key and drop duplicates, over all tables",
            )
        last = keys[-1].as_py()
        _check_keys(keys)
        _check_addresses(rows.column("address"), namespace, others)
        yield (
            rows.append_column("tombstone", pa.repeat(False, rows.num_rows))
            .select(CHANGES.names)
            .cast(CHANGES)
        )


class OwnAddresses:
    """Detects addresses in a stream of entries that the catalog itself gave out."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.seen = False

    def watched(self, tables: Iterable[Table]) -> Iterator[Table]:
        """Pass tables on, and record whether they have such an address."""
        for table in tables:
            found = pc.starts_with(table.column("address"), self._prefix)
            self.seen = self.seen or bool(pc.any(found).as_py())
            yield table


def check_foreign(address: str, others: Sequence[Neighbour]) -> None:
    """Refuse an address inside another repository's namespace: runs there do not see this reference."""
    for other in others if is_full(address) else ():
        if encloses(other.namespace, address):
            kind = "deleted repository" if isinstance(other, DeletedRepository) else "repository"
            raise Refused(
                f"{address!r} lies inside the namespace of {kind} {other.name!r}",
                why=f"runs over {other.name!r} would delete it without knowing of this reference",
                fix="copy the object to a place of its own, and refer to that",
            )


def _entries(table: Table) -> Table:
    """Select the columns of an entry, with their types, without nulls."""
    try:
        return table.select(ENTRIES.names).cast(ENTRIES)
    except (KeyError, ValueError, TypeError, pa.ArrowException) as wrong:
        raise BadInput(
            "the imported table has not the columns of an entry",
            why=str(wrong),
            fix=f"give {', '.join(f'{f.name}: {f.type}' for f in ENTRIES)}, without nulls",
        ) from wrong


def _check_keys(keys: pa.Array) -> None:
    """Refuse keys that staging refuses."""
    lengths = pc.binary_length(keys)
    bad = pc.or_(pc.equal(lengths, 0), pc.greater(lengths, MAX_KEY_BYTES))
    if pc.any(pc.or_(bad, pc.match_substring(keys, "\0"))).as_py():
        raise BadInput(
            "an imported key is empty, too long or has a NUL",
            why=f"a key is 1 to {MAX_KEY_BYTES} bytes of UTF-8 without NUL",
            fix="rename it",
        )


def _check_addresses(addresses: pa.ChunkedArray, namespace: str, others: Sequence[Neighbour]) -> None:
    """Refuse addresses that are not canonical, belong to another repository, or name metadata."""
    for address in addresses.filter(pc.starts_with(addresses, METADATA)).slice(0, 1).to_pylist():
        raise BadInput(
            f"the imported address {address!r} lies below {METADATA}",
            why="metadata and the recycle bin are there: the bin's expiry would delete it",
            fix="restore the object first, or copy it to a place of its own",
        )
    unusual = addresses.filter(pc.invert(pc.match_substring_regex(addresses, _PLAIN)))
    for address in unusual.to_pylist():
        check_foreign(address, others)
        if is_full(address) and encloses(namespace, address):
            raise BadInput(
                f"the imported address {address!r} lies inside the namespace",
                why="a run knows the object by its relative address and would take it for garbage",
                fix="give the address relative to the namespace",
            )
        if canonical(address, namespace) != address:
            raise BadInput(
                f"the imported address {address!r} is not canonical",
                why="a run compares addresses as text and would take its object for garbage",
                fix=f"write it as {canonical(address, namespace)!r}",
            )


class CommitMessage(NamedTuple):
    """The message, committer and metadata of a commit."""

    message: str
    committer: str = ""
    metadata: Mapping[str, str] | None = None


class Commits(FencedCatalog):
    """Commits of staged entries, imports, and resets."""

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
        Commit entries from Arrow tables on top of a branch, without staging them.

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
        own = OwnAddresses(reclaim_queue.own_prefix(found.uid))
        changes = own.watched(checked_entries(tables, found.namespace, others))
        ranges = apply_changes(
            content.store, content.ranges(head.metarange_id), changes, range_keys=found.range_keys
        )
        words = CommitMessage(message, committer, metadata)
        commit = self._new_commit(found, ranges, (head.id,), words, created, Provenance.IMPORT)
        made = Imported(commit.metarange_id, head.metarange_id)
        looked = 0
        if own.seen:
            with self._reading(repo) as (connection, found):
                looked = reclaim_queue.refuse_reaped(connection, found.uid, content, made)
        with self._referring(repo) as writing:
            if not land(writing, target, commit):
                raise Refused(f"branch {branch!r} moved during the import", fix="import again")
            if own.seen:
                # What was fenced since the look is few, or nothing; from now on the record keeps the others.
                reclaim_queue.refuse_reaped(writing.connection, found.uid, content, made, after=looked)
                reclaim_queue.note_import(writing, made)
        return commit

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
        kind: Provenance = Provenance.OWN,
    ) -> Commit:
        """Note and write the metarange, and return a commit that nothing refers to yet."""

        def note(metarange_id: str) -> None:
            with self._database.writing() as connection:
                lost_history.note_metarange(connection, repo.uid, metarange_id, kind, self._clock())

        metarange_id = write_metarange(self._content(repo.namespace).store, COMMITTED, ranges, note)
        said = (words.message, words.committer, dict(words.metadata or {}))
        return history.identified(Commit("", metarange_id, parents, created or self._clock(), *said))


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
