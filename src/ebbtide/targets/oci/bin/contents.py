"""
The contents of a registry's bin: its repositories, its images, and removing images from it for good.

An entry goes first and then its manifests, an index before its children. Manifests that another entry in the
same bin needs stay. A crash leaves manifests without an entry. They carry no time, so only the registry's
lock (`state.locks.target_lock`), which callers hold here and in `set_aside`, shows that they are not a copy
that is being made. The next discard in that bin deletes such leftovers. A run never discards while it sets
aside: a discard in the same bin could delete what a copy has just found to exist.

What another tool put into the repository of a bin is reported and never removed. Content decides, not names:
an entry carries Ebbtide's annotations, and the copy of an image has a tag made of its own digest. Every other
tag or manifest is foreign, also if its name looks like one of ours, and so is everything that it needs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Protocol, runtime_checkable

from ebbtide.core.errors import EbbtideError, MetadataError, NotFound, Refused, StalePlan, Unsupported
from ebbtide.core.instant import NEVER
from ebbtide.targets.oci.bin.entry import (
    MARKER_REPOSITORY,
    PREFIX,
    BinEntry,
    bin_repository,
    damaged,
    entry_tag,
    image_reference,
    is_bin,
    is_entry_tag,
    is_manifest_tag,
    manifest_tag,
    read_entry_document,
)
from ebbtide.targets.oci.bin.image_copy import removal_order
from ebbtide.targets.oci.client.manifest import INDEXES, Content, parse_object, read_content
from ebbtide.targets.oci.client.registry import Manifest, Registry


@dataclass(frozen=True)
class Discarded:
    """The result for an entry that was to be discarded; without an error it is gone."""

    entry: BinEntry
    error: EbbtideError | None = None


@runtime_checkable
class OwnCollector(Protocol):
    """A registry that frees the bytes of deleted content on request, as image layouts do."""

    def remove_unneeded_blobs(self, repository: str, before: datetime) -> list[str]:
        """Remove the blobs that nothing needs and that were written before a moment."""


def discard(registry: Registry, entry: BinEntry) -> None:
    """
    Remove an image from the bin, unless it is gone already.

    Raises StalePlan if it was set aside again since the entry was read, and Unsupported if deletes are off.
    """
    for done in discard_each(registry, [entry]):
        if done.error is not None:
            raise done.error


def discard_each(registry: Registry, entries: Iterable[BinEntry]) -> Iterator[Discarded]:
    """
    Remove images from the bin and yield a result for each; a failure does not stop the others.

    An error while freeing the bytes of an image layout is raised at the end.
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
                why="its entry in the bin has changed",
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
    """The manifests that the entries of a bin need."""

    def __init__(self, by_entry: dict[str, list[str]]) -> None:
        self._by_entry = by_entry
        self._count = Counter(digest for found in by_entry.values() for digest in found)

    def __contains__(self, digest: str) -> bool:
        """Return True if an entry needs a manifest."""
        return self._count[digest] > 0

    @property
    def tags(self) -> set[str]:
        """The tags of the needed manifests."""
        return {manifest_tag(digest) for digest, number in self._count.items() if number}

    def without(self, tag: str) -> list[str]:
        """Forget an entry and return what only it needed, an index before its children."""
        found = self._by_entry.pop(tag, [])
        self._count.subtract(found)
        return [digest for digest in found if not self._count[digest]]


def _needs(registry: Registry, bin_name: str, doomed: Iterable[str] = ()) -> Needs:
    """
    Follow the tag of every entry to the manifests that it needs, without reading the entry itself.

    A manifest that cannot be understood raises, unless its entry is to go anyway.
    """
    found = {}
    for tag in _all_tags(registry, bin_name):
        if is_entry_tag(tag):
            contents = _reach(registry, bin_name, image_reference(tag), is_doomed=tag in doomed)
            found[tag] = removal_order(contents)
    return Needs(found)


def _reach(registry: Registry, bin_name: str, start: str, *, is_doomed: bool) -> dict[str, Content]:
    """Read the manifests that a reference reaches; an absent one needs nothing."""
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
    references = [t for t in _all_tags(registry, bin_name) if not is_entry_tag(t) and t not in needed]
    with suppress(Unsupported):  # a server does not list untagged manifests; leftovers without a tag stay
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
    """Delete what no entry of a bin needs and return its digests; the caller holds the registry's lock."""
    return _clear(registry, bin_name, _needs(registry, bin_name), foreign_in(registry, bin_name))


def _clear(registry: Registry, bin_name: str, needs: Needs, foreign: Foreign) -> list[str]:
    found = _leftovers(registry, bin_name, needs, foreign)
    for digest in found:
        _delete(registry, bin_name, digest)
    return found


def free_blobs(registry: Registry, bin_name: str) -> list[str]:
    """
    Free the bytes of what was deleted from the bin of an image layout.

    Nothing is uploaded into a bin under the lock, so blobs need not be old. Servers free bytes themselves.
    """
    return registry.remove_unneeded_blobs(bin_name, NEVER) if isinstance(registry, OwnCollector) else []


def _all_tags(registry: Registry, bin_name: str) -> list[str]:
    try:
        return list(registry.tags(bin_name))
    except NotFound:
        return []


@dataclass(frozen=True)
class Foreign:
    """The foreign tags of a bin, and the digests of all manifests that they need."""

    tags: tuple[str, ...] = ()
    digests: frozenset[str] = frozenset()


def is_own_document(manifest: Manifest, tag: str = "") -> bool:
    """Return True for an entry, damaged or not: it has our annotations, or it leads to what its tag names."""
    document = parse_object(manifest.body, f"manifest {manifest.digest}")
    notes = document.get("annotations")
    if isinstance(notes, dict) and any(str(name).startswith(PREFIX) for name in notes):
        return True
    if manifest.media_type not in INDEXES:
        return False
    return tag in [entry_tag(child.digest) for child in read_content(manifest).children]


def is_own_copy(tag: str, digest: str) -> bool:
    """Return True if a tag keeps the copy of an image: it is made of the digest that it stands for."""
    return is_manifest_tag(tag) and tag == manifest_tag(digest)


def foreign_in(registry: Registry, bin_name: str) -> Foreign:
    """
    Find what is foreign in a bin.

    A foreign manifest that cannot be understood raises, because it may need any other.
    """
    tags, digests = [], set[str]()
    try:
        names = list(registry.tags(bin_name))
    except NotFound:
        return Foreign()
    for tag in names:
        try:
            if is_manifest_tag(tag) and is_own_copy(tag, registry.resolve(bin_name, tag).digest):
                continue
            manifest = registry.manifest(bin_name, tag)
        except NotFound:
            continue
        if not (is_entry_tag(tag) and is_own_document(manifest, tag)):
            tags.append(tag)
            digests |= _needed(registry, bin_name, manifest)
    return Foreign(tuple(tags), frozenset(digests))


def foreign_words(bin_name: str, tag: str) -> str:
    """Return the warning about a foreign tag."""
    return f"{bin_name}:{tag} was not put there by Ebbtide and is left alone"


def _needed(registry: Registry, bin_name: str, manifest: Manifest) -> set[str]:
    """Return the digests of a manifest and of all manifests that it reaches."""
    found: set[str] = set()
    waiting = [manifest]
    while waiting:
        one = waiting.pop()
        found.add(one.digest)
        for child in read_content(one).children:
            if child.digest not in found:
                try:
                    waiting.append(registry.manifest(bin_name, child.digest))
                except NotFound:
                    continue
    return found


OnDamage = Callable[[MetadataError], None]


def bin_repositories(registry: Registry) -> Iterator[str]:
    """
    Stream the names of all bins of a registry, without the repository of its marker.

    A registry that was opened for one repository lists only that, so its bin is found by name.
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

    An entry that cannot be understood raises MetadataError, or is passed to `on_damage` if that is given.
    Foreign content is left out.
    """
    bins = bin_repositories(registry) if repository is None else [bin_repository(repository)]
    for name in bins:
        for tag in _tags(registry, name):
            if is_entry_tag(tag):
                yield from _one(registry, name, tag, on_damage)


def read_entry(registry: Registry, repository: str, digest: str) -> BinEntry:
    """Read the entry of an image in the bin of its repository, or raise NotFound."""
    found = find_entry(registry, repository, digest)
    if found is None:
        raise NotFound(
            f"{repository}@{digest} is not in the recycle bin",
            why="it was never set aside, was restored, or has expired",
            fix="see what there is with 'ebb image recycle list'",
        )
    return found[0]


def find_entry(registry: Registry, repository: str, digest: str) -> tuple[BinEntry, str] | None:
    """Read the entry of an image and the digest of its document; None if there is none."""
    name, tag = bin_repository(repository), entry_tag(digest)
    try:
        document = registry.manifest(name, tag)
    except NotFound:
        return None
    return _read(document, name, tag), document.digest


def _one(registry: Registry, name: str, tag: str, on_damage: OnDamage | None) -> Iterator[BinEntry]:
    """Read one entry; one that was discarded since its tag was listed is left out."""
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
    """List tags; a bin that does not exist has none."""
    try:
        yield from registry.tags(name)
    except NotFound:
        return


def _has_bin(registry: Registry, repository: str) -> bool:
    try:
        return next(_tags(registry, bin_repository(repository)), None) is not None
    except Refused:  # a name that is too long has none
        return False
