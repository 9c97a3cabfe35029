"""
Retention of committed data: for how long a commit that is no longer a branch's head keeps what it reaches.

A branch's days count from the moment at which a commit stopped being its head. Branches that are not named
take the default, as do the commits of branches that were deleted; where there is no default they are kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ebbtide.errors import PolicyError
from ebbtide.rules.documents import nearest, parse_document, whole_days

FIELDS = ("default_days", "branch_days", "tags_protect")


@dataclass(frozen=True)
class RetentionRules:
    """How many days commits live on after they were heads."""

    default_days: int | None = None
    branch_days: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    tags_protect: bool = True
    """A tagged commit is kept as long as the tag is there; switched off, a tag keeps nothing."""

    def days_for(self, branch: str) -> int | None:
        """Give the days of a branch; None keeps its commits for ever."""
        return self.branch_days.get(branch, self.default_days)


def parse_retention(text: str, fmt: str = "json") -> RetentionRules:
    """Read a retention document."""
    return retention_rules(parse_document(text, fmt, name="retention"))


def retention_rules(data: Any) -> RetentionRules:
    """Check plain data, as JSON gives it, and make retention rules of it."""
    if not isinstance(data, dict):
        raise PolicyError(
            "retention is not a table", fix='write {"default_days": 30, "branch_days": {"main": 90}}'
        )
    for name in data:
        if name not in FIELDS:
            raise PolicyError(f"retention: unknown field {name!r}", fix=nearest(str(name), FIELDS))
    default = data.get("default_days")
    named = {} if data.get("branch_days") is None else data["branch_days"]
    if not isinstance(named, dict) or "" in named:
        raise PolicyError(
            "retention: branch_days is not a table of branches", fix='write "branch_days": {"main": 90}'
        )
    if default is None and not named:
        raise PolicyError(
            "retention has neither default_days nor branch_days",
            why="it would keep every commit for ever",
            fix='give it "default_days"',
        )
    protect = data.get("tags_protect", True)
    if not isinstance(protect, bool):
        raise PolicyError(f"retention: tags_protect is {protect!r}", fix="write true or false")
    return RetentionRules(
        None if default is None else _days("default_days", default),
        MappingProxyType(
            {str(name): _days(f"branch_days[{name!r}]", days) for name, days in sorted(named.items())}
        ),
        protect,
    )


def retention_text(rules: RetentionRules) -> str:
    """Write retention rules in their one canonical JSON form."""
    plain: dict[str, Any] = {"tags_protect": rules.tags_protect}
    if rules.default_days is not None:
        plain["default_days"] = rules.default_days
    if rules.branch_days:
        plain["branch_days"] = dict(rules.branch_days)
    return json.dumps(plain, sort_keys=True)


def retention_hash(rules: RetentionRules) -> str:
    """Name retention rules by their meaning."""
    return hashlib.sha256(retention_text(rules).encode()).hexdigest()


def _days(name: str, value: Any) -> int:
    why = "what was a head a moment ago may still be read"
    return whole_days(f"retention: {name}", value, why=why, fix="use 1 or more")
