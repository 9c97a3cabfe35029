"""The rules of a run on a repository: its collectors, and the rules of each of them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ebbtide.core.decision import CollectorName
from ebbtide.core.errors import PolicyError
from ebbtide.targets.repository.policy import (
    LakePolicy,
    lake_policy,
    parse_lake_policy,
    policy_hash,
    policy_text,
)
from ebbtide.targets.repository.protocol import RuleSource
from ebbtide.targets.repository.retention_rules import (
    RetentionRules,
    parse_retention,
    retention_rules,
    retention_text,
)

GRACE = timedelta(hours=24)
CLEAN_EVERY = 7


@dataclass(frozen=True)
class SweepRules:
    """The rules of a sweep for uncommitted garbage."""

    grace: timedelta = GRACE
    """How old an object must be before it can be garbage: at least as long as uploads may take."""
    branch: str | None = None
    """The branch whose path is swept; None sweeps the whole repository."""
    clean: bool = False
    """List everything, whatever earlier runs have listed."""
    clean_every: int = CLEAN_EVERY
    """One run in this many lists everything, to find what the others cannot see."""


@dataclass(frozen=True)
class RepositoryRules:
    """The rules of each collector; None if the collector does not take part."""

    lifecycle: LakePolicy | None = None
    uncommitted: SweepRules | None = None
    retention: RetentionRules | None = None

    @property
    def collectors(self) -> tuple[CollectorName, ...]:
        """The collectors that take part, in order."""
        return tuple(one for one in CollectorName if getattr(self, one) is not None)

    @property
    def name(self) -> str:
        """The names of the collectors, joined, for the ledger and the manifest."""
        return "+".join(self.collectors)

    @property
    def policy(self) -> LakePolicy:
        """The lifecycle policy; one without rules if lifecycle does not take part."""
        return self.lifecycle or LakePolicy(())

    @property
    def text(self) -> str:
        """The canonical form of the rules: for lifecycle alone, its policy."""
        if self.lifecycle is not None and len(self.collectors) == 1:
            return policy_text(self.lifecycle)
        return json.dumps(self._plain(), sort_keys=True)

    @property
    def hash(self) -> str:
        """The hash of what the rules mean."""
        if self.lifecycle is not None and len(self.collectors) == 1:
            return policy_hash(self.lifecycle)
        return hashlib.sha256(self.text.encode()).hexdigest()

    def _plain(self) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        if self.lifecycle is not None:
            plain["lifecycle"] = json.loads(policy_text(self.lifecycle))
        if self.uncommitted is not None:
            # Whether a run is clean is not part of the meaning: both kinds find garbage by the same rules.
            seconds = self.uncommitted.grace.total_seconds()
            plain["uncommitted"] = {"grace_seconds": seconds, "branch": self.uncommitted.branch}
        if self.retention is not None:
            plain["retention"] = json.loads(retention_text(self.retention))
        return plain


def parse_rules(text: str, name: str) -> RepositoryRules:
    """Parse the rules of a run, given the names of its collectors."""
    if name == CollectorName.LIFECYCLE:
        return RepositoryRules(lifecycle=parse_lake_policy(text))
    plain = json.loads(text)
    swept = plain.get("uncommitted")
    return RepositoryRules(
        lifecycle=lake_policy(plain["lifecycle"]) if "lifecycle" in plain else None,
        uncommitted=SweepRules(timedelta(seconds=swept["grace_seconds"]), swept["branch"]) if swept else None,
        retention=retention_rules(plain["retention"]) if "retention" in plain else None,
    )


def stored_rules(
    source: RuleSource,
    *,
    lifecycle: bool = False,
    uncommitted: SweepRules | None = None,
    retention: bool = False,
) -> RepositoryRules:
    """Read a repository's rules for these collectors; PolicyError if they are unset or invalid."""
    return RepositoryRules(
        lifecycle=stored_policy(source) if lifecycle else None,
        uncommitted=uncommitted,
        retention=stored_retention(source) if retention else None,
    )


def current_rules(source: RuleSource, planned: RepositoryRules) -> RepositoryRules:
    """Read the rules as they are now, for the collectors of a plan."""
    return stored_rules(
        source,
        lifecycle=planned.lifecycle is not None,
        uncommitted=planned.uncommitted,
        retention=planned.retention is not None,
    )


def every_rule(source: RuleSource) -> RepositoryRules:
    """Read all rules of a repository; it may have none."""
    return stored_rules(
        source, lifecycle=source.policy() is not None, retention=source.retention() is not None
    )


def stored_policy(source: RuleSource) -> LakePolicy:
    """Read a repository's lifecycle policy; PolicyError if it is unset or invalid."""
    return parse_lake_policy(*_stored(source, source.policy(), "policy", "lifecycle policy"))


def stored_retention(source: RuleSource) -> RetentionRules:
    """Read a repository's retention rules; PolicyError if they are unset or invalid."""
    return parse_retention(*_stored(source, source.retention(), "retention", "retention rules"))


def _stored(source: RuleSource, found: tuple[str, str] | None, command: str, what: str) -> tuple[str, str]:
    if found is None:
        raise PolicyError(
            f"repository {source.name!r} has no {what}",
            why="nothing may be deleted without",
            fix=f"set it with '{source.command} {command} set {source.name} FILE'",
        )
    return found
