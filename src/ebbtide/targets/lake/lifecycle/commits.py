"""Step 2: which commits may hold something to delete that no earlier run could."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time

from ebbtide.targets.lake.catalog.model import Commit
from ebbtide.targets.lake.lifecycle.policies import CurrentRule
from ebbtide.targets.lake.metadata.ties import reached_by

_NEVER_POTENTIAL = datetime.max.replace(tzinfo=UTC)
_FROM_THE_BEGINNING = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class PotentialCommit:
    """A commit that may hold addresses which no earlier run could delete, with the branches that reach it."""

    commit_id: str
    branches: tuple[str, ...]


def potential_commits(
    commits: Mapping[str, Commit], branches: Mapping[str, str], rules: Sequence[CurrentRule]
) -> list[PotentialCommit]:
    """
    Find the commits that the dates leave: those after the latest limit among the branches that reach them.

    An object goes only when every branch lets go of it, so a commit that several branches reach is limited by
    the latest of their limits (the seed's intersection). A commit that no branch reaches takes the default.
    """
    limits = _branch_limits(rules)
    names = reached_by(commits, ((head, name, name) for name, head in branches.items()))
    found = []
    for commit_id, commit in sorted(commits.items()):
        reaching = tuple(sorted(names[commit_id]))
        limit = max(_limit_of(name, limits) for name in reaching or ("",))
        if commit.created > limit:
            found.append(PotentialCommit(commit_id, reaching))
    return found


def _branch_limits(rules: Sequence[CurrentRule]) -> dict[str, datetime]:
    """Give each named branch, and "" for the others, its earliest last deleted date; none means all."""
    limits: dict[str, datetime] = {}
    for rule in rules:
        limit = _midnight(rule.last_deleted)
        limits[rule.branch] = min(limits.get(rule.branch, _NEVER_POTENTIAL), limit)
    return limits


def _limit_of(branch: str, limits: Mapping[str, datetime]) -> datetime:
    # The default row concerns every branch, so a named branch is limited by the earlier of the two.
    return min(limits.get(branch, _NEVER_POTENTIAL), limits.get("", _NEVER_POTENTIAL))


def _midnight(day: date | None) -> datetime:
    return _FROM_THE_BEGINNING if day is None else datetime.combine(day, time.min, UTC)
