"""
Why an image goes or stays: the verdicts on it and its tags, and the rules that match, as of the last scan.

An explanation has the words of a plan: decision, deadline, reason, holder and rules are those of the plan's
row. So what the registry cannot delete is held.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ebbtide.core.decision import Decision, HoldReason
from ebbtide.core.display import Explanation, Heading, Table
from ebbtide.core.errors import NotFound, StoreError
from ebbtide.core.format import human_bytes
from ebbtide.core.instant import NEVER, format_instant, format_second
from ebbtide.targets.oci.client.address import ImageRef, image_ref, registry_address
from ebbtide.targets.oci.client.registry import Ability, Capabilities
from ebbtide.targets.oci.context import RegistryContext
from ebbtide.targets.oci.kind import NO_RULE_MATCHED
from ebbtide.targets.oci.model import GOES, Image, ImageVerdict, Tag
from ebbtide.targets.oci.oracle import judge
from ebbtide.targets.oci.purge.last_scan import last_scan, with_names
from ebbtide.targets.oci.purge.policy import PurgePolicy
from ebbtide.targets.oci.purge.verdicts import (
    BLOCKED,
    MOST_HOLDERS,
    OTHER_REASON,
    REASONS,
    undeletable,
    undeletable_tags,
)
from ebbtide.targets.oci.simulated_images import plain_judgement


@dataclass(frozen=True)
class ExplainedItem:
    """What a plan says about one tag or manifest."""

    judgement: ImageVerdict
    decision: str
    """due or held."""
    deadline: datetime
    reason: str
    holder: str

    @property
    def rules(self) -> tuple[str, ...]:
        """The policy, and whether it applies only because no rule matched."""
        policy = (self.judgement.policy,) if self.judgement.policy else ()
        return (*policy, NO_RULE_MATCHED) if self.judgement.unmatched else policy


@dataclass(frozen=True)
class ExplainedImage:
    """One image, what becomes of it and of each of its tags, and the rules about them."""

    image: Image
    items: tuple[ExplainedItem, ...]
    """The manifest, then its tags."""
    rules: tuple[str, ...]
    """The assign and keep_newest rules about its tags."""


def explain_image(
    images: Sequence[Image],
    name: str,
    digest: str,
    tag: str,
    policy: PurgePolicy,
    now: datetime,
    probe: Callable[[str], Capabilities],
) -> ExplainedImage:
    """
    Explain an image of a repository, all of whose images are given: they hold each other.

    What the registry can do is asked only if something is to go. One repository needs no Spark: the oracle
    decides as the evaluation does.
    """
    image = with_names(images, digest, tag)
    if image is None:
        raise NotFound(
            f"the last scan has not seen {name}",
            fix="check the spelling with 'ebb image ls', or scan again with 'ebb image scan'",
        )
    judgements = judge(policy.policies, images, now, policy.running, policy.oldest_scan)
    mine = tuple(one for one in judgements if one.digest == image.digest)
    words = tuple(word for one in image.tags for word in rules_about(image.repository, one, policy))
    goes = any(str(one.decision) in GOES for one in mine)
    able = {image.repository: probe(image.repository)} if goes else {}
    return ExplainedImage(image, explained_items(mine, able, now), words)


def explained_items(
    judgements: Sequence[ImageVerdict], able: Mapping[str, Capabilities], now: datetime
) -> tuple[ExplainedItem, ...]:
    """Return what a plan makes of verdicts, given what the registry can do in each repository."""
    going = {(one.repository, one.digest) for one in judgements if _goes(one) and one.tag is None}
    never, alone = undeletable(able), undeletable_tags(able)
    found = []
    for one in judgements:
        blocked = never.get(one.repository, "") if _goes(one) else ""
        if _goes(one) and one.tag is not None and (one.repository, one.digest) not in going:
            blocked = blocked or alone.get(one.repository, "")
        found.append(_explained_item(one, blocked, now))
    return tuple(found)


def _explained_item(judgement: ImageVerdict, blocked: str, now: datetime) -> ExplainedItem:
    if blocked:
        return ExplainedItem(judgement, str(Decision.HELD), NEVER, BLOCKED, blocked)
    if judgement.held_by:
        first = judgement.held_by[0]
        reason = next((words for start, words in REASONS.items() if first.startswith(start)), OTHER_REASON)
        holder = "; ".join(judgement.held_by[:MOST_HOLDERS])
        return ExplainedItem(judgement, str(Decision.HELD), NEVER, reason, holder)
    deadline = judgement.deadline or NEVER
    if deadline <= now:
        since = f"policy {judgement.policy} lets it go since {format_instant(deadline)}"
        return ExplainedItem(judgement, str(Decision.DUE), deadline, since, "")
    coming = "" if judgement.deadline is None else f"policy {judgement.policy} until {_second(deadline)}"
    return ExplainedItem(judgement, str(Decision.HELD), deadline, str(HoldReason.NOT_YET), coming)


def _goes(judgement: ImageVerdict) -> bool:
    return str(judgement.decision) in GOES


def _second(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def rules_about(repository: str, tag: Tag, policy: PurgePolicy) -> list[str]:
    """Return the rules that match a tag: the first assign rule, and all of keep_newest."""
    found = []
    policies = policy.policies
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
        for rule in policy.policies.keep_newest
        if rule.matches(repository, tag.name)
    ]
    return found


def ref_in(registry: str, name: str) -> ImageRef:
    """Parse the name of an image in a registry: REPO:TAG or REPO@DIGEST."""
    address = registry_address(registry)
    slashes = "/" if address.startswith("oci://") else "//"
    return image_ref(f"{address}{slashes}{name}")


def explained_ref(
    context: RegistryContext, image: ImageRef, policy: PurgePolicy, now: datetime
) -> ExplainedImage:
    """Explain the image of a name as of a moment."""
    images = last_scan(context.records, context.root, context.uid, image.registry).images(image.repository)

    def probe(repository: str) -> Capabilities:
        try:
            with context.opened() as registry:
                return registry.capabilities(repository)
        except StoreError:
            # Like a plan that cannot find out; an explanation need not reach the registry.
            return Capabilities(*[Ability.UNKNOWN] * 4)

    return explain_image(images, image.name, image.digest, image.tag, policy, now, probe)


def plain_item(answer: ExplainedItem) -> dict[str, Any]:
    """Return the public form: the verdict on a tag or manifest, and what a plan says about it."""
    plain = plain_judgement(answer.judgement)
    said = {"decision": answer.decision, "reason": answer.reason, "holder": answer.holder}
    # The date of the policy says less than the plan: an item that is held is not due then.
    dates = {"deadline": format_instant(answer.deadline), "policy_deadline": plain["deadline"]}
    return plain | {"action": plain["decision"], **said, **dates, "rules": list(answer.rules)}


def explanation(explained: ExplainedImage) -> Explanation:
    """Show what becomes of an image, name by name."""
    image = explained.image
    rows = [
        (
            _item_name(one.judgement),
            one.decision,
            one.judgement.decision,
            one.judgement.policy,
            format_second(one.deadline),
            f"{one.reason}: {one.holder}" if one.holder else one.reason,
        )
        for one in explained.items
    ]
    heading = Heading(f"{image.repository}@{image.digest}", human_bytes(image.size or 0))
    shown = Table("", ("", "decision", "action", "policy", "deadline", "reason"), rows)
    plain = [plain_item(one) for one in explained.items]
    return Explanation((heading, shown, *explained.rules), {"judgements": plain, "rules": explained.rules})


def _item_name(judgement: ImageVerdict) -> str:
    return f"tag {judgement.tag}" if judgement.tag else "manifest"
