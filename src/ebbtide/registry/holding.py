"""
What holds tags and manifests from outside: what runs, what is in quarantine, and the newest of their kind.

What runs by its digest holds the manifest, its tags, the indexes that it is in and their tags, for nobody can
say by which of these names it was found. What runs by a tag holds this tag, its manifest and the indexes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from ebbtide.registry.graph import Graph, Node
from ebbtide.registry.model import Image, QuarantineState, Running, Tag
from ebbtide.registry.references import without_host
from ebbtide.rules.images.policies import KeepNewest
from ebbtide.rules.instant import NEVER, to_micros

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
    references = running.references if running else ()
    digests = {(_path(one.repository), one.digest): str(one) for one in references if one.digest}
    tags = {(_path(one.repository), one.tag): str(one) for one in references if one.tag}
    for node, image in graph.images.items():
        path = without_host(image.repository)
        by_digest = digests.get((path, image.digest)) or digests.get((None, image.digest))
        by_tag = {tag.name: tags[path, tag.name] for tag in image.tags if (path, tag.name) in tags}
        for name, reference in by_tag.items():
            yield (*node[:2], name), f"running: {reference}"
        words = by_digest or min(by_tag.values(), default="")
        if words:
            yield from _running(graph, node, f"running: {words}", tags=by_digest is not None)


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
            yield node, "quarantine pending"
            for tag in image.tags:
                yield (*node[:2], tag.name), "quarantine pending"


def newest_holds(graph: Graph, rules: Sequence[KeepNewest]) -> Held:
    """
    Name the newest tags that each rule keeps in each repository.

    Counted are all tags that match, due or not. A tag of unknown time may be the newest, so it is held; it
    may as well be the oldest, so it takes nobody's place. Not counted are tags that follow another image,
    such as those of signatures, and tags that are to be deleted by request.
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
            unknown = [node for node, tag in matching if tag.moved_at is None]
            known = sorted((pair for pair in matching if pair[1].moved_at is not None), key=_newest_first)
            for node in [*unknown, *(node for node, _ in known[: rule.count])]:
                yield node, f"keep_newest: {rule}"


def _newest_first(pair: tuple[Node, Tag]) -> tuple[int, str, str]:
    (_, digest, name), tag = pair
    return -to_micros(tag.moved_at or NEVER), digest, name
