"""
Which request meets which fault: a frozen plan, drawn from a seed.

Every answer here depends on the seed and on the request alone: what it does, to which key, and how many times
it came before. Neither time nor the order of threads has a part in it, so a seed can be played again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import TypeVar

T = TypeVar("T")


class Operation(StrEnum):
    """What a request asks for."""

    LIST = "list"
    GET = "get"
    HEAD = "head"
    PUT = "put"
    COPY = "copy"
    DELETE = "delete"
    BULK = "bulk delete"

    @property
    def has_effect(self) -> bool:
        """Tell whether it changes the store."""
        return self in {Operation.PUT, Operation.COPY, Operation.DELETE, Operation.BULK}


class Fault(StrEnum):
    """What a store can do wrong."""

    SLOW_DOWN = "503 before the effect"
    BROKEN = "500 before the effect"
    RESET = "connection reset before the effect"
    LOST = "done, and the answer lost"
    CUT = "the answer broken off"
    REFUSED = "a key refused inside a 200"
    TWICE = "a key twice on a page"
    OVERLAP = "a page that begins with the end of the last"
    EMPTY = "an empty page before more"
    GHOST = "a key listed that is gone"
    HIDDEN = "a new key not listed"


@dataclass(frozen=True)
class FaultPlan:
    """Shares from 0 to 1, each of the requests (or keys, or pages) that meet a fault; all 0 is no trouble."""

    seed: int = 0
    slow: float = 0.0
    stuck: float = 0.0
    """Of the keys: the store is too busy for them at every try."""
    broken: float = 0.0
    reset: float = 0.0
    lost: float = 0.0
    cut: float = 0.0
    refused: float = 0.0
    """Of the keys in a bulk delete, at each try: InternalError, SlowDown or AccessDenied."""
    locked: float = 0.0
    """Of the keys in a bulk delete: AccessDenied at every try."""
    page: int = 0
    """The most keys on a page of a listing; 0 leaves them to the server, and the next four out."""
    empty: float = 0.0
    twice: float = 0.0
    overlap: float = 0.0
    stale: float = 0.0
    """Of the keys that were written or deleted under this plan: listings do not show it yet."""
    skew_hours: int = 0
    """How far the server's clock may be off, either way."""

    def trouble(self, operation: Operation, name: str, seen: int) -> Fault | None:
        """Say what happens to a whole request that was seen so many times before."""
        if operation is not Operation.BULK and self._is_stuck(name):
            return Fault.SLOW_DOWN
        shares = {Fault.SLOW_DOWN: self.slow, Fault.BROKEN: self.broken, Fault.RESET: self.reset}
        if operation.has_effect:
            shares[Fault.LOST] = self.lost
        elif operation is not Operation.HEAD:
            shares[Fault.CUT] = self.cut
        return next(
            (f for f, share in shares.items() if self._happens(share, f, operation, name, seen)), None
        )

    def refusal(self, key: str, seen: int) -> str:
        """Give the code with which a bulk delete refuses a key, or nothing."""
        if self._happens(self.locked, "locked", key):
            return "AccessDenied"
        if self._is_stuck(key):
            return "SlowDown"
        if self._happens(self.refused, Fault.REFUSED, key, seen):
            return self._pick(("InternalError", "SlowDown", "AccessDenied"), "code", key, seen)
        return ""

    def on_page(self, fault: Fault, name: str, seen: int) -> bool:
        """Tell whether a page of a listing has a fault of a kind."""
        shares = {Fault.EMPTY: self.empty, Fault.TWICE: self.twice, Fault.OVERLAP: self.overlap}
        return self._happens(shares[fault], fault, name, seen)

    def is_stale(self, key: str, seen: int) -> bool:
        """Tell whether a listing has not heard yet of what became of a key."""
        return self._happens(self.stale, "stale", key, seen)

    def skew(self, name: str, seen: int) -> timedelta:
        """Say how far the server's clock is off in one answer."""
        hours = range(-self.skew_hours, self.skew_hours + 1)
        return timedelta(hours=int(self._pick(hours, "skew", name, seen)))

    def of_seed(self, seed: int) -> FaultPlan:
        """Give the plan with the same shares and another seed."""
        return replace(self, seed=seed)

    def _is_stuck(self, name: str) -> bool:
        return self._happens(self.stuck, "stuck", name)

    def _happens(self, share: float, *words: object) -> bool:
        return self._draw(*words) < share

    def _pick(self, choices: Sequence[T], *words: object) -> T:
        return choices[int(self._draw(*words) * len(choices))]

    def _draw(self, *words: object) -> float:
        """Draw from [0, 1) by hashing: unlike a generator, it has no state that threads could race for."""
        text = "\0".join(map(str, (self.seed, *words)))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6]) / 2**48


NO_FAULTS = FaultPlan()
PRESETS = {
    "busy": FaultPlan(slow=0.2, broken=0.05, reset=0.05),
    "stuck": FaultPlan(slow=0.05, stuck=0.08),
    "refusing": FaultPlan(refused=0.3, locked=0.05),
    "forgetful": FaultPlan(lost=0.35, cut=0.1),
    "listing": FaultPlan(page=3, empty=0.25, twice=0.25, overlap=0.25, cut=0.05),
    "stale": FaultPlan(page=3, stale=0.5),
    "skewed": FaultPlan(page=4, skew_hours=30),
    "storm": FaultPlan(
        slow=0.06,
        stuck=0.01,
        broken=0.04,
        reset=0.04,
        lost=0.1,
        cut=0.05,
        refused=0.1,
        locked=0.02,
        page=3,
        empty=0.1,
        twice=0.1,
        overlap=0.1,
        skew_hours=12,
    ),
}
