"""
The lifecycle policy of seed 000: how long objects under a prefix live, on every branch or on some.

A rule's days count from the midnight UTC that ends the day on which an entry was written, so that
``created <= date_to_be_deleted`` with ``date_to_be_deleted = today - days``, both midnights UTC.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, model_validator

from ebbtide.core.deadline import lapse
from ebbtide.core.documents import (
    BRANCHES,
    Document,
    Fix,
    Flag,
    WholeNumber,
    parse_document,
    refusal,
    shown,
    validate,
)
from ebbtide.core.errors import PolicyError
from ebbtide.core.instant import days_after, days_before, last_midnight, next_midnight

NOT_COVERED = None
"""The rule does not apply to this kind of referrer: by this rule the reference never lapses."""


class ReferrerKind(StrEnum):
    """What reaches a commit or a staged entry."""

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
    """By default a tag keeps what it reaches forever; this lets a tag's references lapse too."""
    recycle_days: int | None = None
    """For how many days items stay in the recycle bin; None leaves that to other settings."""

    def matches(self, key: str) -> bool:
        """Return True if the rule matches this key; a prefix is a plain string prefix, as in S3."""
        return key.startswith(self.prefix)

    def days_for(self, referrer: ReferrerKind, name: str) -> int | None:
        """Return for how many days a reference of this referrer lives; None if the rule does not cover it."""
        if referrer is ReferrerKind.TAG:
            return self.tag_days
        if referrer is ReferrerKind.DANGLING:
            return self.days
        return self.branch_days.get(name, self.days)


PolicyClass = tuple[int | None, ...]
"""The days of one referrer by each enabled rule of the policy, in order; None where it is not covered."""


@dataclass(frozen=True)
class LakePolicy:
    """A whole policy: the rules in the order of their ids."""

    rules: tuple[LakeRule, ...]

    @property
    def enabled(self) -> tuple[LakeRule, ...]:
        """The enabled rules, in order: the columns of a :data:`PolicyClass`."""
        return tuple(rule for rule in self.rules if rule.enabled)

    @property
    def recycle_days(self) -> int | None:
        """For how many days a run keeps items in the recycle bin: the longest of the enabled rules."""
        said = [rule.recycle_days for rule in self.enabled if rule.recycle_days is not None]
        return max(said, default=None)

    def class_of(self, referrer: ReferrerKind, name: str = "") -> PolicyClass:
        """Return the class of a referrer: two that every rule treats alike have the same class."""
        return tuple(rule.days_for(referrer, name) for rule in self.enabled)

    def dates(self, now: datetime) -> list[PolicyDate]:
        """Return the rows of the policy table for a run at this time."""
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
    """A row of the policy table: up to which date entries lapse; an empty branch means all others."""

    rule_id: str
    prefix: str
    branch: str
    date_to_be_deleted: date


@dataclass(frozen=True)
class PolicyRun:
    """A run as the policy table sees it: when it was, and its policy."""

    run_id: int
    now: datetime
    policy: LakePolicy
    succeeded: bool
    """Only a run that succeeded has deleted what its policy says."""


def lapses_after(created: datetime, days: int) -> datetime:
    """Return the first midnight UTC at which an entry has lived its days."""
    return days_after(next_midnight(created), days)


def reference_lapse(
    policy: LakePolicy, referrer: ReferrerKind, name: str, key: str, created: datetime
) -> datetime:
    """Return when one reference lapses, rule by rule: the plain definition of a policy."""
    return lapse(
        lapses_after(created, days)
        for rule in policy.enabled
        if rule.matches(key) and (days := rule.days_for(referrer, name)) is not None
    )


def class_days(policy_class: PolicyClass, matched: Iterable[int]) -> int | None:
    """Return the fewest days of a class over the matched rules; None if none of them covers it."""
    return min((days for i in matched if (days := policy_class[i]) is not None), default=NOT_COVERED)


_Days = WholeNumber(
    "days", "an object cannot live less than a day", "use 1 or more; to stop a rule set enabled to false"
)
_RecycleDays = WholeNumber(
    "days",
    "less than a day is too short to miss an object and restore it",
    "use 1 or more; leave recycle out to delete at once",
)


class _RecycleFields(Document):
    example: ClassVar[str] = '{"days": 14}'

    days: Annotated[int, _RecycleDays]


def _not_null(value: Any) -> Any:
    if value is None:
        raise refusal(fix=f"leave it out, or write {_RecycleFields.example}")
    return value


class _RuleFields(Document):
    example: ClassVar[str] = '{"prefix": "raw/", "days": 30, "branch_days": {"dev": 3}}'
    why_required: ClassVar[str] = 'it would match everything, which must be written as "prefix": ""'

    prefix: Annotated[str, Fix('write "prefix": "raw/"')]
    days: Annotated[int, _Days] | None = None
    enabled: Flag = True
    branch_days: Annotated[dict[str, Annotated[int, _Days]] | None, BRANCHES] = None
    tag_days: Annotated[int | None, _Days] = None
    recycle: Annotated[_RecycleFields | None, BeforeValidator(_not_null)] = None

    @model_validator(mode="after")
    def _check_days(self) -> Self:
        if self.days is None and not self.branch_days:
            raise refusal(
                "neither days nor branch_days is given",
                why="it would never delete anything",
                fix="give it days, branch_days, or remove it",
            )
        return self


def parse_lake_policy(text: str, fmt: str = "json") -> LakePolicy:
    """Parse a policy document; the same rules in another format give the same policy."""
    return lake_policy(parse_document(text, fmt))


def lake_policy(data: Any) -> LakePolicy:
    """Return the policy that plain data, as JSON gives it, describes; PolicyError if it is invalid."""
    if not isinstance(data, dict):
        fix = 'write {"rule1": {"prefix": "raw/", "days": 30}}'
        raise PolicyError(f"a policy is a table of rules, this is {shown(data)}", fix=fix)
    return LakePolicy(tuple(_rule(str(rule_id), body) for rule_id, body in sorted(data.items())))


def _rule(rule_id: str, body: Any) -> LakeRule:
    if not rule_id.strip():
        raise PolicyError("a rule has an empty id", fix="give every rule a name of its own")
    fields = validate(_RuleFields, body, f"rule {rule_id!r}")
    return LakeRule(
        rule_id,
        fields.prefix,
        fields.days,
        fields.enabled,
        MappingProxyType(dict(sorted((fields.branch_days or {}).items()))),
        fields.tag_days,
        None if fields.recycle is None else fields.recycle.days,
    )


def policy_warnings(policy: LakePolicy) -> tuple[str, ...]:
    """Return what a careful reader of the policy would ask about."""
    return tuple(f"rule {rule.id!r} matches everything" for rule in policy.enabled if rule.prefix == "")


def policy_text(policy: LakePolicy) -> str:
    """Return the canonical JSON form of a policy."""
    return json.dumps({rule.id: _plain(rule) for rule in policy.rules}, sort_keys=True)


def policy_hash(policy: LakePolicy) -> str:
    """Return the hash of what a policy means: formats, order and explicit defaults do not matter."""
    return hashlib.sha256(policy_text(policy).encode()).hexdigest()


def _plain(rule: LakeRule) -> dict[str, Any]:
    plain: dict[str, Any] = {"prefix": rule.prefix, "enabled": rule.enabled}
    if rule.days is not None:
        plain["days"] = rule.days
    if rule.branch_days:
        plain["branch_days"] = dict(rule.branch_days)
    if rule.tag_days is not None:
        plain["tag_days"] = rule.tag_days
    if rule.recycle_days is not None:
        plain["recycle"] = {"days": rule.recycle_days}
    return plain
