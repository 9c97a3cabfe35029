"""
Repositories and tags: which are scanned, and when what the registry lists is not believed.

A list that leaves out what is there would make images look as if they had no tag. So what an earlier scan
knew and the list does not have is asked for by its name: if it answers, the list cannot be trusted.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import Any

from ebbtide.core.errors import BadInput, MetadataError, SafetyStop
from ebbtide.targets.oci.base import RegistrySpec
from ebbtide.targets.oci.bin.entry import is_bin
from ebbtide.targets.oci.client.address import repository_of
from ebbtide.targets.oci.client.opening import open_registry
from ebbtide.targets.oci.inventory.engine import Scope, Tagged
from ebbtide.targets.oci.inventory.snapshots import Snapshot


def find_scope(spec: RegistrySpec, earlier: Snapshot | None, repositories: Iterable[str] | None) -> Scope:
    """List the repositories of the address, or take those that are named; the bin's are left out."""
    whole = repositories is None and not repository_of(spec.url)
    with closing(open_registry(spec)) as registry:
        found = set(registry.repositories() if repositories is None else repositories)
    ordinary = tuple(sorted(name for name in found if not is_bin(name)))
    if not whole and not ordinary:
        raise BadInput("there is no repository to scan", why="the recycle bin is not scanned")
    known = sorted(earlier.scanned.keys() - found) if whole and earlier is not None else []
    return Scope(ordinary, tuple(known), whole)


def check_catalog(scope: Scope, earlier: Snapshot | None) -> None:
    """Stop if a registry that held images lists no repository: nobody empties one overnight."""
    if not scope.listed and earlier is not None and earlier.image_count:
        raise _doubt("the registry lists no repository at all", f"it held {earlier.image_count} manifests")


def check_lists(tagged: Tagged[Any]) -> None:
    """Stop if a tag is there that its list does not have, for others may be left out too, or if none is."""
    if tagged.left_out is not None:
        repository, tag = tagged.left_out
        raise MetadataError(
            f"the list of tags of {repository} is not whole",
            why=f"it leaves out {tag}, which is there",
            fix="scan again; if it stays so, the registry or a proxy before it cuts its lists short",
        )
    if tagged.listed and not tagged.count:
        raise MetadataError(
            "every tag that the registry lists is gone when it is asked for",
            why="something stands before it, or it is damaged",
            fix="check the address; nothing was recorded",
        )


def check_tags(scope: Scope, tagged: Tagged[Any], earlier_count: int) -> None:
    """Stop if all tags that were known are gone, and no registry would do that by itself."""
    if tagged.count or not earlier_count:
        return
    if scope.whole:
        raise _doubt("the registry has no tag at all", f"it had {earlier_count}")
    if tagged.absent.issuperset(scope.names):
        raise _doubt(f"the registry does not know {', '.join(scope.names[:3])}", "it had tags")


def check_lost(lost: tuple[str, str] | None) -> None:
    """Stop if a tag is still there and its manifest is not: what that needs cannot be known."""
    if lost is not None:
        repository, tag = lost
        raise MetadataError(
            f"the tag {repository} {tag} stands for a manifest that is not there",
            why="what the manifest needs cannot be known",
            fix="scan again, if it was just moved; else push the image again or delete the tag",
        )


def _doubt(what: str, why: str) -> SafetyStop:
    return SafetyStop(
        what,
        why=f"{why} at the last scan",
        fix="check the address and the rights of this user; if it is so, allow an empty registry",
    )
