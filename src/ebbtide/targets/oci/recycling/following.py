"""Which images in the bin belong to another: its signatures, attestations and lists of materials."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ebbtide.targets.oci.names import fallback_tag
from ebbtide.targets.oci.recycling.entry import BinEntry

_ENDINGS = ("", ".sig", ".att", ".sbom")
"""What cosign adds to the name of what it signs; nothing is the list that replaces the referrers API."""
_LONGEST_STEM = 71
_NAMED_AFTER = re.compile(r"sha(?:256|512)-[0-9a-f]{64,}(?:\.sig|\.att|\.sbom)?")


def followers(entry: BinEntry, digests: Iterable[str], others: Sequence[BinEntry]) -> list[BinEntry]:
    """
    Give the entries that follow an image made of these manifests, each after what it follows.

    One follows if its subject is among them, or if one of its tags is named after one of them.
    """
    found: dict[str, BinEntry] = {}
    waiting = list(digests)
    while waiting:
        subject = waiting.pop(0)
        names = signature_tags(subject)
        for other in others:
            follows = other.subject == subject or not names.isdisjoint(other.tag_names)
            if follows and other.digest != entry.digest and other.digest not in found:
                found[other.digest] = other
                waiting.append(other.digest)
    return list(found.values())


def is_follower(entry: BinEntry) -> bool:
    """Tell whether an image is about another, by its subject or by the names of its tags."""
    return bool(entry.subject) or any(_NAMED_AFTER.fullmatch(name) for name in entry.tag_names)


def signature_tags(digest: str) -> frozenset[str]:
    """Name the tags under which tools look for what signs a manifest; long digests are cut there."""
    whole = fallback_tag(digest)
    return frozenset(f"{stem}{end}" for stem in {whole, whole[:_LONGEST_STEM]} for end in _ENDINGS)
