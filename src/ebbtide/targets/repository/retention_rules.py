"""
Retention rules: for how long a commit that is no longer the head of a branch keeps what it reaches.

The days of a branch count from the moment at which a commit stopped being its head. Branches that are not
named take the default, and so do commits of deleted branches; without a default they are kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Self

from pydantic import model_validator

from ebbtide.core.documents import (
    BRANCHES,
    Document,
    Flag,
    WholeNumber,
    parse_document,
    refusal,
    validate,
)


@dataclass(frozen=True)
class RetentionRules:
    """For how many days commits are kept after they were heads."""

    default_days: int | None = None
    branch_days: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    tags_protect: bool = True
    """A tagged commit is kept as long as the tag exists; if this is off, a tag keeps nothing."""

    def days_for(self, branch: str) -> int | None:
        """Return the days of a branch; None keeps its commits forever."""
        return self.branch_days.get(branch, self.default_days)


_Days = Annotated[int, WholeNumber("days", "what was a head a moment ago may still be read", "use 1 or more")]


class _RetentionFields(Document):
    example: ClassVar[str] = '{"default_days": 30, "branch_days": {"main": 90}}'

    default_days: _Days | None = None
    branch_days: Annotated[dict[str, _Days] | None, BRANCHES] = None
    tags_protect: Flag = True

    @model_validator(mode="after")
    def _check_days(self) -> Self:
        if self.default_days is None and not self.branch_days:
            raise refusal(
                "neither default_days nor branch_days is given",
                why="it would keep every commit forever",
                fix='give it "default_days"',
            )
        return self


def parse_retention(text: str, fmt: str = "json") -> RetentionRules:
    """Parse a retention document."""
    return retention_rules(parse_document(text, fmt, name="retention"))


def retention_rules(data: Any) -> RetentionRules:
    """Return the retention rules that plain data describes; PolicyError if it is invalid."""
    found = validate(_RetentionFields, data, "retention")
    branch_days = MappingProxyType(dict(sorted((found.branch_days or {}).items())))
    return RetentionRules(found.default_days, branch_days, found.tags_protect)


def retention_text(rules: RetentionRules) -> str:
    """Return the canonical JSON form of retention rules."""
    plain: dict[str, Any] = {"tags_protect": rules.tags_protect}
    if rules.default_days is not None:
        plain["default_days"] = rules.default_days
    if rules.branch_days:
        plain["branch_days"] = dict(rules.branch_days)
    return json.dumps(plain, sort_keys=True)


def retention_hash(rules: RetentionRules) -> str:
    """Return the hash of what retention rules mean."""
    return hashlib.sha256(retention_text(rules).encode()).hexdigest()
