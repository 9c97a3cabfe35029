"""
Complete copies of images: what an image needs, and copying it from one repository of a registry to another.

Bytes do not move where the registry can mount blobs. A registry that keeps the sizes of blobs in memory may
answer for blobs that its own collector has removed while it ran, and no small request can tell: with
`read_blobs` every blob is read to its end. Otherwise what is trusted is that a blob which a manifest of the
source needs is stored, because it is the same stored blob that the target gets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ebbtide.core.errors import MetadataError, NotFound, StoreError
from ebbtide.targets.oci.client.manifest import MEDIA_TYPES, Content, read_content
from ebbtide.targets.oci.client.registry import Descriptor, Manifest, Registry

_ELSEWHERE = ("nondistributable", "rootfs.foreign")
"""Kinds of layers that are fetched from a vendor and need not be in the registry."""


@dataclass(frozen=True)
class Closure:
    """What an image needs; children come before their indexes, and the image is the last."""

    manifests: tuple[Manifest, ...]
    blobs: tuple[Descriptor, ...]
    subject: str = ""

    @property
    def image(self) -> Manifest:
        """The manifest that needs all others."""
        return self.manifests[-1]

    @property
    def digests(self) -> tuple[str, ...]:
        """The digests of the manifests, in their order."""
        return tuple(manifest.digest for manifest in self.manifests)

    @property
    def size(self) -> int:
        """Bytes of everything, each counted once."""
        return sum(blob.size for blob in self.blobs) + sum(len(one.body) for one in self.manifests)

    @property
    def descriptor(self) -> Descriptor:
        """What points at the image."""
        return Descriptor(self.image.digest, len(self.image.body), self.image.media_type)


def closure_of(registry: Registry, repository: str, digest: str, *, or_in: str = "") -> Closure:
    """
    Read all manifests of an image; parts of an index may be in another repository as well.

    Raises NotFound if the image does not exist, and MetadataError if a manifest that it needs does not: what
    else is missing is not known then.
    """
    image = registry.manifest(repository, digest)
    found: dict[str, tuple[Manifest, Content]] = {}
    blobs: dict[str, Descriptor] = {}
    _collect(registry, (repository, *([or_in] if or_in else [])), image, found, blobs)
    manifests = tuple(manifest for manifest, _ in found.values())
    return Closure(manifests, tuple(blobs.values()), found[digest][1].subject)


def _collect(
    registry: Registry,
    places: Sequence[str],
    manifest: Manifest,
    found: dict[str, tuple[Manifest, Content]],
    blobs: dict[str, Descriptor],
) -> None:
    """Visit children first; a manifest cannot contain its own digest, so this ends."""
    content = read_content(manifest)
    for child in content.children:
        if child.media_type and child.media_type not in MEDIA_TYPES:
            blobs[child.digest] = child
        elif child.digest not in found:
            part = _part(registry, places, child.digest, manifest.digest)
            _collect(registry, places, part, found, blobs)
    blobs.update((blob.digest, blob) for blob in content.blobs)
    found[manifest.digest] = (manifest, content)


def _part(registry: Registry, places: Sequence[str], digest: str, index: str) -> Manifest:
    for repository in places:
        with suppress(NotFound):
            return registry.manifest(repository, digest)
    raise MetadataError(
        f"{places[0]}@{index} is not whole",
        why=f"it needs {digest}, which is not there",
        fix="push the image again, or delete it without the recycle bin",
    )


def may_be_elsewhere(blob: Descriptor) -> bool:
    """Return True for a kind of blob that a registry need not store."""
    return any(word in blob.media_type for word in _ELSEWHERE)


def removal_order(contents: Mapping[str, Content]) -> list[str]:
    """
    Return manifests in the order in which to delete them: referrers, then indexes, then children.

    An interrupted run then leaves no index without its children, and no signature without its subject, which
    nothing would ever remove.
    """
    result: dict[str, None] = {}
    for digest in sorted(contents):
        for needed in _needed_first(digest, contents, result):
            result[needed] = None
    return list(reversed(result))


def _needed_first(digest: str, contents: Mapping[str, Content], done: Mapping[str, None]) -> Iterator[str]:
    if digest not in contents or digest in done:
        return
    content = contents[digest]
    for below in (*(child.digest for child in content.children), content.subject):
        yield from _needed_first(below, contents, done)
    yield digest


_UNKNOWN_BLOB = "BLOB_UNKNOWN"
_WAITS = (0.1, 0.5, 2.0)
Naming = Callable[[str], str]
"""Returns the reference under which a manifest with this digest is written."""


def despite_others(act: Callable[[], None], sleep: Callable[[float], None] = time.sleep) -> None:
    """
    Run a repeatable operation, again if the registry misses what another client is just writing.

    Images that share layers or manifests may be copied at the same time. A registry that writes the link to
    one again may answer for a moment that it does not exist.
    """
    for wait in _WAITS:
        try:
            return act()
        except NotArrived:
            pass
        except StoreError as broken:
            if _UNKNOWN_BLOB not in str(broken):
                raise
        sleep(wait)
    return act()


def bring(registry: Registry, closure: Closure, source: str, target: str, naming: Naming) -> None:
    """Copy all that an image needs into another repository, dependencies first."""
    for blob in closure.blobs:
        _bring_blob(registry, blob, source, target)
    for manifest in closure.manifests:
        # An existing one is left alone, like a blob: writing it again would disturb readers.
        if not _has_manifest(registry, manifest, target, naming):
            registry.put_manifest(target, naming(manifest.digest), manifest)


def _bring_blob(registry: Registry, blob: Descriptor, source: str, target: str) -> None:
    # An existing one is left alone: mounting it again would disturb readers.
    if _has_blob(registry, blob, target) or registry.mount_blob(target, blob.digest, source):
        return
    try:
        size = registry.blob_size(source, blob.digest)
    except NotFound:
        if may_be_elsewhere(blob):
            return
        raise MetadataError(
            f"an image in {source} is not whole",
            why=f"its blob {blob.digest} is not there",
            fix="push the image again",
        ) from None
    registry.put_blob(target, blob.digest, size, lambda: registry.blob(source, blob.digest))


def _has_blob(registry: Registry, blob: Descriptor, repository: str) -> bool:
    try:
        return registry.blob_size(repository, blob.digest) == blob.size
    except NotFound:
        return False


def _has_manifest(registry: Registry, manifest: Manifest, repository: str, naming: Naming) -> bool:
    """Read a manifest to the end: a registry may answer HEAD for one that its collector has removed."""
    try:
        return registry.manifest(repository, naming(manifest.digest)) == manifest
    except (NotFound, MetadataError):
        return False


class NotArrived(MetadataError):
    """A copied manifest or blob cannot be read: it is lost, or another client is just writing it."""


def check_whole(
    registry: Registry, closure: Closure, repository: str, naming: Naming, *, read_blobs: bool = False
) -> None:
    """Raise NotArrived unless a repository has every manifest and blob of an image."""
    for manifest in closure.manifests:
        try:
            found = registry.manifest(repository, naming(manifest.digest))
        except NotFound:
            raise _not_whole(repository, f"the manifest {manifest.digest} cannot be read") from None
        if found != manifest:
            raise _not_whole(repository, f"{naming(manifest.digest)} is {found.digest}")
    for blob in closure.blobs:
        _check_blob(registry, blob, repository, read_blobs=read_blobs)


def _check_blob(registry: Registry, blob: Descriptor, repository: str, *, read_blobs: bool) -> None:
    try:
        size = registry.blob_size(repository, blob.digest)
        if read_blobs:
            size = sum(len(part) for part in registry.blob(repository, blob.digest))
    except NotFound:
        if may_be_elsewhere(blob):
            return
        raise _not_whole(repository, f"the blob {blob.digest} cannot be read") from None
    if size != blob.size:
        raise _not_whole(repository, f"the blob {blob.digest} has {size} bytes and not {blob.size}")


def is_whole(registry: Registry, closure: Closure, repository: str, naming: Naming) -> bool:
    """Return True if a repository has every manifest and blob of an image."""
    try:
        check_whole(registry, closure, repository, naming)
    except NotArrived:
        return False
    return True


def by_digest(digest: str) -> str:
    """Return the digest: the manifest gets no tag."""
    return digest


def _not_whole(repository: str, why: str) -> NotArrived:
    return NotArrived(
        f"the image was not copied completely to {repository}",
        why=why,
        fix="if the registry's collector ran while the registry did, restart it and try again",
    )
