"""
The oracle: what the daily purge does with every tag and manifest of a registry, in plain Python.

This is the executable specification. Everything has *terms* of its own, a moment at which it lapses, or none;
and it is kept by *holders*: a manifest by its tags, the indexes that it is in and its subject, the tag of a
signature by what is signed. Then::

    deadline(thing) = the LATEST lapse over itself and all its holders
    held(thing)     = something outside holds it or one of its holders
    goes(thing)     = deadline <= now, and not held

A deadline and a hold are handed on from holder to held until nothing changes, so that circles come to an end.
Where nothing says when a thing may go, it stays. What goes is recycled if its own policy or that of one of
its holders says so, else deleted. A thing that somebody asks to delete is due now, whatever its date and its
subject, unless it is pinned; it is refused if it is held, or if a tag or an index that stays needs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from ebbtide.core.instant import NEVER
from ebbtide.targets.oci.graph import Graph, Node, build_graph
from ebbtide.targets.oci.holding import Held, newest_holds, quarantine_holds, running_holds, scan_doubt
from ebbtide.targets.oci.model import OLDEST_SCAN, Decision, Image, Judgement, Running
from ebbtide.targets.oci.policies.policy import UNTAGGED, Policies
from ebbtide.targets.oci.terms import Terms, asked_manifest_terms, asked_tag_terms

NO_SUBJECT = "unknown subject"
NO_TERMS = "nothing says when it may go"
NO_LAPSE = datetime.min.replace(tzinfo=UTC)
"""Of a thing that only follows others, before they were asked: every lapse is later."""


@dataclass(frozen=True)
class _Fate:
    """What is known of a thing so far; it only grows while it is handed on."""

    lapse: datetime
    policy: str
    recycle: bool
    held: bool
    unmatched: bool
    """It, or something that keeps it, has its lapse for want of a rule."""

    def joined(self, other: _Fate) -> _Fate:
        """Stay as long as the later of two; of equal ones the order of names decides, not that of lines."""
        lapse, policy = max((self.lapse, self.policy), (other.lapse, other.policy))
        recycle, held = self.recycle or other.recycle, self.held or other.held
        return _Fate(lapse, policy, recycle, held, self.unmatched or other.unmatched)

    def stays(self, now: datetime) -> bool:
        """Tell whether a thing is held, or its time has not come."""
        return self.held or self.lapse > now


@dataclass(frozen=True)
class _World:
    """A registry, and all that was found out about it."""

    graph: Graph
    requested: frozenset[Node]
    holds: Mapping[Node, Sequence[str]]
    holders: Mapping[Node, frozenset[Node]]
    fates: Mapping[Node, _Fate]


def judge(
    policies: Policies,
    images: Sequence[Image],
    now: datetime,
    running: Running | None = None,
    oldest_scan: timedelta = OLDEST_SCAN,
) -> list[Judgement]:
    """Judge every manifest, in their order, each followed by its tags."""
    world = _world(policies, build_graph(images), now, running)
    doubt = scan_doubt(running, now, oldest_scan)
    return [_judgement(world, node, doubt, now) for node in world.fates]


def _world(policies: Policies, graph: Graph, now: datetime, running: Running | None) -> _World:
    terms = dict(_terms(graph, policies, now))
    requested = _requested(graph)
    holds = _holds(graph, policies, terms, requested, running, now)
    holders = {node: _holders(graph, node, requested) for node in terms}
    return _World(graph, requested, holds, holders, _fates(terms, holds, holders))


def _requested(graph: Graph) -> frozenset[Node]:
    """Give all that somebody asks to delete: to ask for a manifest is to ask for its tags."""
    found: set[Node] = set()
    for node, image in graph.images.items():
        if image.delete_requested:
            found.add(node)
        tags = [tag for tag in image.tags if tag.delete_requested or image.delete_requested]
        found |= {(*node[:2], tag.name) for tag in tags}
    return frozenset(found)


def _terms(graph: Graph, policies: Policies, now: datetime) -> Iterator[tuple[Node, Terms | None]]:
    """Give everything its own terms, in the order of the judgements; None is for what only follows."""
    for node, image in graph.images.items():
        child, referrer = node in graph.parents, graph.subjects.get(node) is not None
        yield node, asked_manifest_terms(image, policies, now, child=child, referrer=referrer)
        for tag in image.tags:
            name = (*node[:2], tag.name)
            terms = asked_tag_terms(image, tag, policies, now)
            follows = name in graph.subjects and not (tag.delete_requested or image.delete_requested)
            yield name, None if follows and not terms.pinned else terms


def _holds(
    graph: Graph,
    policies: Policies,
    terms: Mapping[Node, Terms | None],
    requested: frozenset[Node],
    running: Running | None,
    now: datetime,
) -> dict[Node, list[str]]:
    """Gather what holds each thing by itself, in words."""
    found: dict[Node, list[str]] = {}
    for node, words in (
        *_own_holds(graph, terms, requested, now),
        *running_holds(graph, running),
        *quarantine_holds(graph.images),
        *newest_holds(graph, policies.keep_newest),
    ):
        found.setdefault(node, []).append(words)
    return {node: sorted(set(words)) for node, words in found.items()}


def _own_holds(
    graph: Graph, terms: Mapping[Node, Terms | None], requested: frozenset[Node], now: datetime
) -> Held:
    for node, found in terms.items():
        if node in graph.subjects and graph.subjects[node] is None and node not in requested:
            yield node, NO_SUBJECT
        if found is not None and found.hold(now):
            yield node, found.hold(now)


def _holders(graph: Graph, node: Node, requested: frozenset[Node]) -> frozenset[Node]:
    """Give what keeps a thing; what is to be deleted by request does not wait for its subject."""
    found = graph.holders.get(node, frozenset())
    subject = graph.subjects.get(node)
    if node in requested and subject is not None:
        return found - ({subject} - graph.parents.get(node, frozenset()))
    return found


def _fates(
    terms: Mapping[Node, Terms | None],
    holds: Mapping[Node, Sequence[str]],
    holders: Mapping[Node, frozenset[Node]],
) -> dict[Node, _Fate]:
    """Find out what becomes of everything; where nothing says when a thing may go, it is held."""
    own = {node: _own_fate(found, held=node in holds) for node, found in terms.items()}
    fates = _handed_on(own, holders)
    stuck = {node: replace(fate, held=True) for node, fate in fates.items() if fate.lapse == NO_LAPSE}
    return _handed_on(fates | stuck, holders)


def _own_fate(terms: Terms | None, *, held: bool) -> _Fate:
    if terms is None:
        return _Fate(NO_LAPSE, "", recycle=False, held=held, unmatched=False)
    return _Fate(terms.lapse, terms.policy, terms.recycle, held, terms.unmatched)


def _handed_on(fates: Mapping[Node, _Fate], holders: Mapping[Node, frozenset[Node]]) -> dict[Node, _Fate]:
    """Hand lapses and holds on from holders to what they hold, until nothing changes."""
    below: dict[Node, list[Node]] = {}
    for node, above in holders.items():
        for holder in above:
            below.setdefault(holder, []).append(node)
    found = dict(fates)
    waiting = list(found)
    while waiting:
        holder = waiting.pop()
        for node in below.get(holder, ()):
            joined = found[node].joined(found[holder])
            if joined != found[node]:
                found[node] = joined
                waiting.append(node)
    return found


def _words(world: _World, node: Node, now: datetime) -> list[str]:
    """Say what holds a thing: what does so by itself, then its holders that stay."""
    words = list(world.holds.get(node, ()))
    if not words and world.fates[node].lapse == NO_LAPSE:
        words.append(NO_TERMS)
    for holder in sorted(world.holders[node]):
        if world.fates[holder].stays(now):
            _, digest, tag = holder
            kind = "subject" if holder == world.graph.subjects.get(node) else "index"
            words.append(f"tag {tag}" if tag else f"{kind} {digest}")
    return words


def _judgement(world: _World, node: Node, doubt: str, now: datetime) -> Judgement:
    """Decide about one thing."""
    repository, digest, tag = node
    fate = world.fates[node]
    deadline = None if fate.lapse in (NEVER, NO_LAPSE) else fate.lapse
    policy = fate.policy or UNTAGGED.name
    if fate.stays(now) or doubt:
        decision = Decision.REFUSE if node in world.requested else Decision.KEEP
        words = _words(world, node, now) if fate.stays(now) else [doubt]
        held = tuple(words)
        return Judgement(repository, digest, tag or None, decision, policy, deadline, held, fate.unmatched)
    decision = Decision.RECYCLE if fate.recycle else Decision.DELETE
    return Judgement(repository, digest, tag or None, decision, policy, deadline, unmatched=fate.unmatched)
