"""Why an image goes or stays: what the policies make of it and its names, and which rules are about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from ebbtide.errors import NotFound
from ebbtide.registry.model import Image, Judgement, Tag
from ebbtide.registry.oracle import judge
from ebbtide.registry.purge.known import with_names
from ebbtide.registry.purge.order import PurgeOrder


@dataclass(frozen=True)
class Explained:
    """One image, what becomes of it and of each of its tags, and what was said of them."""

    image: Image
    judgements: tuple[Judgement, ...]
    """Of the manifest, then of its tags."""
    rules: tuple[str, ...]
    """Which assign and keep_newest rules are about its tags."""


def explain_image(
    images: Sequence[Image], name: str, digest: str, tag: str, order: PurgeOrder, now: datetime
) -> Explained:
    """
    Explain an image of a repository, all of whose images are given: they hold each other.

    One repository needs no Spark: the oracle says the same, for that is how the evaluation is tested.
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
    return Explained(image, mine, words)


def rules_about(repository: str, tag: Tag, order: PurgeOrder) -> list[str]:
    """Name the rules that match a tag: the first assign rule, which gives a new tag its policy, and more."""
    found = []
    for number, rule in enumerate(order.policies.assign, 1):
        if rule.matches(repository, tag.name):
            words = f"{rule.repository.text} {rule.tag.text} -> {rule.policy}"
            found.append(f"{tag.name}: assign rule {number} ({words}) is the first that matches")
            break
    else:
        found.append(f"{tag.name}: no assign rule matches, so it got Default when it was first seen")
    found += [
        f"{tag.name}: counts for keep_newest: {rule}"
        for rule in order.policies.keep_newest
        if rule.matches(repository, tag.name)
    ]
    return found
