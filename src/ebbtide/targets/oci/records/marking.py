"""
What can be done to a mark; pure, from the mark before to the mark after.

Assigning copies a policy's values, counted from now. Taking a pin away assigns the policy again, so that what
only the pin kept does not go at once. What fails its check gets the values of Quarantine Failed, unless it
is pinned, and gets back what it had if it passes after all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from ebbtide.core.documents import nearest
from ebbtide.core.errors import BadInput, NotFound, Refused
from ebbtide.core.instant import NEVER, format_second
from ebbtide.targets.oci.model import Quarantine, QuarantineState
from ebbtide.targets.oci.policies.policy import (
    QUARANTINE_FAILED,
    UNTAGGED,
    Assigned,
    Policies,
    Policy,
    renewed,
    same_name,
)
from ebbtide.targets.oci.records.model import Mark

Operation = Callable[[Mark, Policies, datetime], Mark]
"""From a mark (an empty one if there was none), the registry's policies and the time to the mark after."""


def assigning(name: str, until: datetime | None = None) -> Operation:
    """Assign a policy: its values as they are now, and its date counted from now or the one that is given."""

    def assign(mark: Mark, policies: Policies, now: datetime) -> Mark:
        values = renewed(the_policy(policies, name), now)
        if until is not None:
            values = replace(values, expires_at=_ahead(until, now))
        return replace(mark, assigned=values, earlier=None)

    return assign


def pinning(until: datetime = NEVER) -> Operation:
    """Pin until a date or, without one, for ever (requirements 3.0 and 4.0); the policy's name stays."""

    def pin(mark: Mark, policies: Policies, now: datetime) -> Mark:  # noqa: ARG001 - as every operation
        values = replace(_own(mark), expires_at=_ahead(until, now), can_delete_prior=False)
        return replace(mark, assigned=values, earlier=None)

    return pin


def unpinning(mark: Mark, policies: Policies, now: datetime) -> Mark:
    """
    Take the pin away and assign the policy again from now: nothing that a pin kept goes at once.

    Without a policy a tag gets the one that the rules give it. What is assigned to a manifest would rule over
    its tags, so a manifest without one keeps a date that is ahead, or has none: it may be deleted by hand.
    """
    policy = _named(mark, policies)
    if policy is None and mark.target.tag:
        policy = policies.for_tag(mark.target.repository, mark.target.tag)
        if policy is None:
            # No rule matches, and such tags are kept: nothing is assigned, so that a later rule counts.
            return replace(mark, assigned=Assigned())
    if policy is None and mark.assigned.is_empty:
        policy = policies.the(UNTAGGED)
    if policy is not None:
        return replace(mark, assigned=replace(renewed(policy, now), can_delete_prior=True))
    date = mark.assigned.expires_at
    left = date if date is not None and date > now else NEVER
    return replace(mark, assigned=replace(mark.assigned, expires_at=left, can_delete_prior=True))


def deleting_by(date: datetime) -> Operation:
    """Let it be deleted sooner and purged at a date (requirement 5.0); a pin must be taken away first."""

    def delete_by(mark: Mark, policies: Policies, now: datetime) -> Mark:  # noqa: ARG001 - as every operation
        if mark.is_pinned(now):
            raise Refused(
                f"{mark.target} is {_pin(mark)}",
                why="a pinned image must not get a date at which it goes",
                fix="unpin it first",
            )
        values = replace(_own(mark), expires_at=_ahead(date, now), can_delete_prior=True)
        return replace(mark, assigned=values, earlier=None)

    return delete_by


def quarantining(state: QuarantineState | None) -> Operation:
    """Say how far the check of a manifest has come; None is that it passed."""

    def quarantine(mark: Mark, policies: Policies, now: datetime) -> Mark:
        if mark.target.tag:
            raise BadInput(
                f"{mark.target} is a tag", why="manifests are checked, not names", fix="give its digest"
            )
        if state is not QuarantineState.FAILED:
            held = None if state is None else Quarantine(state, now)
            return replace(_restored(mark, policies, now), quarantine=held)
        failed = replace(mark, quarantine=Quarantine(state, now))
        if mark.is_pinned(now):
            return failed
        values = renewed(policies.the(QUARANTINE_FAILED), now)
        return replace(failed, assigned=values, earlier=_own(mark))

    return quarantine


def renewing(mark: Mark, policies: Policies, now: datetime) -> Mark:
    """Assign the policy of what runs again: no pin is lost by it, and no date comes nearer."""
    policy = _named(mark, policies)
    if mark.assigned.is_empty and mark.target.tag:
        policy = policies.for_tag(mark.target.repository, mark.target.tag)
    return mark if policy is None else _counted_again(mark, policy, now)


def restoring(mark: Mark, policies: Policies, now: datetime) -> Mark:
    """
    Assign the policy of what was restored again, so that the next purge does not take it at once.

    No pin is lost, and no date comes nearer. Where the policy is gone a tag gets the one that the rules give
    it, and a manifest that of untagged ones. A tag that is kept because no rule matches it gets none. What
    failed its check has failed it now.
    """
    state = mark.quarantine
    if state is not None and state.state is QuarantineState.FAILED:
        mark = replace(mark, quarantine=Quarantine(state.state, now))
    policy = _named(mark, policies)
    if policy is None and mark.is_pinned(now):
        return mark
    if policy is None and mark.target.tag:
        policy = policies.for_tag(mark.target.repository, mark.target.tag)
    if (
        mark.target.tag
        and not mark.is_pinned(now)
        and policies.keeps(mark.target.repository, mark.target.tag)
    ):
        return replace(mark, assigned=Assigned())
    return _counted_again(mark, policy or policies.the(UNTAGGED), now)


def _counted_again(mark: Mark, policy: Policy, now: datetime) -> Mark:
    """Assign a policy from now; a pin and a later date stay."""
    fresh, old = renewed(policy, now), mark.assigned
    pinned = old.can_delete_prior is False
    before = old.expires_at or (NEVER if pinned else now)
    date = max(before, fresh.expires_at or NEVER)
    prior = False if pinned else fresh.can_delete_prior
    return replace(mark, assigned=replace(fresh, expires_at=date, can_delete_prior=prior))


def loosens(before: Mark | None, after: Mark | None, now: datetime) -> bool:
    """Tell that a pin is taken away, or one without a date gets one: what the purge itself may never do."""
    if before is None or not before.is_pinned(now):
        return False
    if after is None or not after.is_pinned(now):
        return True
    return _forever(before) and not _forever(after)


def the_policy(policies: Policies, name: str) -> Policy:
    """Find a policy, or say which there are."""
    found = policies.find(name)
    if found is None:
        names = [policy.name for policy in policies.named.values()]
        raise NotFound(f"there is no policy {name!r}", fix=nearest(name, names))
    return found


def _named(mark: Mark, policies: Policies) -> Policy | None:
    """Find the policy that was assigned, unless it is gone."""
    return policies.find(mark.assigned.policy) if mark.assigned.policy else None


def _own(mark: Mark) -> Assigned:
    """Give what was assigned to it, not what it got because it failed."""
    return mark.assigned if mark.earlier is None else mark.earlier


def _restored(mark: Mark, policies: Policies, now: datetime) -> Mark:
    """Bring back what was assigned before it failed; a date that has come meanwhile is counted again."""
    if mark.earlier is None:
        return mark
    values: Assigned = mark.earlier
    policy = policies.find(values.policy) if values.policy else None
    if policy is not None and values.expires_at is not None and values.expires_at <= now:
        values = renewed(policy, now)
    is_own = same_name(mark.assigned.policy or "") == same_name(QUARANTINE_FAILED.name)
    return replace(mark, assigned=values if is_own else mark.assigned, earlier=None)


def _ahead(date: datetime, now: datetime) -> datetime:
    if date <= now:
        raise BadInput(
            f"{format_second(date)} is not ahead of {format_second(now)}",
            why="with a date that has come it would go at the next purge",
            fix="give a later date; to delete an image now, delete it",
        )
    return date


def _forever(mark: Mark) -> bool:
    return mark.assigned.expires_at in (None, NEVER)


def _pin(mark: Mark) -> str:
    date = mark.assigned.expires_at or NEVER
    return "pinned for ever" if date == NEVER else f"pinned until {format_second(date)}"
