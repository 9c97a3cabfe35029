"""
The oracle's graph of a registry, and what holds images from outside.

A tag keeps its manifest, an index its children, a subject its referrers and the tags that sign it. Everything
stays inside a repository, because digests are resolved there. A digest that is absent leads nowhere, which is
never a reason to delete.

An image that runs by its digest holds the manifest, its tags, the indexes that list it and their tags,
because the name by which it was found is not known. One that runs by a tag holds this tag, its manifest
and the indexes. Images in quarantine are held until their check is done, and keep_newest rules hold the
newest tags.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from ebbtide.targets.oci.model import (
    PENDING,
    Image,
    QuarantineState,
    RunningImages,
    RunningReference,
    Tag,
    newest_words,
)
from ebbtide.targets.oci.policies.policy import KeepNewest
from ebbtide.targets.oci.running import without_host

Node = tuple[str, str, str]
"""A repository, a digest and a tag of it; an empty tag is the manifest itself."""

LONGEST_ALGORITHM = 32
LONGEST_VALUE = 64
"""The distribution specification cuts digests to these lengths in tags that are named after them."""

_SIGNATURE = re.compile(r"([a-z0-9]+)-([0-9a-f]+)(\.sig|\.att|\.sbom)?")


@dataclass(frozen=True)
class Stem:
    """The start of a tag that may be named after a digest: the digest, as tags write it."""

    text: str
    whole: bool
    """It is as long as a digest; a shorter one that matches no digest is an ordinary tag."""


@dataclass(frozen=True)
class Graph:
    """The manifests and tags of a registry, and which of them keep which."""

    images: Mapping[Node, Image]
    parents: Mapping[Node, frozenset[Node]]
    """The indexes that list a manifest."""
    subjects: Mapping[Node, Node | None]
    """What a referrer or a tag of a signature follows; None if that is absent."""
    holders: Mapping[Node, frozenset[Node]] = field(default_factory=dict)
    """Everything that keeps a node as long as it stays itself."""

    def tags(self, node: Node) -> list[Node]:
        """Return the tags of a manifest."""
        return [(*node[:2], tag.name) for tag in self.images[node].tags]

    def indexes_around(self, manifest: Node) -> set[Node]:
        """Return the indexes that list a manifest, and the indexes that list those; cycles end."""
        found: set[Node] = set()
        waiting = [manifest]
        while waiting:
            fresh = self.parents.get(waiting.pop(), frozenset()) - found
            found |= fresh
            waiting += fresh
        return found


def build_graph(images: Sequence[Image]) -> Graph:
    """Build the graph of the images of a registry."""
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
    Parse a tag that is named after a digest; return None if it is not.

    >>> tag_stem("sha256-0a1b.sig"), tag_stem("v1.0")
    (Stem(text='sha256-0a1b', whole=False), None)
    """
    named = _SIGNATURE.fullmatch(tag)
    return Stem(f"{named[1]}-{named[2]}", len(named[2]) == LONGEST_VALUE) if named else None


def digest_stem(digest: str) -> str:
    """Write a digest the way tags that are named after it begin."""
    algorithm, _, value = digest.partition(":")
    return f"{algorithm[:LONGEST_ALGORITHM]}-{value[:LONGEST_VALUE]}"


Held = Iterator[tuple[Node, str]]
"""What is held, and by what, in words."""


def scan_doubt(running: RunningImages | None, now: datetime, oldest: timedelta) -> str:
    """Return why nothing may go: the list of running images failed or is too old. Empty if neither."""
    if running is None:
        return ""
    if running.failed:
        return f"the running scan failed: {running.failed}"
    if running.scanned_at is not None and now - running.scanned_at > oldest:
        return "the running scan is too old"
    return ""


def running_holds(graph: Graph, running: RunningImages | None) -> Held:
    """Yield everything that running images hold."""
    names = running_names(running.references if running else ())
    for node, image in graph.images.items():
        by_digest = names.of_digest(image.repository, image.digest)
        by_tag = {tag.name: names.of_tag(image.repository, tag.name) for tag in image.tags}
        found = {name: words for name, words in by_tag.items() if words is not None}
        for name, words in found.items():
            yield (*node[:2], name), words
        words = by_digest or min(found.values(), default="")
        if words:
            yield from _around_running(graph, node, words, tags=by_digest is not None)


@dataclass(frozen=True)
class RunningNames:
    """Running images by the names to look them up by; each with the words that say so."""

    digests: Mapping[tuple[str | None, str], str]
    tags: Mapping[tuple[str | None, str], str]

    def of_digest(self, repository: str, digest: str) -> str | None:
        """Return the words for a manifest that runs by its digest, None if it does not."""
        return self.digests.get((without_host(repository), digest)) or self.digests.get((None, digest))

    def of_tag(self, repository: str, tag: str) -> str | None:
        """Return the words for a tag that runs, None if it does not."""
        return self.tags.get((without_host(repository), tag))


def running_names(references: Sequence[RunningReference]) -> RunningNames:
    """Arrange running images so that they are found by repository and digest or tag."""
    return RunningNames(
        {
            (_repository_path(one.repository), one.digest): f"running: {one}"
            for one in references
            if one.digest
        },
        {(_repository_path(one.repository), one.tag): f"running: {one}" for one in references if one.tag},
    )


def _around_running(graph: Graph, manifest: Node, words: str, *, tags: bool) -> Held:
    indexes = graph.indexes_around(manifest) - {manifest}
    for node in (manifest, *sorted(indexes)):
        yield node, words
        if tags or node != manifest:
            for tag in graph.tags(node):
                yield tag, words


def _repository_path(repository: str | None) -> str | None:
    return None if repository is None else without_host(repository)


def quarantine_holds(images: Mapping[Node, Image]) -> Held:
    """Yield the images that wait for their check."""
    for node, image in images.items():
        if image.quarantine is not None and image.quarantine.state is QuarantineState.PENDING:
            yield node, PENDING
            for tag in image.tags:
                yield (*node[:2], tag.name), PENDING


def newest_holds(graph: Graph, rules: Sequence[KeepNewest]) -> Held:
    """
    Yield the newest tags that each rule keeps in each repository.

    All matching tags are counted, due or not. A tag is held unless as many as the rule keeps are certainly
    newer. Tags that follow another image, such as those of signatures, and tags whose delete is requested are
    not counted.
    """
    repositories: dict[str, list[_Dated]] = {}
    for node, image in graph.images.items():
        for tag in image.tags:
            name = (*node[:2], tag.name)
            if name not in graph.subjects and not (tag.delete_requested or image.delete_requested):
                repositories.setdefault(image.repository, []).append(_Dated(name, tag, image.created_at))
    for rule in rules:
        for repository, tags in repositories.items():
            matching = [one for one in tags if rule.matches(repository, one.tag.name)]
            order = _Order(matching)
            for one in matching:
                newer = order.newer(one)
                if newer < rule.count:
                    in_doubt = newer + order.undecided(one) >= rule.count
                    yield one.node, newest_words(rule, in_doubt=in_doubt)


@dataclass(frozen=True)
class _Dated:
    """A tag, and when its image was built according to its configuration."""

    node: Node
    tag: Tag
    created: datetime | None

    @property
    def tie(self) -> tuple[bool, datetime | None]:
        """What tags of one moment share: that of a witnessed move, or of a first sight."""
        return self.tag.moved_at is not None, self.tag.clock


class _Order:
    """
    What is known about the order of tags.

    A tag is certainly newer than another one if its move was witnessed and is later than the move or the
    first sight of the other. Tags of one moment are ordered by when their images were built. A tag whose move
    no scan saw may be arbitrarily old, so it is newer than none of another moment.
    """

    def __init__(self, tags: Sequence[_Dated]) -> None:
        self._moves = sorted(one.tag.moved_at for one in tags if one.tag.moved_at is not None)
        self._dates: dict[tuple[bool, datetime | None], list[datetime]] = {}
        self._undated: dict[tuple[bool, datetime | None], int] = {}
        for one in tags:
            if one.created is None:
                self._undated[one.tie] = self._undated.get(one.tie, 0) + 1
            else:
                self._dates.setdefault(one.tie, []).append(one.created)
        for dates in self._dates.values():
            dates.sort()

    def newer(self, one: _Dated) -> int:
        """Count the tags that are certainly newer; none if no time of this tag is known."""
        if one.tag.clock is None:
            return 0
        later = len(self._moves) - bisect_right(self._moves, one.tag.clock)
        if one.created is None:
            return later
        dates = self._dates[one.tie]
        return later + len(dates) - bisect_right(dates, one.created)

    def undecided(self, one: _Dated) -> int:
        """Count the tags of the same moment for which it is unknown whether they are newer."""
        if one.tag.clock is None:
            return 0
        dates, undated = self._dates.get(one.tie, []), self._undated.get(one.tie, 0)
        if one.created is None:
            return len(dates) + undated - 1
        equal = bisect_right(dates, one.created) - bisect_left(dates, one.created)
        return undated + equal - 1
