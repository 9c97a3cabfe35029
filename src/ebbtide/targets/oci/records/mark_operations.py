"""The operations that change a mark: assign, pin, unpin, quarantine, renew and restore."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from ebbtide.core.errors import BadInput, Refused
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
from ebbtide.targets.oci.records.policies import the_policy

Operation = Callable[[Mark, Policies, datetime], Mark]
"""Takes a mark (empty if there was none), the registry's policies and the time; returns the new mark."""


def assigning(name: str, until: datetime | None = None) -> Operation:
    """Assign a policy: its current values, and a date that is given or counted from now."""

    def assign(mark: Mark, policies: Policies, now: datetime) -> Mark:
        values = renewed(the_policy(policies, name), now)
        if until is not None:
            values = replace(values, expires_at=_ahead(until, now))
        return replace(mark, assigned=values, earlier=None)

    return assign


def pinning(until: datetime = NEVER) -> Operation:
    """Pin until a date or, without one, forever (requirements 3.0 and 4.0); the name of the policy stays."""

    def pin(mark: Mark, policies: Policies, now: datetime) -> Mark:  # noqa: ARG001 - as every operation
        values = replace(_own(mark), expires_at=_ahead(until, now), can_delete_prior=False)
        return replace(mark, assigned=values, earlier=None)

    return pin


def unpinning(mark: Mark, policies: Policies, now: datetime) -> Mark:
    """
    Unpin and assign the policy again from now, so that nothing that a pin kept goes at once.

    Without a policy a tag gets the one that the rules give it. An assignment to a manifest would override
    its tags, so a manifest without one keeps a future date, or has none: it may be deleted by hand.
    """
    policy = _named(mark, policies)
    if policy is None and mark.target.tag:
        policy = policies.for_tag(mark.target.repository, mark.target.tag)
        if policy is None:
            # No rule matches, and such tags are kept: nothing is assigned, so that a later rule applies.
            return replace(mark, assigned=Assigned())
    if policy is None and mark.assigned.is_empty:
        policy = policies.the(UNTAGGED)
    if policy is not None:
        return replace(mark, assigned=replace(renewed(policy, now), can_delete_prior=True))
    date = mark.assigned.expires_at
    left = date if date is not None and date > now else NEVER
    return replace(mark, assigned=replace(mark.assigned, expires_at=left, can_delete_prior=True))


def deleting_by(date: datetime) -> Operation:
    """Allow deletion, and purge at a date (requirement 5.0); a pin must be removed first."""

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
    """Set the state of a manifest's check; None means that it passed."""

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
    """Assign the policy of a running image again: no pin is lost, and no date comes nearer."""
    policy = _named(mark, policies)
    if mark.assigned.is_empty and mark.target.tag:
        policy = policies.for_tag(mark.target.repository, mark.target.tag)
    return mark if policy is None else _counted_again(mark, policy, now)


def restoring(mark: Mark, policies: Policies, now: datetime) -> Mark:
    """
    Assign the policy of a restored image again, so that the next purge does not take it at once.

    No pin is lost, and no date comes nearer. If the policy is gone, a tag gets the one that the rules give
    it, and a manifest that of untagged ones. A tag that is kept because no rule matches gets none. If it
    failed its check, the failure counts from now.
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
    """Return True if a pin is removed or gets a date, which the purge itself may never do."""
    if before is None or not before.is_pinned(now):
        return False
    if after is None or not after.is_pinned(now):
        return True
    return _forever(before) and not _forever(after)


def _named(mark: Mark, policies: Policies) -> Policy | None:
    """Return the assigned policy, unless it is gone."""
    return policies.find(mark.assigned.policy) if mark.assigned.policy else None


def _own(mark: Mark) -> Assigned:
    """Return the assignment, without the one that a failed check made."""
    return mark.assigned if mark.earlier is None else mark.earlier


def _restored(mark: Mark, policies: Policies, now: datetime) -> Mark:
    """Return the assignment from before the check failed; a date that has passed is counted again."""
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
