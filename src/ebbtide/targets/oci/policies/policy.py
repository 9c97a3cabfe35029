"""
Image policies of seed 004, and which tags get which.

A policy has a period, and says whether an image may be deleted earlier and whether it goes through the
recycle bin. Assigning a policy copies its values onto a tag or manifest: later changes to the policy do not
change what was assigned. ``can_delete_prior`` false is a pin (requirements 3.0 to 5.0 of the seed)::

    can_delete_prior   date      meaning
    false              a date    pinned: must not be deleted before the date, is purged from it on
    false              none      never delete
    true               a date    delete by: may be deleted earlier, and is at the date
    true               none      may be deleted by hand, is never purged

Days are 24 hours. Months and years are those of the calendar in UTC: the same day and time of a later month,
or its last day if that month is shorter. One month after 31 January is the end of February.
"""

from __future__ import annotations

import re
from calendar import monthrange
from dataclasses import dataclass, field
from datetime import MAXYEAR, UTC, datetime
from enum import StrEnum

from ebbtide.core.instant import NEVER, days_after
from ebbtide.targets.oci.policies.patterns import Glob, TagPattern


class Unit(StrEnum):
    """The unit of a period."""

    DAYS = "days"
    MONTHS = "months"
    YEARS = "years"


@dataclass(frozen=True)
class Period:
    """A number of days, months or years."""

    number: int
    unit: Unit = Unit.DAYS

    def after(self, moment: datetime) -> datetime:
        """Return the end of the period that begins then; NEVER if the calendar has no such date."""
        if self.unit is Unit.DAYS:
            return days_after(moment, self.number)
        return _months_after(moment, self.number * (12 if self.unit is Unit.YEARS else 1))

    def __str__(self) -> str:
        """Return it as text: ``1 day``, ``6 months``."""
        return f"{self.number} {self.unit if self.number != 1 else self.unit.removesuffix('s')}"


def _months_after(moment: datetime, months: int) -> datetime:
    moment = moment.astimezone(UTC)
    year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    if year > MAXYEAR:
        return NEVER
    day = min(moment.day, monthrange(year, month + 1)[1])
    return moment.replace(year=year, month=month + 1, day=day)


@dataclass(frozen=True)
class Policy:
    """A named policy of a registry; without a period what it is assigned to never expires."""

    name: str
    period: Period | None = None
    can_delete_prior: bool = True
    recycle: bool = True

    def expires(self, since: datetime) -> datetime:
        """Return when something whose period begins then expires."""
        return NEVER if self.period is None else self.period.after(since)


@dataclass(frozen=True)
class Assigned:
    """The values that were copied onto a tag or manifest; None where nothing was assigned."""

    policy: str | None = None
    expires_at: datetime | None = None
    """A date, NEVER if that was chosen, or None: no date."""
    can_delete_prior: bool | None = None
    recycle: bool | None = None

    @property
    def is_empty(self) -> bool:
        """Return True if nothing was assigned; `can_delete_prior` true is the default and does not count."""
        return self.policy is None and self.expires_at is None and self.can_delete_prior is not False


def renewed(policy: Policy, now: datetime) -> Assigned:
    """Assign a policy, or assign it again: its current values, and the date counted from now."""
    return Assigned(policy.name, policy.expires(now), policy.can_delete_prior, policy.recycle)


DEFAULT = Policy("Default", Period(5))
RECYCLE_BIN = Policy("Recycle Bin", Period(15), recycle=False)
"""Items that expire in the bin are deleted: there is no second bin."""
QUARANTINE_FAILED = Policy("Quarantine Failed", Period(5), recycle=False)
UNTAGGED = Policy("Untagged", Period(5))
RELEASED = Policy("Released", Period(180), can_delete_prior=False)

SYSTEM_POLICIES = (DEFAULT, RECYCLE_BIN, QUARANTINE_FAILED, UNTAGGED)
"""Every registry has them: they can be changed, but not removed."""
GIVEN_POLICIES = (*SYSTEM_POLICIES, RELEASED)
"""The policies of a new registry."""

KEEP = "keep"
"""The value of `unmatched` that keeps tags which no assign rule matches until a user deletes them."""


def same_name(name: str) -> str:
    """Return the key of a policy's name: ``Recycle Bin``, ``recycle-bin`` and ``recycle_bin`` are one."""
    return re.sub(r"[-_\s]+", " ", name.strip()).casefold()


def by_name(*policies: Policy) -> dict[str, Policy]:
    """Return the policies by the keys of their names."""
    return {same_name(policy.name): policy for policy in policies}


@dataclass(frozen=True)
class AssignRule:
    """Tags that match and have nothing assigned get this policy, unless an earlier rule matches them."""

    repository: Glob
    tag: TagPattern
    policy: str

    def matches(self, repository: str, tag: str) -> bool:
        """Return True if the rule applies to a tag."""
        return self.repository.matches(repository) and self.tag.matches(tag)


@dataclass(frozen=True)
class KeepNewest:
    """In every repository that matches, the newest `count` matching tags are held, whatever their age."""

    repository: Glob
    tag: TagPattern
    count: int

    def matches(self, repository: str, tag: str) -> bool:
        """Return True if a tag is one of those that are counted."""
        return self.repository.matches(repository) and self.tag.matches(tag)

    def __str__(self) -> str:
        """Describe the rule, for the explanation of a hold."""
        return f"the newest {self.count} of {self.tag.text} in {self.repository.text}"


@dataclass(frozen=True)
class Policies:
    """All policies and rules of a registry; the system policies are always among them."""

    named: dict[str, Policy] = field(default_factory=lambda: by_name(*GIVEN_POLICIES))
    """By :func:`same_name`."""
    assign: tuple[AssignRule, ...] = ()
    keep_newest: tuple[KeepNewest, ...] = ()
    unmatched: str = DEFAULT.name
    """The policy of tags that no assign rule matches, or KEEP."""

    @property
    def keeps_unmatched(self) -> bool:
        """Return True if a tag that no assign rule matches is kept."""
        return self.unmatched == KEEP

    def find(self, name: str) -> Policy | None:
        """Return the policy of this name, None if there is none."""
        return self.named.get(same_name(name))

    def the(self, policy: Policy) -> Policy:
        """Return a system policy with the values that it has in this registry."""
        return self.named[same_name(policy.name)]

    def rule_for(self, repository: str, tag: str) -> AssignRule | None:
        """Return the first assign rule that matches a tag."""
        return next((rule for rule in self.assign if rule.matches(repository, tag)), None)

    def for_tag(self, repository: str, tag: str) -> Policy | None:
        """
        Return the policy of a tag that has nothing assigned.

        The first rule that matches decides, else `unmatched`; None if that keeps the tag.
        """
        return self.policy_of(self.rule_for(repository, tag))

    def keeps(self, repository: str, tag: str) -> bool:
        """Return True if a tag that has nothing assigned is kept because no rule matches it."""
        return self.keeps_unmatched and self.rule_for(repository, tag) is None

    def policy_of(self, rule: AssignRule | None) -> Policy | None:
        """Return the policy of a rule, or of unmatched tags if there is none; None if these are kept."""
        if rule is None and self.keeps_unmatched:
            return None
        return self.named[same_name(self.unmatched if rule is None else rule.policy)]
