"""
What keeps what: a tag its manifest, an index its children, a subject its referrers and the tags that sign it.

Everything stays inside a repository, for there a manifest's digests are resolved. A digest that is not in the
list leads nowhere, which is never a reason to delete.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ebbtide.targets.oci.model import Image

Node = tuple[str, str, str]
"""A repository, a digest and a tag of it; an empty tag is the manifest itself."""

LONGEST_ALGORITHM = 32
LONGEST_VALUE = 64
"""So much of a digest stands in the tags that follow it; the distribution specification cuts long ones."""

_SIGNATURE = re.compile(r"([a-z0-9]+)-([0-9a-f]+)(\.sig|\.att|\.sbom)?")


@dataclass(frozen=True)
class Stem:
    """How a tag that may follow a digest begins: the digest, as tags write it."""

    text: str
    whole: bool
    """It is as long as a digest; a shorter one that is nobody's is an ordinary tag."""


@dataclass(frozen=True)
class Graph:
    """The manifests and tags of a registry, and which of them keep which."""

    images: Mapping[Node, Image]
    parents: Mapping[Node, frozenset[Node]]
    """The indexes that a manifest is in."""
    subjects: Mapping[Node, Node | None]
    """What a referrer or a tag of a signature follows; None: that is not in the list."""
    holders: Mapping[Node, frozenset[Node]] = field(default_factory=dict)
    """All that keeps a node if it is kept itself."""

    def tags(self, node: Node) -> list[Node]:
        """Give the tags of a manifest."""
        return [(*node[:2], tag.name) for tag in self.images[node].tags]

    def indexes_around(self, manifest: Node) -> set[Node]:
        """Give the indexes that a manifest is in, those around them too; circles come to an end."""
        found: set[Node] = set()
        waiting = [manifest]
        while waiting:
            fresh = self.parents.get(waiting.pop(), frozenset()) - found
            found |= fresh
            waiting += fresh
        return found


def build_graph(images: Sequence[Image]) -> Graph:
    """Tie the images of a registry together."""
    known = {(image.repository, image.digest, ""): image for image in images}
    parents: dict[Node, set[Node]] = {}
    for node, image in known.items():
        for child in image.children:
            if (image.repository, child, "") in known:
                parents.setdefault((image.repository, child, ""), set()).add(node)
    subjects = dict(_subjects(known))
    holders: dict[Node, set[Node]] = {node: set(found) for node, found in parents.items()}
    for node, image in known.items():
        for tag in image.tags:
            holders.setdefault(node, set()).add((*node[:2], tag.name))
    for node, subject in subjects.items():
        if subject is not None:
            holders.setdefault(node, set()).add(subject)
    return Graph(known, _frozen(parents), subjects, _frozen(holders))


def _frozen(nodes: Mapping[Node, Iterable[Node]]) -> dict[Node, frozenset[Node]]:
    return {node: frozenset(found) for node, found in nodes.items()}


def _subjects(known: Mapping[Node, Image]) -> Iterator[tuple[Node, Node | None]]:
    """Find the subjects of referrers, and those of tags that are named after a digest."""
    # Of digests that tags cannot tell apart the first is meant, whatever the order of lines.
    signed = {(node[0], digest_stem(node[1])): node for node in sorted(known, reverse=True)}
    for node, image in known.items():
        if image.subject is not None:
            subject = (node[0], image.subject, "")
            yield node, subject if subject in known else None
        for tag in image.tags:
            stem = tag_stem(tag.name)
            if stem is not None:
                found = signed.get((node[0], stem.text))
                if found is not None or stem.whole:
                    yield (*node[:2], tag.name), found


def tag_stem(tag: str) -> Stem | None:
    """
    Take apart a tag that is named after a digest, None if it is not.

    >>> tag_stem("sha256-0a1b.sig"), tag_stem("v1.0")
    (Stem(text='sha256-0a1b', whole=False), None)
    """
    named = _SIGNATURE.fullmatch(tag)
    return Stem(f"{named[1]}-{named[2]}", len(named[2]) == LONGEST_VALUE) if named else None


def digest_stem(digest: str) -> str:
    """Write a digest the way tags that follow it begin."""
    algorithm, _, value = digest.partition(":")
    return f"{algorithm[:LONGEST_ALGORITHM]}-{value[:LONGEST_VALUE]}"


def follows_a_digest(tag: str) -> bool:
    """Tell whether a tag is named after a whole digest, as those of signatures and of referrers are."""
    stem = tag_stem(tag)
    return stem is not None and stem.whole
