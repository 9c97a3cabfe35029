"""Copying, moving and deleting keys of a branch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ebbtide.core.errors import NotFound
from ebbtide.storage.address import is_inside
from ebbtide.targets.lake.catalog import needs, reclaim, refs, staging
from ebbtide.targets.lake.catalog.model import Entry
from ebbtide.targets.lake.catalog.names import check_key
from ebbtide.targets.lake.catalog.reading import Reading, not_there
from ebbtide.targets.lake.catalog.refs import Branch
from ebbtide.targets.lake.catalog.writing import Writing


class Rearranging(Reading):
    """
    Changes to keys whose objects are there already.

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
        Copy a key: on the same branch the new entry shares the object, from elsewhere the data is copied.

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
        """Give a key's object another key, in one step."""
        check_key(target_key)
        self.stat(repo, branch, source_key)
        with self._referring(repo) as writing:
            entry = self._share(writing, branch, source_key, target_key)
            if source_key != target_key:
                to = refs.branch(writing.connection, writing.repository, branch)
                self._delete(writing, to, [source_key])
            return entry

    def delete(self, repo: str, branch: str, key: str) -> None:
        """Delete a key from a branch; commits that have it keep it."""
        self.delete_many(repo, branch, [key])

    def delete_many(self, repo: str, branch: str, keys: Iterable[str]) -> int:
        """Delete keys in one transaction, all or none; give how many."""
        wanted = sorted(set(keys))
        with self._reading(repo) as (connection, owner):
            resolved = refs.resolve(connection, owner, branch)
            for key in wanted:
                self._entry(connection, owner, resolved, key)
        with self._writing(repo) as writing:
            found = refs.branch(writing.connection, writing.repository, branch)
            self._delete(writing, found, wanted)
        return len(wanted)

    def _share(self, writing: Writing, branch: str, source_key: str, target_key: str) -> Entry:
        """Stage a second entry for an object of this branch, under the lock; one that is gone is refused."""
        to = refs.resolve(writing.connection, writing.repository, branch)
        if to.branch is None:
            raise NotFound(f"{branch!r} is no branch", fix="copy on a branch")
        source = self._entry(writing.connection, writing.repository, to, source_key)
        if is_inside(source.address):
            # An entry keeps its object from being fenced, so this is a second lock on the same door.
            reclaim.refuse_fenced(writing.connection, writing.repository.uid, source.address)
            staged = staging.find(writing.connection, to.branch, source_key)
            needs.note_sharing(writing, source.address, committed=not staged)
            # Asked under the lock, with the gate open: now no run can be about to delete it.
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

    def _delete(self, writing: Writing, branch: Branch, keys: list[str]) -> None:
        """
        Drop the rows of keys that only the current layer has; anything deeper needs a tombstone on top.

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
