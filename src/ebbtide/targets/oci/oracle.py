"""
The oracle: what a purge does with every tag and manifest of a registry, in plain Python.

This is the executable specification. Everything has *terms* of its own, a moment at which it lapses, or none;
and it is kept by *holders*: a manifest by its tags, the indexes that list it and its subject, the tag of a
signature by what is signed. Then::

    deadline(item) = the LATEST lapse over itself and all its holders
    held(item)     = something outside holds it or one of its holders
    goes(item)     = deadline <= now, and not held

Deadlines and holds are propagated from holders to what they hold until nothing changes, so that cycles end.
An item that nothing gives a date stays. What goes is recycled if its own policy or that of one of its holders
says so, else deleted. An item whose delete is requested is due now, whatever its date and its subject, unless
it is pinned; the request is refused if it is held, or if a tag or index that stays needs it.

Terms come from assigned values first, whatever the policies say today. A tag has its own or, without any,
those of its manifest; and a pin of its manifest keeps it too, since a pinned image must not lose its names. A
date that had passed before the tag was moved belongs to what the tag named before: the policy counts anew
from the move. Without values a tag gets its policy from the rules, counted from the move. If no scan saw the
move, the first sight of the tag replaces it. It is never earlier, so what counts from it ends later; and a
date that had passed before it is taken as spent, which can only make the tag stay longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from ebbtide.core.instant import NEVER, format_second
from ebbtide.targets.oci.model import (
    NEVER_DELETE,
    NO_DATE,
    NO_POLICY,
    NO_SUBJECT,
    NO_TERMS,
    OLDEST_SCAN,
    UNKNOWN_POLICY,
    UNKNOWN_TIME,
    UNMATCHED,
    Image,
    ImageDecision,
    ImageVerdict,
    QuarantineState,
    RunningImages,
    Tag,
)
from ebbtide.targets.oci.oracle_graph import (
    Graph,
    Held,
    Node,
    build_graph,
    newest_holds,
    quarantine_holds,
    running_holds,
    scan_doubt,
)
from ebbtide.targets.oci.policies.policy import (
    KEEP,
    QUARANTINE_FAILED,
    UNTAGGED,
    Assigned,
    Policies,
    Policy,
    same_name,
)


@dataclass(frozen=True)
class Terms:
    """Until when an item stays by itself."""

    lapse: datetime
    policy: str
    pinned: bool = False
    recycle: bool = True
    doubt: str = ""
    """Why its lapse is unknown."""
    copied: bool = False
    """The values were assigned with a date, and not counted from a policy as it is today."""
    unmatched: bool = False
    """They are those of a tag that no assign rule matches and to which no user assigned anything."""

    def hold(self, now: datetime) -> str:
        """Return what these terms hold an item by, apart from a date in the future."""
        if self.doubt or self.lapse <= now:
            return self.doubt
        if self.lapse == NEVER:
            return NEVER_DELETE if self.pinned else NO_DATE
        return f"pinned until {format_second(self.lapse)}" if self.pinned else ""


def tag_terms(image: Image, tag: Tag, policies: Policies) -> Terms:
    """Return the terms of a tag."""
    own, pin = assigned_terms(tag.assigned, tag.clock, policies), _pin(image, policies)
    terms = own
    if terms is None and not _names_policy(image.assigned.policy, UNTAGGED):
        terms = assigned_terms(image.assigned, tag.clock, policies)
    if terms is not None and pin is not None and (pin.lapse, pin.pinned) > (terms.lapse, terms.pinned):
        terms = pin
    failed = None if terms is not None and terms.pinned else _failed_terms(image, terms, policies)
    if failed is not None:
        return failed
    if terms is not None and not (tag.copied and terms is own):
        return terms
    return _unassigned_terms(image, tag, terms, policies)


def _unassigned_terms(image: Image, tag: Tag, copied: Terms | None, policies: Policies) -> Terms:
    """
    Return the terms of a tag without a choice of a person: those that a scan copied, or the rules'.

    No user chose what a scan copied onto this tag because no rule matched. So if unmatched tags are kept,
    this one is too.
    """
    rule = policies.rule_for(image.repository, tag.name)
    policy = policies.policy_of(rule)
    if policy is None:
        kept = copied or Terms(NEVER, KEEP)
        return replace(kept, doubt=UNMATCHED, unmatched=True)
    found = copied or counted(policy, tag.clock)
    return found if rule is not None else replace(found, unmatched=True)


def manifest_terms(image: Image, policies: Policies, *, child: bool, referrer: bool) -> Terms | None:
    """Return the terms of a manifest, None if it only follows its tags, indexes or subject."""
    terms = assigned_terms(image.assigned, None, policies, counting_from=image.clock)
    if image.tags:
        mine = None if _names_policy(image.assigned.policy, UNTAGGED) else terms
        failed = image.quarantine is not None and image.quarantine.state is QuarantineState.FAILED
        return None if failed and mine is not None and not mine.pinned else mine
    if terms is not None and not _is_spent(terms.lapse, image.untagged_since) and terms.pinned:
        return terms
    failed_terms = _failed_terms(image, terms, policies)
    if failed_terms is not None:
        return failed_terms
    if _is_named_alone(image.assigned, UNTAGGED):
        terms = None
    if terms is not None and not _is_spent(terms.lapse, image.untagged_since):
        return terms
    if referrer or (child and image.untagged_since is None):
        return None
    return counted(policies.the(UNTAGGED), _untagged_clock(image))


def asked_tag_terms(image: Image, tag: Tag, policies: Policies, now: datetime) -> Terms:
    """Return the terms of a tag, which lapse now if its delete or that of its manifest is requested."""
    terms = tag_terms(image, tag, policies)
    if not (tag.delete_requested or image.delete_requested):
        return terms
    pin = _pin(image, policies)
    if pin is not None and not terms.pinned and pin.lapse > now:
        return pin
    return _lapsing_now(terms, now)


def asked_manifest_terms(
    image: Image, policies: Policies, now: datetime, *, child: bool, referrer: bool
) -> Terms | None:
    """Return the terms of a manifest, which lapse now if its delete is requested; None if it has none."""
    terms = manifest_terms(image, policies, child=child, referrer=referrer)
    if not image.delete_requested:
        return terms
    if terms is None and not image.tags and not child:
        terms = counted(policies.the(UNTAGGED), now)
    return None if terms is None else _lapsing_now(terms, now)


def _lapsing_now(terms: Terms, now: datetime) -> Terms:
    """Let terms lapse now because a user asks for it; a pin is not moved by that."""
    if terms.pinned and terms.lapse > now:
        return terms
    return replace(terms, lapse=min(terms.lapse, now), doubt="", unmatched=False)


def assigned_terms(
    assigned: Assigned, moved: datetime | None, policies: Policies, *, counting_from: datetime | None = None
) -> Terms | None:
    """Return the terms of assigned values, None if there are none; a name alone counts from its clock."""
    if assigned.is_empty:
        return None
    policy = policies.find(assigned.policy) if assigned.policy else None
    name = policy.name if policy else assigned.policy or NO_POLICY
    if assigned.expires_at is None and assigned.can_delete_prior is None:
        return counted(policy, moved or counting_from) if policy else _unknown_policy(name)
    if assigned.expires_at is not None and _is_spent(assigned.expires_at, moved):
        return counted(policy, moved) if policy else None
    usual = policy.can_delete_prior if policy else True
    prior = usual if assigned.can_delete_prior is None else assigned.can_delete_prior
    recycle = (policy.recycle if policy else True) if assigned.recycle is None else assigned.recycle
    return Terms(assigned.expires_at or NEVER, name, not prior, recycle, copied=True)


def counted(policy: Policy, since: datetime | None) -> Terms:
    """Return the terms of a policy from a moment on; from an unknown one nothing can be counted."""
    pinned = not policy.can_delete_prior
    if since is None and policy.period is not None:
        return Terms(NEVER, policy.name, pinned, policy.recycle, UNKNOWN_TIME)
    lapse = NEVER if since is None else policy.expires(since)
    return Terms(lapse, policy.name, pinned, policy.recycle)


def _pin(image: Image, policies: Policies) -> Terms | None:
    """Return the pin on a manifest itself, with its own values; None if there is none."""
    terms = assigned_terms(image.assigned, None, policies)
    return terms if terms is not None and terms.copied and terms.pinned else None


def _unknown_policy(name: str) -> Terms:
    return Terms(NEVER, name, doubt=UNKNOWN_POLICY)


def _failed_terms(image: Image, terms: Terms | None, policies: Policies) -> Terms | None:
    """Return the terms of an image that failed its check; a date that was assigned for that counts."""
    if image.quarantine is None or image.quarantine.state is not QuarantineState.FAILED:
        return None
    if terms is not None and terms.copied and _names_policy(terms.policy, QUARANTINE_FAILED):
        return terms
    return counted(policies.the(QUARANTINE_FAILED), image.quarantine.since)


def _untagged_clock(image: Image) -> datetime | None:
    """Return since when a manifest has been without tags: a later push starts it anew."""
    if image.untagged_since is None:
        return None
    return max(image.untagged_since, image.clock or image.untagged_since)


def _is_spent(date: datetime, since: datetime | None) -> bool:
    """Return True if a date had passed before an item became what it is, so that it meant something else."""
    return since is not None and date < since


def _names_policy(name: str | None, policy: Policy) -> bool:
    return name is not None and same_name(name) == same_name(policy.name)


def _is_named_alone(assigned: Assigned, policy: Policy) -> bool:
    """Return True if a policy is named without any values."""
    return (
        _names_policy(assigned.policy, policy)
        and assigned.expires_at is None
        and assigned.can_delete_prior is None
    )


NO_LAPSE = datetime.min.replace(tzinfo=UTC)
"""The lapse of an item that only follows others, before propagation: every other lapse is later."""


@dataclass(frozen=True)
class _Fate:
    """What is known about an item so far; it only grows while it is propagated."""

    lapse: datetime
    policy: str
    recycle: bool
    held: bool
    unmatched: bool
    """It, or something that keeps it, has its lapse because no rule matched."""

    def joined(self, other: _Fate) -> _Fate:
        """Keep the later of two lapses; of equal ones the order of names decides, not that of lines."""
        lapse, policy = max((self.lapse, self.policy), (other.lapse, other.policy))
        recycle, held = self.recycle or other.recycle, self.held or other.held
        return _Fate(lapse, policy, recycle, held, self.unmatched or other.unmatched)

    def stays(self, now: datetime) -> bool:
        """Return True if an item is held, or its time has not come."""
        return self.held or self.lapse > now


@dataclass(frozen=True)
class _World:
    """A registry, and everything derived from it."""

    graph: Graph
    requested: frozenset[Node]
    holds: Mapping[Node, Sequence[str]]
    holders: Mapping[Node, frozenset[Node]]
    fates: Mapping[Node, _Fate]


def judge(
    policies: Policies,
    images: Sequence[Image],
    now: datetime,
    running: RunningImages | None = None,
    oldest_scan: timedelta = OLDEST_SCAN,
) -> list[ImageVerdict]:
    """Return the verdict on every manifest, in their order, each followed by its tags."""
    world = _world(policies, build_graph(images), now, running)
    doubt = scan_doubt(running, now, oldest_scan)
    return [_judgement(world, node, doubt, now) for node in world.fates]


def _world(policies: Policies, graph: Graph, now: datetime, running: RunningImages | None) -> _World:
    terms = dict(_terms(graph, policies, now))
    requested = _requested(graph)
    holds = _holds(graph, policies, terms, requested, running, now)
    holders = {node: _holders(graph, node, requested) for node in terms}
    return _World(graph, requested, holds, holders, _fates(terms, holds, holders))


def _requested(graph: Graph) -> frozenset[Node]:
    """Return everything whose delete is requested: a request for a manifest includes its tags."""
    found: set[Node] = set()
    for node, image in graph.images.items():
        if image.delete_requested:
            found.add(node)
        tags = [tag for tag in image.tags if tag.delete_requested or image.delete_requested]
        found |= {(*node[:2], tag.name) for tag in tags}
    return frozenset(found)


def _terms(graph: Graph, policies: Policies, now: datetime) -> Iterator[tuple[Node, Terms | None]]:
    """Yield the terms of everything, in the order of the verdicts; None for what only follows others."""
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
    running: RunningImages | None,
    now: datetime,
) -> dict[Node, list[str]]:
    """Collect what holds each item by itself, in words."""
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
    """Return what keeps an item; an item whose delete is requested does not wait for its subject."""
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
    """Decide the fate of everything; an item that nothing gives a date is held."""
    own = {node: _own_fate(found, held=node in holds) for node, found in terms.items()}
    fates = _propagated(own, holders)
    stuck = {node: replace(fate, held=True) for node, fate in fates.items() if fate.lapse == NO_LAPSE}
    return _propagated(fates | stuck, holders)


def _own_fate(terms: Terms | None, *, held: bool) -> _Fate:
    if terms is None:
        return _Fate(NO_LAPSE, "", recycle=False, held=held, unmatched=False)
    return _Fate(terms.lapse, terms.policy, terms.recycle, held, terms.unmatched)


def _propagated(fates: Mapping[Node, _Fate], holders: Mapping[Node, frozenset[Node]]) -> dict[Node, _Fate]:
    """Propagate lapses and holds from holders to what they hold, until nothing changes."""
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


def _hold_words(world: _World, node: Node, now: datetime) -> list[str]:
    """Return what holds an item: its own holds, then its holders that stay."""
    words = list(world.holds.get(node, ()))
    if not words and world.fates[node].lapse == NO_LAPSE:
        words.append(NO_TERMS)
    for holder in sorted(world.holders[node]):
        if world.fates[holder].stays(now):
            _, digest, tag = holder
            kind = "subject" if holder == world.graph.subjects.get(node) else "index"
            words.append(f"tag {tag}" if tag else f"{kind} {digest}")
    return words


def _judgement(world: _World, node: Node, doubt: str, now: datetime) -> ImageVerdict:
    """Decide about one item."""
    repository, digest, tag = node
    fate = world.fates[node]
    deadline = None if fate.lapse in (NEVER, NO_LAPSE) else fate.lapse
    policy = fate.policy or UNTAGGED.name
    if fate.stays(now) or doubt:
        decision = ImageDecision.REFUSE if node in world.requested else ImageDecision.KEEP
        words = _hold_words(world, node, now) if fate.stays(now) else [doubt]
        held = tuple(words)
        return ImageVerdict(repository, digest, tag or None, decision, policy, deadline, held, fate.unmatched)
    decision = ImageDecision.RECYCLE if fate.recycle else ImageDecision.DELETE
    return ImageVerdict(repository, digest, tag or None, decision, policy, deadline, unmatched=fate.unmatched)
