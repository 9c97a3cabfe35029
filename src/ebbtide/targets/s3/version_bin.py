"""
The bin of a bucket that keeps versions, where to delete means to hide: all in it goes by version ids.

A version that is to be deleted is copied there. An object that expires only gets a delete marker; of it the
bin has a note, an empty object, so that who restores knows which marker to remove.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ebbtide.core.decision import Outcome
from ebbtide.core.errors import EbbtideError
from ebbtide.core.recycling import Label
from ebbtide.engine.bins import Bin, BinItem
from ebbtide.storage.s3_bucket import open_bucket
from ebbtide.storage.s3_copy import Sizes, copy_to_key, has_same_bytes
from ebbtide.storage.s3_objects import About, Refusal, S3Object, S3Objects, open_objects
from ebbtide.storage.s3_versions import VersionRow
from ebbtide.storage.store import DeleteResult, StoreSpec

COPY, MARKER = "copy", "marker"
VERSIONS = "versions"
"""The form of a folder of the bin whose items say which version each was."""

_BEFORE = "it was restored before"
_NEWER = "there is another object in its place"
_MARKERS = frozenset({"405", "MethodNotAllowed"})
"""How a server answers who asks for the content of a delete marker."""


class Kept(NamedTuple):
    """What an item of such a bin was."""

    key: str
    version: str
    kind: str

    @property
    def address(self) -> str:
        """Its name in the bin; an id has no slash, so this can be taken apart again."""
        return f"{self.key}/{self.version}/{self.kind}"


def kept_of(address: str) -> Kept:
    """Take a name in the bin apart."""
    return Kept(*address.rsplit("/", 2))


@dataclass(frozen=True)
class VersionBin(Bin):
    """A bin whose labels and items are removed with all their versions."""

    spec: StoreSpec = field(default_factory=lambda: StoreSpec(""))

    def named(self, label: Label, key: str) -> Iterator[BinItem]:
        """Stream what a run's folder has of one key."""
        for item in self.items(label, f"{key}/"):
            if item.address.count("/") >= 2 and kept_of(item.address).key == key:
                yield item

    def remove(self, key: str) -> None:
        """Remove an object of the bin, and leave no marker."""
        VersionKeeper(self.spec).forget(key)


@dataclass(frozen=True)
class VersionKeeper:
    """Copies versions into the bin and brings them back; each step can be done again."""

    spec: StoreSpec
    sizes: Sizes = field(default_factory=Sizes)

    @property
    def objects(self) -> S3Objects:
        """The bucket's objects, by whole keys."""
        return open_objects(self.spec)

    def is_marker(self, key: str, version: str) -> bool:
        """Tell whether a version is a delete marker, which has no content that could be lost."""
        try:
            self.objects.describe(key, version)
        except Refusal as no:
            if no.code in _MARKERS:
                return True
            raise
        return False

    def keep(self, key: str, version: str, etag: str | None, name: str) -> DeleteResult | None:
        """Have a proven copy of a version under a name; else say why the version must not go."""
        found = self.objects.describe(key, version)
        if found is None:
            self.objects.check_bucket()
            held = self.objects.describe(name)
            return None if held else DeleteResult(key, Outcome.ABSENT)
        if etag and found.etag != etag:
            return DeleteResult(key, Outcome.CHANGED, "the content is another than was planned")
        return self._copied(found, name, key)

    def note(self, name: str) -> None:
        """Note that an object is about to get a delete marker."""
        if self.objects.describe(name) is None:
            self.objects.put(name, b"", About())

    def forget(self, name: str) -> None:
        """Remove a name of the bin with all its versions."""
        for row in self.rows(name):
            self.objects.remove_version(name, row.version_id)

    def rows(self, key: str) -> list[VersionRow]:
        """List the versions and markers of one key, the newest first."""
        pages = open_bucket(self.spec).version_rows(key, up_to=key)
        return [row for rows in pages for row in rows if row.key == key]

    def restore(self, kept: Kept, name: str) -> DeleteResult:
        """Bring one item back, if no object would be hidden by it."""
        try:
            outcome, reason = self._unmarked(kept) if kept.kind == MARKER else self._put_back(kept, name)
            if outcome is Outcome.DELETED:
                self.forget(name)
        except Refusal as no:
            return DeleteResult(name, Outcome.FAILED if no.changed else no.outcome, str(no))
        except EbbtideError as broken:
            return DeleteResult(name, Outcome.FAILED, str(broken))
        return DeleteResult(name, outcome, reason)

    def current(self, key: str) -> str | None:
        """Return the id of a key's current version; None if it cannot be told."""
        try:
            found = self.objects.describe(key)
        except EbbtideError:
            return None
        return found.version if found else None

    def _put_back(self, kept: Kept, name: str) -> tuple[Outcome, str]:
        held, current = self.objects.describe(name), self.objects.describe(kept.key)
        if held is None:
            self.objects.check_bucket()
            return (Outcome.DELETED, _BEFORE) if current else (Outcome.ABSENT, "")
        if current is None:
            refused = self._copied(held, kept.key, name)
            return (refused.outcome, refused.reason) if refused else (Outcome.DELETED, "")
        # Killed before the copy in the bin was removed, it is the current version.
        same = has_same_bytes(self.objects, held, current, self.sizes)
        return (Outcome.DELETED, _BEFORE) if same else (Outcome.TAKEN, _NEWER)

    def _unmarked(self, kept: Kept) -> tuple[Outcome, str]:
        """Remove the delete marker directly above a version, if nothing came after it."""
        rows = self.rows(kept.key)
        if rows and rows[0].version_id == kept.version:
            return Outcome.DELETED, _BEFORE
        if all(row.version_id != kept.version for row in rows):
            return Outcome.ABSENT, "the version that was hidden is gone"
        if not rows[0].is_delete_marker or rows[1].version_id != kept.version:
            return Outcome.TAKEN, "something newer lies over the version"
        self.objects.remove_version(kept.key, rows[0].version_id)
        current = self.objects.describe(kept.key)
        same = current is not None and current.version in (None, kept.version)
        return (Outcome.DELETED, "") if same else (Outcome.FAILED, "the version did not come to light")

    def _copied(self, found: S3Object, name: str, key: str) -> DeleteResult | None:
        """Copy to a name that is free, or take what is there if it is the same."""
        held = self.objects.describe(name)
        ours = held is None
        if ours:
            copy_to_key(self.objects, found, name, self.sizes)
            held = self.objects.describe(name)
        if held is not None and has_same_bytes(self.objects, found, held, self.sizes):
            return None
        if ours and held is not None and held.version:
            self.objects.remove_version(name, held.version)
        return DeleteResult(key, Outcome.FAILED, f"there is no whole copy at {name}")
