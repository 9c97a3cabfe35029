"""The breaker: a plan that is larger than expected needs somebody to say so."""

from __future__ import annotations

from dataclasses import dataclass

from ebbtide.errors import BreakerTripped


@dataclass(frozen=True)
class BreakerLimits:
    """How much of a target one plan may delete."""

    max_delete_fraction: float = 0.5
    max_delete_bytes: int | None = None
    min_objects: int = 100
    """Below this many objects a fraction says nothing; an emptied target still trips."""


@dataclass(frozen=True)
class PlanSize:
    """What the breaker looks at."""

    due_objects: int
    due_bytes: int
    known_objects: int
    """Distinct objects that any reference names, due ones included."""

    @property
    def fraction(self) -> float:
        """The part of the target's objects that the plan deletes."""
        return self.due_objects / self.known_objects if self.known_objects else 0.0


def trip_reasons(size: PlanSize, limits: BreakerLimits) -> list[str]:
    """Say in words why a plan is larger than expected; nothing to say means it is not."""
    reasons = []
    if size.due_objects and size.due_objects >= size.known_objects:
        all_of_it = (
            "the only known object" if size.known_objects == 1 else f"all {size.known_objects} known objects"
        )
        reasons.append(f"it deletes {all_of_it}; nothing would be left")
    elif size.known_objects >= limits.min_objects and size.fraction > limits.max_delete_fraction:
        reasons.append(
            f"it deletes {size.fraction:.0%} of {size.known_objects} objects,"
            f" the limit is {limits.max_delete_fraction:.0%}"
        )
    if limits.max_delete_bytes is not None and size.due_bytes > limits.max_delete_bytes:
        reasons.append(f"it deletes {size.due_bytes} bytes, the limit is {limits.max_delete_bytes}")
    return reasons


def check_breaker(reasons: list[str], *, override: bool) -> None:
    """Stop a plan that trips the breaker, unless it was overridden on purpose."""
    if reasons and not override:
        raise BreakerTripped(
            "the breaker stopped this plan: " + "; ".join(reasons),
            why="a plan this large is more often a mistake than a wish",
            fix="look at 'ebb plan show'; if it is right, apply with --override-breaker",
        )
