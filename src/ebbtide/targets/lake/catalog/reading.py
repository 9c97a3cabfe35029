"""Reading versions: listings, single entries, the bytes of objects, history and differences."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pyarrow.compute as pc
from sqlalchemy import Connection

from ebbtide.core.errors import LiveObjectMissing, NotFound, ObjectGone
from ebbtide.storage.address import is_inside, locate
from ebbtide.storage.store import Store
from ebbtide.targets.lake.catalog import history, reclaim, refs, staging
from ebbtide.targets.lake.catalog.committed import entries, optional_entries
from ebbtide.targets.lake.catalog.differences import differences
from ebbtide.targets.lake.catalog.model import Change, Commit, Entry, Repository
from ebbtide.targets.lake.catalog.part import CatalogPart
from ebbtide.targets.lake.catalog.ranges import Table
from ebbtide.targets.lake.catalog.refs import Resolved
from ebbtide.targets.lake.catalog.segments import Segment, overlaid, rows_of


class Reading(CatalogPart):
    """Everything that changes nothing. Iterators hold one read transaction until they end or are closed."""

    def ls(self, repo: str, ref: str, prefix: str = "") -> Iterator[Entry]:
        """Stream the entries of a version in key order; a branch's bare name includes what is staged."""
        with self._reading(repo) as (connection, found):
            resolved = refs.resolve(connection, found, ref)
            store = self._content(found.namespace).store
            for segment in self._segments(connection, found, resolved, prefix):
                rows = rows_of(store, segment)
                if prefix:
                    rows = rows.filter(pc.starts_with(rows.column("key"), prefix))
                yield from entries(rows)

    def stat(self, repo: str, ref: str, key: str) -> Entry:
        """Give one key's entry in a version."""
        with self._reading(repo) as (connection, found):
            resolved = refs.resolve(connection, found, ref)
            return self._entry(connection, found, resolved, key)

    def read(self, repo: str, ref: str, key: str) -> bytes:
        """Read an object's bytes; one that the store no longer has says who deleted it, and when."""
        entry = self.stat(repo, ref, key)
        found = self.repository(repo)
        with self._explained(found, ref, entry):
            store, store_key = self._located(found, entry.address)
            return store.read(store_key)

    def log(self, repo: str, ref: str) -> Iterator[Commit]:
        """Give a commit and all its ancestors, the newest first, each before its parents."""
        with self._reading(repo) as (connection, found):
            start = refs.resolve(connection, found, ref).commit.id
            yield from history.walk(connection, found, start)

    def diff(self, repo: str, left: str, right: str) -> Iterator[Change]:
        """
        Stream what turns left into right, in key order; ranges that both share are not read.

        A branch's bare name includes what is staged, so ``diff(repo, "main~0", "main")`` is just that.
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
        """Stream a version, with what is staged laid over it if it is a branch."""
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
        """Give the store and the key in it that a canonical address means."""
        if is_inside(address):
            return self._content(repo.namespace).store, address
        place = locate(address)
        folder = replace(place, parts=place.parts[:-1])
        return self._store_at(folder.url), place.parts[-1]

    @contextmanager
    def _explained(self, repo: Repository, ref: str, entry: Entry) -> Iterator[None]:
        """Turn the store's "not found" of a referenced object into what really happened to it."""
        try:
            yield
        except NotFound as missing:
            with self._database.reading() as connection:
                reclaim.refuse_fenced(connection, repo.uid, entry.address)
            burial = self._graveyard.lookup(repo.name, entry.address) if self._graveyard else None
            if burial is not None:
                raise ObjectGone(
                    burial.address,
                    since=burial.since,
                    run_id=burial.run_id,
                    rules=burial.rules,
                    restorable=burial.restorable,
                    until=burial.until,
                ) from missing
            raise LiveObjectMissing(
                f"the object of {entry.key!r} in {ref!r} of repository {repo.name!r} is missing:"
                f" {entry.address} is not in {repo.namespace}",
                why="a live entry points at it and no run of Ebbtide is known to have deleted it",
                fix="run no garbage collection; bring the object back from a backup, or delete the"
                " key if it is not wanted any more",
            ) from missing


def not_there(repo: Repository, ref: str, key: str) -> NotFound:
    """Say that a version does not have a key."""
    return NotFound(
        f"{key!r} is not in {ref!r} of repository {repo.name!r}",
        fix="list the keys there, or look at another version",
    )


def _changes(page: Table) -> Iterator[Change]:
    """Turn a page of differences into changes."""
    sides = optional_entries(page, "was_"), optional_entries(page)
    for key, before, after in zip(page.column("key").to_pylist(), *sides, strict=True):
        yield Change(key, before, after)
