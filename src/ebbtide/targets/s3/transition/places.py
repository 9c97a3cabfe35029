"""Locations as the mover sees them: a name is free or holds a copy, and is never written over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from ebbtide.core.errors import StoreError
from ebbtide.storage.s3_copy import CopyProof, Sizes, copy_on_server, copy_through_here
from ebbtide.storage.s3_objects import About, Refusal, S3Object, S3Objects, open_objects
from ebbtide.storage.store import StoreSpec

MARK = "ebbtide-source"
"""The user metadata by which a copy is known again."""


class Taken(StoreError):
    """Somebody wrote under the name between our look and our write."""


@dataclass(frozen=True)
class Original:
    """What is to be moved, as it was found, and where it can be read."""

    objects: S3Objects
    found: S3Object
    mark: str


@dataclass(frozen=True)
class Held:
    """What a location has under a name."""

    name: str
    size: int
    etag: str
    mark: str
    version: str | None = None


class Place(Protocol):
    """A location."""

    @property
    def root(self) -> str:
        """The part of every name that the location itself takes."""

    def url(self, name: str) -> str:
        """Say where a name is, as a whole address."""

    def holds(self, objects: S3Objects, key: str) -> bool:
        """Tell whether an object of a bucket lies in this location already."""

    def find(self, name: str) -> Held | None:
        """Look what is under a name."""

    def fill(self, name: str, original: Original) -> CopyProof:
        """Copy the original to a free name; Taken if it is none."""

    def digest(self, held: Held) -> str:
        """Read what is held and give the SHA-256 of its bytes."""

    def remove(self, held: Held) -> None:
        """Remove exactly what is held."""


def open_place(spec: StoreSpec, sizes: Sizes) -> Place:
    """Open a location."""
    if spec.url.startswith("file:"):
        from ebbtide.targets.s3.transition.folder import FolderPlace  # noqa: PLC0415 (it imports this module)

        return FolderPlace(spec, sizes)
    return S3Place(open_objects(spec), sizes)


def about(original: Original, tags: Mapping[str, str]) -> About:
    """Say what the copy keeps of the original besides its bytes, and whose copy it is."""
    found = original.found
    return About(found.headers, {**found.metadata, MARK: original.mark}, tags)


@dataclass(frozen=True)
class S3Place:
    """A bucket, or a prefix of one."""

    objects: S3Objects
    sizes: Sizes

    @property
    def root(self) -> str:
        """The prefix."""
        return self.objects.root

    def url(self, name: str) -> str:
        """Give an address in which a key's own '%', '?' and '#' are escaped."""
        return f"s3://{self.objects.bucket}/{escaped(self.root + name)}"

    def holds(self, objects: S3Objects, key: str) -> bool:
        """Tell whether it is the same bucket and the key has the prefix."""
        same = (objects.server, objects.bucket) == (self.objects.server, self.objects.bucket)
        return same and key.startswith(self.root)

    def find(self, name: str) -> Held | None:
        """Ask for the current version of the key."""
        found = self.objects.describe(self.root + name)
        if found is None:
            return None
        return Held(name, found.size, found.etag, found.metadata.get(MARK, ""), found.version)

    def fill(self, name: str, original: Original) -> CopyProof:
        """Copy on the server if it is the same one, else through this process."""
        source, found = original.objects, original.found
        same = source.server == self.objects.server
        whole = same and found.size <= self.sizes.one_copy
        # In one request the server takes the tags along itself.
        kept = about(original, {} if whole else source.tags(found))
        copy = copy_on_server if same else copy_through_here
        try:
            return copy(source, found, self.objects, self.root + name, kept, self.sizes)
        except Refusal as no:
            if no.changed:
                raise Taken(f"{self.url(name)} is taken") from None
            # A server may say anything if there is no bucket to copy to.
            self.objects.check_bucket()
            raise

    def digest(self, held: Held) -> str:
        """Read the object back."""
        found = self.objects.describe(self.root + held.name)
        if found is None or found.etag != held.etag:
            raise StoreError(f"{self.url(held.name)} changed before it was read")
        try:
            return self.objects.digest(found, self.sizes.part_of(found.size))
        except Refusal as no:
            if no.changed:
                # It is the copy that changed and not the original, so this must be tried again.
                raise StoreError(f"{self.url(held.name)} changed while it was read") from None
            raise

    def remove(self, held: Held) -> None:
        """Remove the version where versions are kept, else what has the etag."""
        key = self.root + held.name
        if held.version and held.version != "null":
            self.objects.remove_version(key, held.version)
            return
        result = self.objects.remove_same(key, held.etag)
        if not result.outcome.is_gone:
            raise StoreError(f"{self.url(held.name)} cannot be removed", why=result.reason)


def escaped(name: str) -> str:
    """Write a key as part of an address, readable where that is possible."""
    return name.replace("%", "%25").replace("?", "%3F").replace("#", "%23")
