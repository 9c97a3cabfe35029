"""
Imports: entries that are committed without being staged, for millions of existing objects.

An import brings in addresses that nothing else may refer to, so a copy of the catalog that is older than the
import must never explain its metarange; lost_history.py says why. Two rules keep that true:

- If the catalog can explain the metarange already, the namespace gets a new mark before the import lands. An
  older copy of the catalog does not have that mark, and every run over it stops.
- An import that is refused says so in the note of its metarange, and later runs do not stop there. Another
  import of the same content that was prepared before then does not land: it left no mark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.core.errors import BadInput, EbbtideError, Refused
from ebbtide.storage.address import canonical, is_full
from ebbtide.storage.namespace import encloses
from ebbtide.targets.lake.catalog import history, lost_history, reclaim_queue, refs
from ebbtide.targets.lake.catalog.commits import CommitMessage, Commits, land
from ebbtide.targets.lake.catalog.lost_history import add_mark
from ebbtide.targets.lake.catalog.model import Repository
from ebbtide.targets.lake.catalog.names import MAX_KEY_BYTES
from ebbtide.targets.lake.catalog.ownership import TracedChanges
from ebbtide.targets.lake.catalog.range_writer import CHANGES, apply_changes
from ebbtide.targets.lake.catalog.ranges import ENTRIES, Table
from ebbtide.targets.lake.catalog.reclaim_queue import Imported
from ebbtide.targets.lake.catalog.refs import Branch
from ebbtide.targets.repository.model import METADATA, Commit, DeletedRepository

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


class Imports(Commits, TracedChanges):
    """Imports of entries from Arrow tables."""

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
        What is staged on the branch stays staged. Addresses inside the namespace must be of objects that a
        grace period protects or that another entry holds. If the reaper has taken one of them meanwhile,
        nothing is imported.
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
        commit = self._new_commit(found, ranges, (head.id,), words, created, self._note_import)
        try:
            self._land_import(repo, target, commit, head.metarange_id, watched=own.seen)
        except EbbtideError:
            self._note_refusal(found, commit.metarange_id)
            raise
        return commit

    def _land_import(self, repo: str, target: Branch, commit: Commit, base_id: str, *, watched: bool) -> None:
        """Move the branch to the commit of an import; refuse addresses that the reaper has fenced."""
        made = Imported(commit.metarange_id, base_id)
        looked = 0
        with self._reading(repo) as (connection, found):
            content = self._content(found.namespace)
            if watched:
                looked = reclaim_queue.refuse_reaped(connection, found.uid, content, made)
        with self._referring(repo) as writing:
            if lost_history.is_given_up(writing.connection, found.uid, commit.metarange_id):
                raise Refused("another import of the same content was refused meanwhile", fix="import again")
            if not land(writing, target, commit):
                raise Refused(f"branch {target.name!r} moved during the import", fix="import again")
            if watched:
                # What was fenced since the look is few, or nothing; from now on the record keeps the others.
                reclaim_queue.refuse_reaped(writing.connection, found.uid, content, made, after=looked)
                reclaim_queue.note_import(writing, made)

    def _note_import(self, repository: Repository, metarange_id: str) -> None:
        """Note the metarange of an import; leave a mark if older copies of the catalog could explain it."""
        is_own = self._owns_namespace(repository)
        with self._database.writing() as connection:
            refs.hold_repository(connection, repository.name)
            explained = lost_history.is_explained(connection, repository.uid, metarange_id)
            note = lost_history.Provenance.IMPORT
            lost_history.note_metarange(connection, repository.uid, metarange_id, note, self._clock())
            if explained and is_own:
                add_mark(connection, repository, self._clock())
        if explained and is_own:
            self._publish(repository)

    def _note_refusal(self, repository: Repository, metarange_id: str) -> None:
        """Record that an import did not land; the error of the import matters more than one in here."""
        with suppress(EbbtideError), self._database.writing() as connection:
            # The lock waits for a landing whose answer was lost; its commit is visible then.
            refs.hold_repository(connection, repository.name)
            lost_history.note_refusal(connection, repository.uid, metarange_id, self._clock())
