"""
What lies in the repository of a bin and was not put there by Ebbtide: it is reported and never removed.

Content decides, not names. An entry carries Ebbtide's annotations, and the copy of an image has a tag made of
its own digest. Every other tag or manifest belongs to somebody else, also if its name looks like one of ours,
and so does everything that it needs.
"""

from __future__ import annotations

from dataclasses import dataclass

from ebbtide.core.errors import NotFound
from ebbtide.targets.oci.base import Manifest, Registry
from ebbtide.targets.oci.documents import INDEXES, parse_object, read_content
from ebbtide.targets.oci.recycling.document import PREFIX
from ebbtide.targets.oci.recycling.naming import entry_tag, is_entry_tag, is_manifest_tag, manifest_tag


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

    A foreign manifest that cannot be understood raises, because nobody can say which others it needs.
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
    """Say that a tag is foreign."""
    return f"{bin_name}:{tag} was not put there by Ebbtide and is left alone"


def _needed(registry: Registry, bin_name: str, manifest: Manifest) -> set[str]:
    """Give the digests of a manifest and of all that it leads to."""
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
