"""Kinds of runs: which collectors each asks, and by which rules."""

from __future__ import annotations

from enum import StrEnum

from ebbtide.core.decision import CollectorName
from ebbtide.targets.repository.policy import LakePolicy
from ebbtide.targets.repository.retention_rules import RetentionRules
from ebbtide.targets.repository.rules import RepositoryRules, SweepRules


class Kind(StrEnum):
    """What a run looks for, and how."""

    LIFECYCLE = "lifecycle"
    CLEAN = "clean"
    OPTIMIZED = "optimized"
    RETENTION = "retention"
    ALL = "all"
    """All three at once; uncommitted garbage as an optimized run does."""

    def rules(self, policy: LakePolicy, retention: RetentionRules) -> RepositoryRules:
        """Give the rules of such a run."""
        sweeps = self in (Kind.CLEAN, Kind.OPTIMIZED, Kind.ALL)
        return RepositoryRules(
            lifecycle=policy if self in (Kind.LIFECYCLE, Kind.ALL) else None,
            uncommitted=SweepRules(clean=self is Kind.CLEAN) if sweeps else None,
            retention=retention if self in (Kind.RETENTION, Kind.ALL) else None,
        )

    @property
    def sweeps(self) -> bool:
        """Tell whether uncommitted garbage is looked for."""
        return CollectorName.UNCOMMITTED in self.rules(LakePolicy(()), RetentionRules()).collectors
