"""
What keeps what: a tag its manifest, an index its children, a subject its referrers and the tags that sign it.

Everything stays inside a repository, for there a manifest's digests are resolved. A digest that is not in the
list leads nowhere, which is never a reason to delete.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ebbtide.registry.model import Image

Node = tuple[str, str, str]
"""A repository, a digest and a tag of it; an empty tag is the manifest itself."""

_SIGNATURE = re.compile(r"([a-z0-9]+)-([0-9a-f]+)(\.sig|\.att|\.sbom)?")
_SHA256 = 64


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
    signed = {(node[0], _tag_stem(node[1])): node for node in known}
    for node, image in known.items():
        if image.subject is not None:
            subject = (node[0], image.subject, "")
            yield node, subject if subject in known else None
        for tag in image.tags:
            named = _SIGNATURE.fullmatch(tag.name)
            if named is not None:
                found = signed.get((node[0], f"{named[1]}-{named[2]}"))
                # A short name that is nobody's digest is an ordinary tag that happens to look like one.
                if found is not None or len(named[2]) == _SHA256:
                    yield (*node[:2], tag.name), found


def _tag_stem(digest: str) -> str:
    """Write a digest the way tags that follow it begin; the distribution specification cuts long ones."""
    algorithm, _, value = digest.partition(":")
    return f"{algorithm[:32]}-{value[:_SHA256]}"
