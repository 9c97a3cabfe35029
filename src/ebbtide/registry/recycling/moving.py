"""
Bringing an image from one repository of a registry into another, and making sure that it has arrived.

Bytes do not move where the registry can mount blobs. A registry that keeps the sizes of blobs in memory may
answer for blobs that its own collector has removed while it ran, and no small request can tell: with
`read_blobs` every blob is read to its end. Else what is trusted is that a blob which a manifest of the source
needs is stored, because it is the same stored blob that the target gets.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ebbtide.errors import MetadataError, NotFound, StoreError
from ebbtide.registry.base import Descriptor, Registry
from ebbtide.registry.recycling.closure import Closure, may_be_elsewhere

_UNKNOWN_BLOB = "BLOB_UNKNOWN"
_WAITS = (0.1, 0.5, 2.0)
Naming = Callable[[str], str]
"""Says under which reference a manifest of this digest is written."""


def bring(
    registry: Registry,
    closure: Closure,
    source: str,
    target: str,
    naming: Naming,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """
    Bring all that an image needs into another repository, what is needed before what needs it.

    Images that share a layer may be brought at the same time, and while a registry writes down that it has a
    blob, it may for a moment not know it: then it is tried again.
    """
    for wait in (*_WAITS, None):
        for blob in closure.blobs:
            _bring_blob(registry, blob, source, target)
        try:
            for manifest in closure.manifests:
                registry.put_manifest(target, naming(manifest.digest), manifest)
        except StoreError as broken:
            if wait is None or _UNKNOWN_BLOB not in str(broken):
                raise
            sleep(wait)
        else:
            return


def _bring_blob(registry: Registry, blob: Descriptor, source: str, target: str) -> None:
    # One that is there is left alone: to mount it again would disturb who reads it.
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
            fix="push the image again; nothing was deleted because of it",
        ) from None
    registry.put_blob(target, blob.digest, size, lambda: registry.blob(source, blob.digest))


def _has_blob(registry: Registry, blob: Descriptor, repository: str) -> bool:
    try:
        return registry.blob_size(repository, blob.digest) == blob.size
    except NotFound:
        return False


def check_whole(
    registry: Registry, closure: Closure, repository: str, naming: Naming, *, read_blobs: bool = False
) -> None:
    """Raise MetadataError unless a repository holds every manifest and blob of an image."""
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
    """Tell whether a repository holds every manifest and blob of an image."""
    try:
        check_whole(registry, closure, repository, naming)
    except MetadataError:
        return False
    return True


def by_digest(digest: str) -> str:
    """Write a manifest under its digest alone."""
    return digest


def _not_whole(repository: str, why: str) -> MetadataError:
    return MetadataError(
        f"the image has not arrived whole in {repository}",
        why=why,
        fix="if the registry's collector ran while the registry did, restart it and try again; "
        "nothing was deleted because of it",
    )
