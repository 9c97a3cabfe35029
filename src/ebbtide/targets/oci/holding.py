"""
What holds tags and manifests from outside: what runs, what is in quarantine, and the newest of their kind.

What runs by its digest holds the manifest, its tags, the indexes that it is in and their tags, for nobody can
say by which of these names it was found. What runs by a tag holds this tag, its manifest and the indexes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ebbtide.targets.oci.graph import Graph, Node
from ebbtide.targets.oci.model import Image, QuarantineState, Reference, Running, Tag
from ebbtide.targets.oci.policies.policy import KeepNewest
from ebbtide.targets.oci.references import without_host

PENDING = "quarantine pending"
ORDER_UNKNOWN = "; the order is unknown: no creation date, or equal ones"

Held = Iterator[tuple[Node, str]]
"""What is held, and by what, in words."""


def scan_doubt(running: Running | None, now: datetime, oldest: timedelta) -> str:
    """Say why nothing may go: the scan of what runs failed or is too old. Empty if it is sound."""
    if running is None:
        return ""
    if running.failed:
        return f"the running scan failed: {running.failed}"
    if running.scanned_at is not None and now - running.scanned_at > oldest:
        return "the running scan is too old"
    return ""


def running_holds(graph: Graph, running: Running | None) -> Held:
    """Name all that must stay because something runs."""
    names = running_names(running.references if running else ())
    for node, image in graph.images.items():
        by_digest = names.of_digest(image.repository, image.digest)
        by_tag = {tag.name: names.of_tag(image.repository, tag.name) for tag in image.tags}
        found = {name: words for name, words in by_tag.items() if words is not None}
        for name, words in found.items():
            yield (*node[:2], name), words
        words = by_digest or min(found.values(), default="")
        if words:
            yield from _running(graph, node, words, tags=by_digest is not None)


@dataclass(frozen=True)
class RunningNames:
    """What runs, by the names to look it up by; each with the words that say so."""

    digests: Mapping[tuple[str | None, str], str]
    tags: Mapping[tuple[str | None, str], str]

    def of_digest(self, repository: str, digest: str) -> str | None:
        """Say that a manifest runs by its digest, None if it does not."""
        return self.digests.get((without_host(repository), digest)) or self.digests.get((None, digest))

    def of_tag(self, repository: str, tag: str) -> str | None:
        """Say that a tag runs, None if it does not."""
        return self.tags.get((without_host(repository), tag))


def running_names(references: Sequence[Reference]) -> RunningNames:
    """Put what runs in order, so that it is found by repository and digest or tag."""
    return RunningNames(
        {(_path(one.repository), one.digest): f"running: {one}" for one in references if one.digest},
        {(_path(one.repository), one.tag): f"running: {one}" for one in references if one.tag},
    )


def _running(graph: Graph, manifest: Node, words: str, *, tags: bool) -> Held:
    indexes = graph.indexes_around(manifest) - {manifest}
    for node in (manifest, *sorted(indexes)):
        yield node, words
        if tags or node != manifest:
            for tag in graph.tags(node):
                yield tag, words


def _path(repository: str | None) -> str | None:
    return None if repository is None else without_host(repository)


def quarantine_holds(images: Mapping[Node, Image]) -> Held:
    """Name what waits for its check."""
    for node, image in images.items():
        if image.quarantine is not None and image.quarantine.state is QuarantineState.PENDING:
            yield node, PENDING
            for tag in image.tags:
                yield (*node[:2], tag.name), PENDING


def newest_holds(graph: Graph, rules: Sequence[KeepNewest]) -> Held:
    """
    Name the newest tags that each rule keeps in each repository.

    Counted are all tags that match, due or not. A tag is held unless as many as the rule keeps are certainly
    newer. Not counted are tags that follow another image, such as those of signatures, and tags that are to
    be deleted by request.
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


def newest_words(rule: KeepNewest, *, in_doubt: bool = False) -> str:
    """Say that a tag is held by a rule, and whether only because nobody knows which of several is newer."""
    return f"keep_newest: {rule}{ORDER_UNKNOWN if in_doubt else ''}"


@dataclass(frozen=True)
class _Dated:
    """A tag, and when its image says that it was built."""

    node: Node
    tag: Tag
    created: datetime | None

    @property
    def tie(self) -> tuple[bool, datetime | None]:
        """What tags of one moment share: that of a witnessed move, or of a first sight."""
        return self.tag.moved_at is not None, self.tag.clock


class _Order:
    """
    What is known of the order of tags.

    A tag is certainly newer than another one if its move was witnessed and is later than the move or the
    first sight of the other. Tags of one moment are ordered by when their images say that they were built. A
    tag whose move nobody saw may be as old as can be, so it is newer than none of another moment.
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
        """Count the tags that are certainly newer; of a tag of which no time is known none is."""
        if one.tag.clock is None:
            return 0
        later = len(self._moves) - bisect_right(self._moves, one.tag.clock)
        if one.created is None:
            return later
        dates = self._dates[one.tie]
        return later + len(dates) - bisect_right(dates, one.created)

    def undecided(self, one: _Dated) -> int:
        """Count the tags of the same moment of which nobody can say whether they are newer."""
        if one.tag.clock is None:
            return 0
        dates, undated = self._dates.get(one.tie, []), self._undated.get(one.tie, 0)
        if one.created is None:
            return len(dates) + undated - 1
        equal = bisect_right(dates, one.created) - bisect_left(dates, one.created)
        return undated + equal - 1
