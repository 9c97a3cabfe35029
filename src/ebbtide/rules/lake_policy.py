"""
The lake policy of seed 000: how long objects under a prefix live, on every branch or on some.

A rule's days count from the midnight UTC that ends the day on which an entry was written, so that
``created <= date_to_be_deleted`` with ``date_to_be_deleted = today - days``, both midnights UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum
from types import MappingProxyType

from ebbtide.rules.deadline import lapse
from ebbtide.rules.instant import days_after, days_before, last_midnight, next_midnight

NOT_COVERED = None
"""A rule says nothing about this kind of referrer: by this rule the reference never lapses."""


class Referrer(StrEnum):
    """What kind of name leads to a commit or a staging entry."""

    BRANCH = "branch"
    STAGING = "staging"
    TAG = "tag"
    DANGLING = "dangling"


@dataclass(frozen=True)
class LakeRule:
    """One rule: objects whose key starts with `prefix` live `days`, or `branch_days` on named branches."""

    id: str
    prefix: str
    days: int | None = None
    enabled: bool = True
    branch_days: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    tag_days: int | None = None
    """By default a tag keeps what it reaches for ever; this lets a tag's references lapse too."""
    recycle_days: int | None = None
    """For so many days what a run finds is set aside before it is deleted; None says nothing about it."""

    def matches(self, key: str) -> bool:
        """Tell whether the rule concerns this key; a prefix is a plain string prefix, as in S3."""
        return key.startswith(self.prefix)

    def days_for(self, referrer: Referrer, name: str) -> int | None:
        """Give the days that a reference of this referrer lives, or None if the rule does not cover it."""
        if referrer is Referrer.TAG:
            return self.tag_days
        if referrer is Referrer.DANGLING:
            return self.days
        return self.branch_days.get(name, self.days)


PolicyClass = tuple[int | None, ...]
"""How one referrer is treated: for each enabled rule of the policy, in order, its days or None."""


@dataclass(frozen=True)
class LakePolicy:
    """A whole policy: the rules in the order of their ids."""

    rules: tuple[LakeRule, ...]

    @property
    def enabled(self) -> tuple[LakeRule, ...]:
        """The rules that are switched on, in order: the columns of a :data:`PolicyClass`."""
        return tuple(rule for rule in self.rules if rule.enabled)

    @property
    def recycle_days(self) -> int | None:
        """For how long a run sets aside what it finds: of what the enabled rules say, the longest."""
        said = [rule.recycle_days for rule in self.enabled if rule.recycle_days is not None]
        return max(said, default=None)

    def class_of(self, referrer: Referrer, name: str = "") -> PolicyClass:
        """Classify a referrer: two that every rule treats alike get the same class."""
        return tuple(rule.days_for(referrer, name) for rule in self.enabled)

    def dates(self, now: datetime) -> list[PolicyDate]:
        """Turn the policy into rows of the policy table for a run at this time."""
        today = last_midnight(now).date()
        rows: list[PolicyDate] = []
        for rule in self.enabled:
            if rule.days is not None:
                rows.append(PolicyDate(rule.id, rule.prefix, "", days_before(today, rule.days)))
            rows += [
                PolicyDate(rule.id, rule.prefix, branch, days_before(today, days))
                for branch, days in sorted(rule.branch_days.items())
            ]
        return rows


@dataclass(frozen=True)
class PolicyDate:
    """A row of the policy table: what was written up to this date goes; an empty branch means all others."""

    rule_id: str
    prefix: str
    branch: str
    date_to_be_deleted: date


def lapses_after(created: datetime, days: int) -> datetime:
    """Give the first midnight UTC at which an entry written then has lived its days."""
    return days_after(next_midnight(created), days)


def reference_lapse(
    policy: LakePolicy, referrer: Referrer, name: str, key: str, created: datetime
) -> datetime:
    """Give the moment one reference lapses, rule by rule: the plain statement of what a policy means."""
    return lapse(
        lapses_after(created, days)
        for rule in policy.enabled
        if rule.matches(key) and (days := rule.days_for(referrer, name)) is not None
    )


def class_days(policy_class: PolicyClass, matched: Iterable[int]) -> int | None:
    """Give the fewest days among the matched rules for a class, None if none of them covers it."""
    return min((days for i in matched if (days := policy_class[i]) is not None), default=NOT_COVERED)
