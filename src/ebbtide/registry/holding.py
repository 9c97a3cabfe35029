"""
What holds tags and manifests from outside: what runs, what is in quarantine, and the newest of their kind.

What runs by its digest holds the manifest, its tags, the indexes that it is in and their tags, for nobody can
say by which of these names it was found. What runs by a tag holds this tag, its manifest and the indexes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ebbtide.registry.graph import Graph, Node
from ebbtide.registry.model import Image, QuarantineState, Reference, Running, Tag
from ebbtide.registry.references import without_host
from ebbtide.rules.images.policies import KeepNewest
from ebbtide.rules.instant import NEVER, to_micros

PENDING = "quarantine pending"

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

    Counted are all tags that match, due or not. A tag of unknown time may be the newest, so it is held; it
    may as well be the oldest, so it takes nobody's place. One that was seen at a time is no newer than that:
    it is held unless so many others certainly are. Not counted are tags that follow another image, such as
    those of signatures, and tags that are to be deleted by request.
    """
    repositories: dict[str, list[tuple[Node, Tag]]] = {}
    for node, image in graph.images.items():
        for tag in image.tags:
            name = (*node[:2], tag.name)
            if name not in graph.subjects and not (tag.delete_requested or image.delete_requested):
                repositories.setdefault(image.repository, []).append((name, tag))
    for rule in rules:
        for repository, tags in repositories.items():
            matching = [(node, tag) for node, tag in tags if rule.matches(repository, tag.name)]
            known = sorted((pair for pair in matching if pair[1].moved_at is not None), key=_newest_first)
            newest = known[: rule.count]
            unknown = [pair for pair in matching if pair[1].moved_at is None]
            for node, _ in [*newest, *(pair for pair in unknown if _may_be_of(newest, pair[1], rule))]:
                yield node, newest_words(rule)


def newest_words(rule: KeepNewest) -> str:
    """Say that a tag is held by a rule."""
    return f"keep_newest: {rule}"


def _may_be_of(newest: Sequence[tuple[Node, Tag]], tag: Tag, rule: KeepNewest) -> bool:
    """Tell that a tag whose move nobody saw may be one of the newest."""
    if tag.seen_at is None:
        return True
    later = [one for _, one in newest if one.moved_at is not None and one.moved_at > tag.seen_at]
    return len(later) < rule.count


def _newest_first(pair: tuple[Node, Tag]) -> tuple[int, str, str]:
    (_, digest, name), tag = pair
    return -to_micros(tag.moved_at or NEVER), digest, name
