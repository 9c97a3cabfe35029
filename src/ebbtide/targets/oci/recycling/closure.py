"""All that an image needs to be whole: its manifests, those of its platforms, and their blobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ebbtide.core.errors import MetadataError, NotFound
from ebbtide.targets.oci.base import Descriptor, Manifest, Registry
from ebbtide.targets.oci.documents import MEDIA_TYPES, Content, read_content

_ELSEWHERE = ("nondistributable", "rootfs.foreign")
"""Kinds of layers that are fetched from a vendor and need not be in the registry."""


@dataclass(frozen=True)
class Closure:
    """What an image needs; children stand before the indexes they are in, and the image is the last."""

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

    NotFound if the image is not there; MetadataError if one that it needs is not, for then nobody can say
    what else is missing.
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
    """Go down first, so that children come first; a digest cannot be inside itself, so this ends."""
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
    """Tell whether a blob is of a kind that a registry need not have."""
    return any(word in blob.media_type for word in _ELSEWHERE)


def removal_order(contents: Mapping[str, Content]) -> list[str]:
    """
    Put manifests in the order in which to delete them: an index before its children, referrers first.

    A run that ends half way then leaves neither an index without its children nor a signature whose subject
    is gone, which nothing would ever take away.
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
