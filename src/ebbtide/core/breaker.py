"""
The breaker: a plan that is larger than expected must be confirmed explicitly.

It compares parts of a target, each with what a plan deletes of it. Items that became due by plain ageing,
under rules that have done the same before, are *routine*. They are expected, so a part is measured without
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ebbtide.core.errors import BreakerTripped
from ebbtide.core.manifest import Manifest, Summary

SHARES, ROUTINE = "shares", "routine"
"""The keys of a manifest for what the breaker compares, and for what is routine in the next plan."""


@dataclass(frozen=True)
class BreakerLimits:
    """How much of a target one plan may delete."""

    max_delete_fraction: float = 0.5
    max_delete_bytes: int | None = None
    min_objects: int = 100
    """Below this many objects a fraction says nothing; an emptied target still trips."""


@dataclass(frozen=True)
class Share:
    """A part of a target, and what a plan deletes of it."""

    of: str
    """What the part consists of, in the plural, with what it belongs to."""
    due: int
    known: int
    """How many items the part has, due ones included."""
    routine: int = 0
    """How many of the due items are routine."""

    @property
    def fraction(self) -> float:
        """How much the plan deletes of what routine leaves."""
        left = self.known - self.routine
        return (self.due - self.routine) / left if left else 0.0

    def trip_reason(self, limits: BreakerLimits) -> str:
        """Return why this share is larger than expected; empty if it is not."""
        if self.due <= self.routine:
            return ""
        left = self.known - self.routine
        if self.due >= self.known:
            all_of_it = f"the only one of the {self.of}" if left == 1 else f"all {left} {self.of}"
            return f"it deletes {all_of_it}{self._aside()}; nothing would be left"
        if left >= limits.min_objects and self.fraction > limits.max_delete_fraction:
            limit = f"the limit is {limits.max_delete_fraction:.0%}"
            return f"it deletes {self.fraction:.0%} of the {left} {self.of}{self._aside()}, {limit}"
        return ""

    def _aside(self) -> str:
        return f" (not counting {self.routine} that became due since the last run)" if self.routine else ""


@dataclass(frozen=True)
class PlanSize:
    """What the breaker measures."""

    shares: tuple[Share, ...]
    due_bytes: int


@dataclass(frozen=True)
class Routine:
    """The conditions under which a due item is routine."""

    since: datetime
    """When the last run by the same policy was planned; items that were already due then are not routine."""
    acts: frozenset[str]
    """Pairs of action and rule that occurred in successful runs by this policy."""


def plan_size(summary: Summary, extra: dict[str, Any], target: str) -> PlanSize:
    """Return what the breaker measures; a manifest without shares has one: the known objects."""
    deleted = summary.deleted
    known = (Share(f"known objects of {target}", deleted.objects, summary.known_objects),)
    named = tuple(Share(**share) for share in extra.get(SHARES, ()))
    return PlanSize(named or known, deleted.bytes)


def routine_after(last: Manifest | None, policy_hash: str) -> Routine | None:
    """
    Return what is routine after the last successful run.

    None if there was no such run or its policy differs: what a new or changed policy makes due may be a
    mistake.
    """
    if last is None or last.policy_hash != policy_hash:
        return None
    return Routine(last.now, frozenset(last.extra.get(ROUTINE, ())))


def trip_reasons(size: PlanSize, limits: BreakerLimits) -> list[str]:
    """Return the reasons why a plan is larger than expected; none if it is not."""
    reasons = [reason for share in size.shares if (reason := share.trip_reason(limits))]
    if limits.max_delete_bytes is not None and size.due_bytes > limits.max_delete_bytes:
        reasons.append(f"it deletes {size.due_bytes} bytes, the limit is {limits.max_delete_bytes}")
    return reasons


def check_breaker(reasons: Sequence[str], *, override: bool) -> None:
    """Stop a plan that trips the breaker, unless it was overridden on purpose."""
    if reasons and not override:
        raise BreakerTripped(
            "the breaker stopped this plan: " + "; ".join(reasons),
            why="a plan this large is more often a mistake than a wish",
            fix="look at 'ebb plan show'; if it is right, apply with --override-breaker",
        )
