"""
Taking images out of the bin for good.

The entry goes first and then its manifests, an index before its children. Manifests that another entry in the
same bin needs stay. A crash leaves manifests without an entry; they carry no time, so nothing but the lock
tells them from a copy that is being made: callers hold the registry's lock (`ledger.locks.target_lock`) here
and in `set_aside`, and under it such leftovers are dead. The next discard in that bin clears them. A run that
does both does one after the other: a discard beside a set_aside in the same bin could take what that has just
found to be there.

What somebody else put into the repository of a bin stays, with all that it needs (see `foreign`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Protocol, runtime_checkable

from ebbtide.core.errors import EbbtideError, MetadataError, NotFound, StalePlan, Unsupported
from ebbtide.core.instant import NEVER
from ebbtide.targets.oci.base import Registry
from ebbtide.targets.oci.documents import Content, read_content
from ebbtide.targets.oci.recycling.closure import removal_order
from ebbtide.targets.oci.recycling.entry import BinEntry
from ebbtide.targets.oci.recycling.foreign import Foreign, foreign_in, is_own_copy, is_own_document
from ebbtide.targets.oci.recycling.listing import find_entry
from ebbtide.targets.oci.recycling.naming import image_reference, is_entry_tag, manifest_tag


@dataclass(frozen=True)
class Discarded:
    """What became of an entry that was to be discarded: gone, or why not."""

    entry: BinEntry
    error: EbbtideError | None = None


@runtime_checkable
class OwnCollector(Protocol):
    """A registry that frees the bytes of what was deleted when it is asked to: image layouts do."""

    def remove_unneeded_blobs(self, repository: str, before: datetime) -> list[str]:
        """Remove the blobs that nothing needs and that were written before a moment."""


def discard(registry: Registry, entry: BinEntry) -> None:
    """
    Remove an image from the bin; it is fine if it is gone already.

    StalePlan if it was set aside again since the entry was read. Unsupported where deleting is switched off.
    """
    for done in discard_each(registry, [entry]):
        if done.error is not None:
            raise done.error


def discard_each(registry: Registry, entries: Iterable[BinEntry]) -> Iterator[Discarded]:
    """
    Remove images from the bin, and say of each what became of it; one that fails stops no other.

    If bytes could not be freed where that is ours to do, this is raised at the end.
    """
    not_freed: list[EbbtideError] = []
    for bin_name, group in groupby(sorted(entries, key=lambda entry: entry.bin), lambda entry: entry.bin):
        doomed = list(group)
        try:
            foreign = foreign_in(registry, bin_name)
            needs = _needs(registry, bin_name, {entry.tag for entry in doomed})
            _clear(registry, bin_name, needs, foreign)
        except EbbtideError as error:
            yield from (Discarded(entry, error) for entry in doomed)
            continue
        yield from [_discard_one(registry, entry, needs, foreign) for entry in doomed]
        try:
            free_blobs(registry, bin_name)
        except EbbtideError as error:
            not_freed.append(error)
    for problem in not_freed:
        raise problem


def _discard_one(registry: Registry, entry: BinEntry, needs: Needs, foreign: Foreign) -> Discarded:
    try:
        known = find_entry(registry, entry.repository, entry.digest)
        if known is None:
            return Discarded(entry)
        if known[0] != entry:
            raise StalePlan(
                f"{entry} was set aside again since the bin was listed",
                why="its entry in the bin is another now",
                fix="list the bin again",
            )
        _delete(registry, entry.bin, known[1])
        for digest in needs.without(entry.tag):
            if digest not in foreign.digests:
                _delete(registry, entry.bin, digest)
    except EbbtideError as error:
        return Discarded(entry, error)
    return Discarded(entry)


def _delete(registry: Registry, bin_name: str, digest: str) -> None:
    try:
        registry.delete_manifest(bin_name, digest)
    except Unsupported as error:
        raise Unsupported(
            f"{bin_name} cannot be emptied",
            why=f"the registry does not delete manifests ({error.why or error.what})",
            fix="switch deletes on in the registry's settings, and empty the bin again",
        ) from error


class Needs:
    """Which manifests of a bin the entries there need."""

    def __init__(self, by_entry: dict[str, list[str]]) -> None:
        self._by_entry = by_entry
        self._count = Counter(digest for found in by_entry.values() for digest in found)

    def __contains__(self, digest: str) -> bool:
        """Tell whether an entry needs a manifest."""
        return self._count[digest] > 0

    @property
    def tags(self) -> set[str]:
        """The tags that manifests which are needed have."""
        return {manifest_tag(digest) for digest, number in self._count.items() if number}

    def without(self, tag: str) -> list[str]:
        """Forget an entry, and give what it alone needed, an index before its children."""
        found = self._by_entry.pop(tag, [])
        self._count.subtract(found)
        return [digest for digest in found if not self._count[digest]]


def _needs(registry: Registry, bin_name: str, doomed: Iterable[str] = ()) -> Needs:
    """
    Follow every entry's tag to the manifests that it needs; what the entry says is not needed for that.

    A manifest that cannot be understood raises, unless its entry is to go anyway.
    """
    found = {}
    for tag in _tags(registry, bin_name):
        if is_entry_tag(tag):
            contents = _reach(registry, bin_name, image_reference(tag), is_doomed=tag in doomed)
            found[tag] = removal_order(contents)
    return Needs(found)


def _reach(registry: Registry, bin_name: str, start: str, *, is_doomed: bool) -> dict[str, Content]:
    """Read the manifests from a reference downwards; one that is not there needs nothing."""
    found: dict[str, Content] = {}
    waiting = [start]
    while waiting:
        reference = waiting.pop()
        if reference in found:
            continue
        try:
            manifest = registry.manifest(bin_name, reference)
            found[manifest.digest] = read_content(manifest)
        except NotFound:
            continue
        except (MetadataError, Unsupported):
            if not is_doomed:
                raise
            continue
        waiting += [child.digest for child in found[manifest.digest].children]
    return found


def leftovers(registry: Registry, bin_name: str) -> list[str]:
    """Find Ebbtide's manifests in a bin that no entry needs, in the order in which to delete them."""
    return _leftovers(registry, bin_name, _needs(registry, bin_name), foreign_in(registry, bin_name))


def _leftovers(registry: Registry, bin_name: str, needs: Needs, foreign: Foreign) -> list[str]:
    needed = needs.tags
    references = [t for t in _tags(registry, bin_name) if not is_entry_tag(t) and t not in needed]
    with suppress(Unsupported):  # where they cannot be listed, what is left without a tag is found by nobody
        references += [digest for digest in registry.untagged(bin_name) if digest not in needs]
    found: dict[str, Content] = {}
    for reference in references:
        with suppress(NotFound):
            manifest = registry.manifest(bin_name, reference)
            own = is_own_copy(reference, manifest.digest) or is_own_document(manifest)
            if own and manifest.digest not in foreign.digests:
                found[manifest.digest] = read_content(manifest)
    return removal_order(found)


def clear_leftovers(registry: Registry, bin_name: str) -> list[str]:
    """Delete what no entry of a bin needs, and give its digests; the caller holds the registry's lock."""
    return _clear(registry, bin_name, _needs(registry, bin_name), foreign_in(registry, bin_name))


def _clear(registry: Registry, bin_name: str, needs: Needs, foreign: Foreign) -> list[str]:
    found = _leftovers(registry, bin_name, needs, foreign)
    for digest in found:
        _delete(registry, bin_name, digest)
    return found


def free_blobs(registry: Registry, bin_name: str) -> list[str]:
    """
    Free the bytes of what was deleted from a bin, where that is ours to do: in image layouts.

    Under the lock nobody uploads into a bin, so blobs need not be old. A server has a collector of its own.
    """
    return registry.remove_unneeded_blobs(bin_name, NEVER) if isinstance(registry, OwnCollector) else []


def _tags(registry: Registry, bin_name: str) -> list[str]:
    try:
        return list(registry.tags(bin_name))
    except NotFound:
        return []
