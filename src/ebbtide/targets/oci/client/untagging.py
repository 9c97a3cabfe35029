"""
Deleting a tag and nothing but the tag, whatever the registry makes of the request.

Some registries answer a delete of a tag by deleting its manifest, with all other tags on it, and no probe can
tell without doing harm. So the manifest is read before, and looked for after; if it is gone it is put back,
which works as long as the registry's collector has not run: its blobs are still there.
"""

from __future__ import annotations

from collections.abc import Iterable

from ebbtide.core.errors import NotFound, SafetyStop, StalePlan
from ebbtide.targets.oci.base import Manifest, Registry


def untag(registry: Registry, repository: str, tag: str, digest: str, siblings: Iterable[str] = ()) -> bool:
    """
    Delete a tag if it still stands for this digest; False if it is gone already.

    `siblings` are the other tags on the digest. If they were lost with it they are put back and SafetyStop is
    raised, so that no other tag is tried in this registry. StalePlan if the tag has moved.
    """
    try:
        manifest = registry.manifest(repository, tag)
    except NotFound:
        return False
    if manifest.digest != digest:
        raise StalePlan(
            f"{repository}:{tag} has moved to {manifest.digest}",
            why=f"it was to be deleted as {digest}",
            fix="plan again",
        )
    done = registry.delete_tag(repository, tag)
    if _is_there(registry, repository, digest):
        return done
    _put_back(registry, repository, manifest, [name for name in siblings if name != tag])
    raise SafetyStop(
        f"the registry deleted {repository}@{digest} when it was to delete the tag {tag}",
        why="it takes a delete of a tag for one of the manifest with all its tags",
        fix="the manifest and its other tags were put back; delete only whole manifests there",
    )


def _put_back(registry: Registry, repository: str, manifest: Manifest, tags: Iterable[str]) -> None:
    """Write the manifest and those of its tags that are gone; a tag that somebody moved meanwhile stays."""
    registry.put_manifest(repository, manifest.digest, manifest)
    for tag in tags:
        if not _is_there(registry, repository, tag):
            registry.put_manifest(repository, tag, manifest)


def _is_there(registry: Registry, repository: str, reference: str) -> bool:
    try:
        registry.resolve(repository, reference)
    except NotFound:
        return False
    return True
