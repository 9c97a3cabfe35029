"""
Why an image goes or stays: what the policies make of it and its names, and which rules are about it.

An answer has the words of a plan: decision, deadline, reason, holder and rules are those of the plan's row.
So what the registry cannot delete is held.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ebbtide.core.decision import Decision, HoldReason
from ebbtide.core.errors import NotFound
from ebbtide.core.instant import NEVER, format_instant
from ebbtide.targets.oci.client.registry import Capabilities
from ebbtide.targets.oci.kind import NO_RULE_MATCHED
from ebbtide.targets.oci.model import GOES, Image, ImageVerdict, Tag
from ebbtide.targets.oci.oracle import judge
from ebbtide.targets.oci.purge.abilities import unable, unable_alone
from ebbtide.targets.oci.purge.known import with_names
from ebbtide.targets.oci.purge.order import PurgeOrder
from ebbtide.targets.oci.purge.standings import BLOCKED, ELSE, MOST_WORDS, REASONS


@dataclass(frozen=True)
class Answer:
    """What a plan says of one tag or manifest."""

    judgement: ImageVerdict
    decision: str
    """due or held."""
    deadline: datetime
    reason: str
    holder: str

    @property
    def rules(self) -> tuple[str, ...]:
        """Which policy says so, and whether it does only because no rule matched."""
        policy = (self.judgement.policy,) if self.judgement.policy else ()
        return (*policy, NO_RULE_MATCHED) if self.judgement.unmatched else policy


@dataclass(frozen=True)
class Explained:
    """One image, what becomes of it and of each of its tags, and what was said of them."""

    image: Image
    answers: tuple[Answer, ...]
    """Of the manifest, then of its tags."""
    rules: tuple[str, ...]
    """Which assign and keep_newest rules are about its tags."""


def explain_image(
    images: Sequence[Image],
    name: str,
    digest: str,
    tag: str,
    order: PurgeOrder,
    now: datetime,
    probe: Callable[[str], Capabilities],
) -> Explained:
    """
    Explain an image of a repository, all of whose images are given: they hold each other.

    What the registry can do is asked only if something is to go. One repository needs no Spark: the oracle
    says the same, for that is how the evaluation is tested.
    """
    image = with_names(images, digest, tag)
    if image is None:
        raise NotFound(
            f"the last scan has not seen {name}",
            fix="check the spelling with 'ebb image ls', or scan again with 'ebb image scan'",
        )
    judgements = judge(order.policies, images, now, order.running, order.oldest_scan)
    mine = tuple(one for one in judgements if one.digest == image.digest)
    words = tuple(word for one in image.tags for word in rules_about(image.repository, one, order))
    goes = any(str(one.decision) in GOES for one in mine)
    able = {image.repository: probe(image.repository)} if goes else {}
    return Explained(image, answers(mine, able, now), words)


def answers(
    judgements: Sequence[ImageVerdict], able: Mapping[str, Capabilities], now: datetime
) -> tuple[Answer, ...]:
    """Say what a plan makes of judgements, given what the registry can do in each repository."""
    going = {(one.repository, one.digest) for one in judgements if _goes(one) and one.tag is None}
    never, alone = unable(able), unable_alone(able)
    found = []
    for one in judgements:
        blocked = never.get(one.repository, "") if _goes(one) else ""
        if _goes(one) and one.tag is not None and (one.repository, one.digest) not in going:
            blocked = blocked or alone.get(one.repository, "")
        found.append(_answer(one, blocked, now))
    return tuple(found)


def _answer(judgement: ImageVerdict, blocked: str, now: datetime) -> Answer:
    if blocked:
        return Answer(judgement, str(Decision.HELD), NEVER, BLOCKED, blocked)
    if judgement.held_by:
        first = judgement.held_by[0]
        reason = next((words for start, words in REASONS.items() if first.startswith(start)), ELSE)
        holder = "; ".join(judgement.held_by[:MOST_WORDS])
        return Answer(judgement, str(Decision.HELD), NEVER, reason, holder)
    deadline = judgement.deadline or NEVER
    if deadline <= now:
        since = f"policy {judgement.policy} lets it go since {format_instant(deadline)}"
        return Answer(judgement, str(Decision.DUE), deadline, since, "")
    coming = "" if judgement.deadline is None else f"policy {judgement.policy} until {_second(deadline)}"
    return Answer(judgement, str(Decision.HELD), deadline, str(HoldReason.NOT_YET), coming)


def _goes(judgement: ImageVerdict) -> bool:
    return str(judgement.decision) in GOES


def _second(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def rules_about(repository: str, tag: Tag, order: PurgeOrder) -> list[str]:
    """Name the rules that match a tag: the first assign rule, which gives a new tag its policy, and more."""
    found = []
    policies = order.policies
    rule = policies.rule_for(repository, tag.name)
    if rule is not None:
        words = f"{rule.repository.text} {rule.tag.text} -> {rule.policy}"
        number = policies.assign.index(rule) + 1
        found.append(f"{tag.name}: assign rule {number} ({words}) is the first that matches")
    elif policies.keeps_unmatched:
        found.append(f"{tag.name}: no assign rule matches, so it is kept (unmatched: keep)")
    else:
        found.append(f"{tag.name}: no assign rule matches, so it falls under {policies.unmatched}")
    found += [
        f"{tag.name}: counts for keep_newest: {rule}"
        for rule in order.policies.keep_newest
        if rule.matches(repository, tag.name)
    ]
    return found
