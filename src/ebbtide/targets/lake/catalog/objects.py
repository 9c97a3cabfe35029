"""Objects by key: reading, listing, copying, moving and deleting them on a branch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pyarrow.compute as pc
from sqlalchemy import Connection

from ebbtide.core.errors import LiveObjectMissing, NotFound, ObjectGone
from ebbtide.storage.address import is_inside, locate
from ebbtide.storage.store import Store
from ebbtide.targets.lake.catalog import history, reclaim_queue, refs, staging
from ebbtide.targets.lake.catalog.fence import FencedCatalog
from ebbtide.targets.lake.catalog.merge import differences
from ebbtide.targets.lake.catalog.model import Change, Entry, Repository
from ebbtide.targets.lake.catalog.names import check_key
from ebbtide.targets.lake.catalog.range_writer import Segment, overlaid, rows_of
from ebbtide.targets.lake.catalog.ranges import Table, entries, optional_entries
from ebbtide.targets.lake.catalog.refs import Branch, Resolved, WriteTransaction
from ebbtide.targets.repository.model import Commit


class ObjectReader(FencedCatalog):
    """Reads. An iterator keeps one read transaction open until it ends or is closed."""

    def ls(self, repo: str, ref: str, prefix: str = "") -> Iterator[Entry]:
        """Yield the entries of a version in key order; the name of a branch includes staged entries."""
        with self._reading(repo) as (connection, found):
            resolved = refs.resolve(connection, found, ref)
            store = self._content(found.namespace).store
            for segment in self._segments(connection, found, resolved, prefix):
                rows = rows_of(store, segment)
                if prefix:
                    rows = rows.filter(pc.starts_with(rows.column("key"), prefix))
                yield from entries(rows)

    def stat(self, repo: str, ref: str, key: str) -> Entry:
        """Return the entry of a key in a version."""
        with self._reading(repo) as (connection, found):
            resolved = refs.resolve(connection, found, ref)
            return self._entry(connection, found, resolved, key)

    def read(self, repo: str, ref: str, key: str) -> bytes:
        """Read the bytes of an object; if it is gone, the error says which run removed it, and when."""
        entry = self.stat(repo, ref, key)
        found = self.repository(repo)
        with self._explained(found, ref, entry):
            store, store_key = self._located(found, entry.address)
            return store.read(store_key)

    def log(self, repo: str, ref: str) -> Iterator[Commit]:
        """Yield a commit and all its ancestors, newest first, each before its parents."""
        with self._reading(repo) as (connection, found):
            start = refs.resolve(connection, found, ref).commit.id
            yield from history.walk(connection, found, start)

    def diff(self, repo: str, left: str, right: str) -> Iterator[Change]:
        """
        Yield the changes that turn left into right, in key order; shared ranges are not read.

        The name of a branch includes staged entries: ``diff(repo, "main~0", "main")`` shows just those.
        """
        with self._reading(repo) as (connection, found):
            one, other = (refs.resolve(connection, found, ref) for ref in (left, right))
            store = self._content(found.namespace).store
            pages = differences(
                store,
                self._segments(connection, found, one),
                self._segments(connection, found, other),
            )
            for page in pages:
                yield from _changes(page)

    def _segments(
        self, connection: Connection, repo: Repository, resolved: Resolved, prefix: str = ""
    ) -> Iterator[Segment]:
        """Return the segments of a version, with the staged entries of a branch applied."""
        content = self._content(repo.namespace)
        base = content.ranges(resolved.commit.metarange_id, prefix)
        if resolved.branch is None:
            return iter(base)
        staged = staging.changes(connection, resolved.branch, prefix=prefix)
        return overlaid(content.store, base, staged)

    def _entry(self, connection: Connection, repo: Repository, resolved: Resolved, key: str) -> Entry:
        """Look up one key inside the caller's transaction."""
        staged = staging.find(connection, resolved.branch, key) if resolved.branch else []
        found = (
            staged[0].entry
            if staged
            else self._content(repo.namespace).find(resolved.commit.metarange_id, key)
        )
        if found is None:
            name = resolved.branch.name if resolved.branch else resolved.commit.id[:12]
            raise not_there(repo, name, key)
        return found

    def _located(self, repo: Repository, address: str) -> tuple[Store, str]:
        """Return the store and the key of a canonical address."""
        if is_inside(address):
            return self._content(repo.namespace).store, address
        place = locate(address)
        folder = replace(place, parts=place.parts[:-1])
        return self._store_at(folder.url), place.parts[-1]

    @contextmanager
    def _explained(self, repo: Repository, ref: str, entry: Entry) -> Iterator[None]:
        """Turn "not found" for a referenced object into an error that says what removed it."""
        try:
            yield
        except NotFound as missing:
            with self._database.reading() as connection:
                reclaim_queue.refuse_fenced(connection, repo.uid, entry.address)
            removed = self._removed_items.lookup(repo.name, entry.address) if self._removed_items else None
            if removed is not None:
                raise ObjectGone(
                    removed.address,
                    since=removed.since,
                    run_id=removed.run_id,
                    rules=removed.rules,
                    restorable=removed.restorable,
                    until=removed.until,
                ) from missing
            raise LiveObjectMissing(
                f"the object of {entry.key!r} in {ref!r} of repository {repo.name!r} is missing:"
                f" {entry.address} is not in {repo.namespace}",
                why="a live entry points at it and no run of Ebbtide is known to have deleted it",
                fix="run no garbage collection; bring the object back from a backup, or delete the"
                " key if it is not wanted any more",
            ) from missing


def not_there(repo: Repository, ref: str, key: str) -> NotFound:
    """Return the error for a key that a version does not have."""
    return NotFound(
        f"{key!r} is not in {ref!r} of repository {repo.name!r}",
        fix="list the keys there, or look at another version",
    )


def _changes(page: Table) -> Iterator[Change]:
    """Turn a page of differences into changes."""
    sides = optional_entries(page, "was_"), optional_entries(page)
    for key, before, after in zip(page.column("key").to_pylist(), *sides, strict=True):
        yield Change(key, before, after)


class Objects(ObjectReader):
    """
    Changes to keys of existing objects.

    Each method looks the key up twice: first in a read transaction, which fetches the range that holds it,
    then under the lock, where the answer counts and the range is in memory.
    """

    def copy(
        self,
        repo: str,
        branch: str,
        source_key: str,
        target_key: str,
        source_ref: str | None = None,
    ) -> Entry:
        """
        Copy a key: on the same branch the entries share the object, from elsewhere the data is copied.

        Sharing across branches would make one branch's entry depend on the life of another's object. An
        object outside the namespace belongs to no branch, so it is always shared.
        """
        check_key(target_key)
        if source_ref is None or source_ref == branch:
            self.stat(repo, branch, source_key)
            with self._referring(repo) as writing:
                return self._share(writing, branch, source_key, target_key)
        return self._copy_data(repo, branch, source_ref, source_key, target_key)

    def move(self, repo: str, branch: str, source_key: str, target_key: str) -> Entry:
        """Move an object to another key, in one transaction."""
        check_key(target_key)
        self.stat(repo, branch, source_key)
        with self._referring(repo) as writing:
            entry = self._share(writing, branch, source_key, target_key)
            if source_key != target_key:
                to = refs.branch(writing.connection, writing.repository, branch)
                self._delete(writing, to, [source_key])
            return entry

    def delete(self, repo: str, branch: str, key: str) -> None:
        """Delete a key from a branch; it stays in commits."""
        self.delete_many(repo, branch, [key])

    def delete_many(self, repo: str, branch: str, keys: Iterable[str]) -> int:
        """Delete keys in one transaction, all or none; return how many."""
        wanted = sorted(set(keys))
        with self._reading(repo) as (connection, owner):
            resolved = refs.resolve(connection, owner, branch)
            for key in wanted:
                self._entry(connection, owner, resolved, key)
        with self._writing(repo) as writing:
            found = refs.branch(writing.connection, writing.repository, branch)
            self._delete(writing, found, wanted)
        return len(wanted)

    def _share(self, writing: WriteTransaction, branch: str, source_key: str, target_key: str) -> Entry:
        """Stage a second entry for an object of this branch, under the lock; refuse a missing object."""
        to = refs.resolve(writing.connection, writing.repository, branch)
        if to.branch is None:
            raise NotFound(f"{branch!r} is not a branch", fix="copy on a branch")
        source = self._entry(writing.connection, writing.repository, to, source_key)
        if is_inside(source.address):
            # An entry keeps its object from being fenced, so this is a second safeguard.
            reclaim_queue.refuse_fenced(writing.connection, writing.repository.uid, source.address)
            staged = staging.find(writing.connection, to.branch, source_key)
            reclaim_queue.note_sharing(writing, source.address, committed=not staged)
            # Checked under the lock, with the fence open: no run can be about to delete it now.
            with self._explained(writing.repository, branch, source):
                self._content(writing.repository.namespace).store.stat(source.address)
        entry = replace(source, key=target_key, created=self._clock())
        staging.put(writing, to.branch, [entry])
        return entry

    def _copy_data(self, repo: str, branch: str, source_ref: str, source_key: str, target_key: str) -> Entry:
        """Copy an object into this branch's path and stage it."""
        source = self.stat(repo, source_ref, source_key)
        with self._reading(repo) as (connection, found):
            to = refs.branch(connection, found, branch)
        address = source.address
        if is_inside(address):
            address = self._partitions.address(found.uid, to.id)
            with self._explained(found, source_ref, source):
                self._content(found.namespace).store.copy(source.address, address)
        entry = replace(source, key=target_key, address=address, created=self._clock())
        with self._writing(repo) as writing:
            to = refs.same_branch(writing.connection, writing.repository, to)
            staging.put(writing, to, [entry])
        return entry

    def _delete(self, writing: WriteTransaction, branch: Branch, keys: list[str]) -> None:
        """
        Drop rows of keys that only the current layer has; for others, stage a tombstone.

        A sealed row must not be dropped: the commit that is reading it would bring the key back for good.
        """
        connection, repo = writing.connection, writing.repository
        metarange_id = refs.commit(connection, repo, branch.head).metarange_id
        deeper = []
        for key in keys:
            staged = staging.find(connection, branch, key)
            committed = self._content(repo.namespace).find(metarange_id, key)
            if (staged[0].entry if staged else committed) is None:
                raise not_there(repo, branch.name, key)
            if committed is not None or any(row.layer < branch.layer for row in staged):
                deeper.append(key)
            else:
                staging.drop(writing, branch, key)
        staging.put_tombstones(writing, branch, deeper)
