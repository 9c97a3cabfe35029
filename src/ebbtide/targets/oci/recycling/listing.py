"""Looking into the bin: its repositories, and the images that lie there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ebbtide.core.errors import MetadataError, NotFound, Refused, Unsupported
from ebbtide.targets.oci.base import Manifest, Registry
from ebbtide.targets.oci.recycling.document import damaged, read_entry_document
from ebbtide.targets.oci.recycling.entry import BinEntry
from ebbtide.targets.oci.recycling.foreign import is_own_document
from ebbtide.targets.oci.recycling.naming import (
    MARKER_REPOSITORY,
    bin_repository,
    entry_tag,
    is_bin,
    is_entry_tag,
)

OnDamage = Callable[[MetadataError], None]


def bin_repositories(registry: Registry) -> Iterator[str]:
    """
    Stream the names of all bins of a registry; the repository of its marker is none.

    One that was opened for a single repository lists nothing but that: its bin is looked for by name.
    """
    listed = 0
    only = ""
    for name in registry.repositories():
        listed, only = listed + 1, name
        if is_bin(name) and name != MARKER_REPOSITORY:
            yield name
    if listed == 1 and not is_bin(only) and _has_bin(registry, only):
        yield bin_repository(only)


def entries(
    registry: Registry, repository: str | None = None, on_damage: OnDamage | None = None
) -> Iterator[BinEntry]:
    """
    Stream the images in the bin of a repository, or in all bins.

    An entry that cannot be understood raises MetadataError, for it must not look like none. Who gives
    `on_damage` is told of it there and gets the others. What somebody else put there is no entry.
    """
    bins = bin_repositories(registry) if repository is None else [bin_repository(repository)]
    for name in bins:
        for tag in _tags(registry, name):
            if is_entry_tag(tag):
                yield from _one(registry, name, tag, on_damage)


def read_entry(registry: Registry, repository: str, digest: str) -> BinEntry:
    """Read what the bin of a repository says of an image; NotFound if it is not there."""
    found = find_entry(registry, repository, digest)
    if found is None:
        raise NotFound(
            f"{repository}@{digest} is not in the recycle bin",
            why="it was never set aside, or it was restored, or its days there are over",
            fix="see what there is with 'ebb image recycle list'",
        )
    return found[0]


def find_entry(registry: Registry, repository: str, digest: str) -> tuple[BinEntry, str] | None:
    """Read what the bin says of an image, with the digest of what says it; None if it is not there."""
    name, tag = bin_repository(repository), entry_tag(digest)
    try:
        document = registry.manifest(name, tag)
    except NotFound:
        return None
    return _read(document, name, tag), document.digest


def _one(registry: Registry, name: str, tag: str, on_damage: OnDamage | None) -> Iterator[BinEntry]:
    """Read one entry; one that was discarded since its tag was listed is not there and no damage."""
    try:
        document = registry.manifest(name, tag)
        if is_own_document(document, tag):
            yield _read(document, name, tag)
    except NotFound:
        return
    except (MetadataError, Unsupported) as wrong:
        error = wrong if isinstance(wrong, MetadataError) else damaged(f"the entry {name}:{tag}", wrong.what)
        if on_damage is None:
            raise error from None
        on_damage(error)


def _read(document: Manifest, name: str, tag: str) -> BinEntry:
    return read_entry_document(document, name, tag)


def _tags(registry: Registry, name: str) -> Iterator[str]:
    """List tags; a bin that was never made has none."""
    try:
        yield from registry.tags(name)
    except NotFound:
        return


def _has_bin(registry: Registry, repository: str) -> bool:
    try:
        return next(_tags(registry, bin_repository(repository)), None) is not None
    except Refused:  # a name that is too long has none
        return False
