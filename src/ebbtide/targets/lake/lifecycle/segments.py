"""
Judging a range without looking at its rows one by one.

A range's keys are sorted, so the keys that a prefix matches are one slice of it, found by bisection. The
prefixes of all rules cut a range into a few *segments* inside which every key meets the same rules, and the
policy is evaluated once a segment, by the same pure functions that define what it means.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ebbtide.core.decision import HoldReason
from ebbtide.targets.lake.metadata.ties import Tie
from ebbtide.targets.repository.policy import Referrer, class_days


@dataclass(frozen=True)
class Segment:
    """The rows from `start` up to `stop`, which meet the same rules."""

    start: int
    stop: int
    matched: tuple[int, ...]


@dataclass(frozen=True)
class Verdict:
    """What the rules say of a segment's keys, given everyone who reaches the range."""

    touched: bool
    """A rule matches at least one of the references."""
    days: int | None
    """How long the longest-lived reference lives; None keeps for ever."""
    holder: Tie
    """The reference that lives longest."""
    rules: tuple[int, ...]
    """The rules that cover at least one of the references."""


def cut(keys: Sequence[str], prefixes: Sequence[str]) -> list[Segment]:
    """Cut sorted keys into segments by the prefixes that match them."""
    slices = [prefix_slice(keys, prefix) for prefix in prefixes]
    edges = sorted({0, len(keys), *(edge for lo, hi in slices for edge in (lo, hi))})
    return [
        Segment(a, b, tuple(i for i, (lo, hi) in enumerate(slices) if lo <= a and b <= hi))
        for a, b in pairwise(edges)
    ]


def prefix_slice(keys: Sequence[str], prefix: str) -> tuple[int, int]:
    """Find the slice of sorted keys that start with a prefix."""
    size = len(prefix)

    def head(key: str) -> str:
        return key[:size]

    return bisect_left(keys, prefix, key=head), bisect_right(keys, prefix, key=head)


def judge(matched: Sequence[int], ties: Sequence[Tie]) -> Verdict:
    """Evaluate the rules that match a segment for everyone who reaches it: the latest lapse wins."""
    lives = [class_days(tie.days, matched) for tie in ties]
    rules = tuple(i for i in matched if any(tie.days[i] is not None for tie in ties))
    for_ever = [tie for tie, days in zip(ties, lives, strict=True) if days is None]
    if for_ever:
        return Verdict(bool(rules), None, for_ever[0], rules)
    longest = max(days for days in lives if days is not None)
    holder = next(tie for tie, days in zip(ties, lives, strict=True) if days == longest)
    return Verdict(True, longest, holder, rules)


def hold_reason(verdict: Verdict, matched: Sequence[int]) -> HoldReason:
    """Say why a reference with this verdict keeps its item, as long as it does."""
    if verdict.days is not None:
        return HoldReason.NOT_YET
    if verdict.holder.referrer is Referrer.TAG:
        return HoldReason.TAG
    if verdict.holder.referrer is Referrer.DANGLING:
        return HoldReason.DANGLING
    if verdict.holder.referrer is Referrer.STAGING:
        return HoldReason.STAGED
    return HoldReason.BRANCH if matched else HoldReason.OTHER_PATH


def holder_text(tie: Tie) -> str:
    """Name a referrer in words; a key goes before it."""
    words = {
        Referrer.BRANCH: "on branch",
        Referrer.STAGING: "staged on branch",
        Referrer.TAG: "under tag",
        Referrer.DANGLING: "in dangling commit",
    }
    return f"{words[tie.referrer]} {tie.name}"
