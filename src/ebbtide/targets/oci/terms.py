"""
What a tag or a manifest says of itself: until when it stays, by which policy, and whether that is a pin.

Values that were assigned rule, whatever the policies say today. Of a tag they are its own or, if it has none,
its manifest's; and a pin on its manifest keeps it too, as a pinned image must not lose its names. A date that
had come before the tag was moved belongs to what the tag named before: the policy counts anew from the move.
Without values a tag gets its policy from the rules, counted from the move.

Where nobody saw the move, the first sight of the tag stands for it. It is never earlier, so what counts from
it ends later; and a date that had come before it is taken for spent, which can only make the tag stay longer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from ebbtide.core.instant import NEVER, format_second
from ebbtide.targets.oci.model import Image, QuarantineState, Tag
from ebbtide.targets.oci.policies.policy import (
    KEEP,
    QUARANTINE_FAILED,
    UNTAGGED,
    Assigned,
    Policies,
    Policy,
    same_name,
)

UNKNOWN_TIME = "unknown time"
NO_DATE = "no expiration date"
NEVER_DELETE = "pinned: never delete"
UNMATCHED = "unmatched: no rule matches"


@dataclass(frozen=True)
class Terms:
    """Until when something stays by itself."""

    lapse: datetime
    policy: str
    pinned: bool = False
    recycle: bool = True
    doubt: str = ""
    """Why nobody can say when it lapses."""
    copied: bool = False
    """The values were copied when they were assigned, and not counted from a policy as it is today."""
    unmatched: bool = False
    """They are those of a tag that no assign rule matches and that nobody assigned anything to."""

    def hold(self, now: datetime) -> str:
        """Say what these terms hold a thing by, apart from a date that has not come."""
        if self.doubt or self.lapse <= now:
            return self.doubt
        if self.lapse == NEVER:
            return NEVER_DELETE if self.pinned else NO_DATE
        return f"pinned until {format_second(self.lapse)}" if self.pinned else ""


def tag_terms(image: Image, tag: Tag, policies: Policies) -> Terms:
    """Give the terms of a tag."""
    own, pin = assigned_terms(tag.assigned, tag.clock, policies), _pin(image, policies)
    terms = own
    if terms is None and not _is(image.assigned.policy, UNTAGGED):
        terms = assigned_terms(image.assigned, tag.clock, policies)
    if terms is not None and pin is not None and (pin.lapse, pin.pinned) > (terms.lapse, terms.pinned):
        terms = pin
    failed = None if terms is not None and terms.pinned else _failed_terms(image, terms, policies)
    if failed is not None:
        return failed
    if terms is not None and not (tag.copied and terms is own):
        return terms
    return _ruled_terms(image, tag, terms, policies)


def _ruled_terms(image: Image, tag: Tag, copied: Terms | None, policies: Policies) -> Terms:
    """
    Give the terms of a tag that nobody assigned anything to: those that a scan copied, or those of the rules.

    What a scan copied for want of a rule nobody chose for this tag. So where tags that no rule matches are
    kept, this one is too.
    """
    rule = policies.rule_for(image.repository, tag.name)
    policy = policies.policy_of(rule)
    if policy is None:
        kept = copied or Terms(NEVER, KEEP)
        return replace(kept, doubt=UNMATCHED, unmatched=True)
    found = copied or counted(policy, tag.clock)
    return found if rule is not None else replace(found, unmatched=True)


def manifest_terms(image: Image, policies: Policies, *, child: bool, referrer: bool) -> Terms | None:
    """Give the terms of a manifest, None if it only follows its tags, the indexes it is in or its subject."""
    terms = assigned_terms(image.assigned, None, policies, counting_from=image.clock)
    if image.tags:
        mine = None if _is(image.assigned.policy, UNTAGGED) else terms
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
    """Give the terms of a tag, which lapse now if somebody asks to delete it or its manifest."""
    terms = tag_terms(image, tag, policies)
    if not (tag.delete_requested or image.delete_requested):
        return terms
    pin = _pin(image, policies)
    if pin is not None and not terms.pinned and pin.lapse > now:
        return pin
    return _hastened(terms, now)


def asked_manifest_terms(
    image: Image, policies: Policies, now: datetime, *, child: bool, referrer: bool
) -> Terms | None:
    """Give the terms of a manifest, which lapse now if somebody asks to delete it; None if it has none."""
    terms = manifest_terms(image, policies, child=child, referrer=referrer)
    if not image.delete_requested:
        return terms
    if terms is None and not image.tags and not child:
        terms = counted(policies.the(UNTAGGED), now)
    return None if terms is None else _hastened(terms, now)


def _hastened(terms: Terms, now: datetime) -> Terms:
    """Let terms lapse now because somebody asks for it; a pin is not moved by that."""
    if terms.pinned and terms.lapse > now:
        return terms
    return replace(terms, lapse=min(terms.lapse, now), doubt="", unmatched=False)


def assigned_terms(
    assigned: Assigned, moved: datetime | None, policies: Policies, *, counting_from: datetime | None = None
) -> Terms | None:
    """Give the terms that assigned values make, None if there are none; a bare name counts from its clock."""
    if assigned.is_empty:
        return None
    policy = policies.find(assigned.policy) if assigned.policy else None
    name = policy.name if policy else assigned.policy or "(none)"
    if assigned.expires_at is None and assigned.can_delete_prior is None:
        return counted(policy, moved or counting_from) if policy else _unknown_policy(name)
    if assigned.expires_at is not None and _is_spent(assigned.expires_at, moved):
        return counted(policy, moved) if policy else None
    usual = policy.can_delete_prior if policy else True
    prior = usual if assigned.can_delete_prior is None else assigned.can_delete_prior
    recycle = (policy.recycle if policy else True) if assigned.recycle is None else assigned.recycle
    return Terms(assigned.expires_at or NEVER, name, not prior, recycle, copied=True)


def counted(policy: Policy, since: datetime | None) -> Terms:
    """Give the terms of a policy from a moment on; from one that is unknown nobody can count."""
    pinned = not policy.can_delete_prior
    if since is None and policy.period is not None:
        return Terms(NEVER, policy.name, pinned, policy.recycle, UNKNOWN_TIME)
    lapse = NEVER if since is None else policy.expires(since)
    return Terms(lapse, policy.name, pinned, policy.recycle)


def _pin(image: Image, policies: Policies) -> Terms | None:
    """Give the pin that was put on a manifest itself, with its own values; None if there is none."""
    terms = assigned_terms(image.assigned, None, policies)
    return terms if terms is not None and terms.copied and terms.pinned else None


def _unknown_policy(name: str) -> Terms:
    return Terms(NEVER, name, doubt="unknown policy")


def _failed_terms(image: Image, terms: Terms | None, policies: Policies) -> Terms | None:
    """Give the terms of an image that failed its check; a date that was assigned for that rules."""
    if image.quarantine is None or image.quarantine.state is not QuarantineState.FAILED:
        return None
    if terms is not None and terms.copied and _is(terms.policy, QUARANTINE_FAILED):
        return terms
    return counted(policies.the(QUARANTINE_FAILED), image.quarantine.since)


def _untagged_clock(image: Image) -> datetime | None:
    """Give since when a manifest has been without tags: a later push begins it anew."""
    if image.untagged_since is None:
        return None
    return max(image.untagged_since, image.clock or image.untagged_since)


def _is_spent(date: datetime, since: datetime | None) -> bool:
    """Tell that a date had come before a thing became what it is, so that it was meant for something else."""
    return since is not None and date < since


def _is(name: str | None, policy: Policy) -> bool:
    return name is not None and same_name(name) == same_name(policy.name)


def _is_named_alone(assigned: Assigned, policy: Policy) -> bool:
    """Tell that a policy is named and none of its values was copied."""
    return _is(assigned.policy, policy) and assigned.expires_at is None and assigned.can_delete_prior is None
