"""Rate limits: a token bucket per prefix for deletes and moves, and back-off when a store is busy."""

from __future__ import annotations

import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import TypeVar

from ebbtide.core.errors import BadInput
from ebbtide.storage.store import DeleteRequest, DeleteResult, MoveRequest, Store


@dataclass(frozen=True)
class Backoff:
    """Exponential back-off with full jitter: random waits keep many executors from asking in step."""

    tries: int = 6
    first: float = 0.2
    longest: float = 10.0
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)
    draw: Callable[[float, float], float] = field(default=random.uniform, repr=False)

    def attempts(self) -> Iterator[int]:
        """Count the tries and wait before each but the first."""
        for attempt in range(self.tries):
            if attempt:
                self.sleep(self.draw(0.0, min(self.longest, self.first * 2 ** (attempt - 1))))
            yield attempt


T = TypeVar("T")

Seconds = Callable[[], float]


@dataclass
class TokenBucket:
    """A bucket that fills with `rate` tokens per second and holds the tokens of one second."""

    rate: float
    tokens: float
    filled_at: float

    def take(self, count: int, now: float) -> float:
        """
        Take tokens and return how many seconds to wait before using them.

        The bucket may go into debt, so a page larger than the bucket waits longer instead of forever.
        """
        filled = self.tokens + (now - self.filled_at) * self.rate
        self.tokens = min(self.rate, filled) - count
        self.filled_at = now
        return max(0.0, -self.tokens / self.rate)


def prefix_of(key: str) -> str:
    """
    Return the first two folders of a key, for which deletes are counted.

    Stores split their load by the beginning of keys. Thousands of deep folders share one such part, so a
    limit per deep folder would limit nothing.
    """
    return "/".join(key.split("/")[:-1][:2])


def spread(requests: Iterable[DeleteRequest]) -> Iterator[DeleteRequest]:
    """Order requests round-robin over their prefixes, so that no page hits one prefix only."""
    return in_turns(requests, lambda request: prefix_of(request.key))


def in_turns(things: Iterable[T], prefix: Callable[[T], str]) -> Iterator[T]:
    """Order things round-robin over their prefixes, keeping the order within a prefix."""
    queues: dict[str, deque[T]] = {}
    for thing in things:
        queues.setdefault(prefix(thing), deque()).append(thing)
    turns = deque(queues.values())
    while turns:
        queue = turns.popleft()
        yield queue.popleft()
        if queue:
            turns.append(queue)


class Pace:
    """Keeps all threads of a task together below a rate per prefix."""

    def __init__(
        self, rate: float, clock: Seconds = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        if rate <= 0:
            raise BadInput(f"at {rate} keys per second nothing is ever deleted", fix="use a rate above 0")
        self._rate, self._clock, self._sleep = rate, clock, sleep
        self._buckets: dict[str, TokenBucket] = {}
        self._lock = Lock()

    def wait(self, keys: Iterable[str]) -> None:
        """Take the tokens of some keys and wait until the slowest of their prefixes has them."""
        counts = Counter(map(prefix_of, keys))
        with self._lock:
            now = self._clock()
            waits = [self._bucket(prefix, now).take(count, now) for prefix, count in counts.items()]
        longest = max(waits, default=0.0)
        if longest > 0:
            self._sleep(longest)

    def _bucket(self, prefix: str, now: float) -> TokenBucket:
        return self._buckets.setdefault(prefix, TokenBucket(self._rate, self._rate, now))


def polite_delete(
    store: Store,
    requests: Sequence[DeleteRequest],
    rate_per_prefix: float,
    page: int,
    clock: Seconds = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[DeleteResult]:
    """Delete page by page, at most `rate_per_prefix` keys per second per prefix, and yield results."""
    if rate_per_prefix <= 0 or page < 1:
        raise BadInput(
            f"a rate of {rate_per_prefix} keys per second in pages of {page} deletes nothing",
            fix="use a rate above 0 and pages of 1 or more",
        )
    pace = Pace(rate_per_prefix, clock, sleep)
    ordered = list(spread(requests))
    for start in range(0, len(ordered), page):
        part = ordered[start : start + page]
        pace.wait(request.key for request in part)
        yield from store.delete(part)


def polite_move(
    store: Store, requests: Sequence[MoveRequest], rate_per_prefix: float, page: int
) -> Iterator[DeleteResult]:
    """Move page by page at the same rate as deletes, and yield results."""
    pace = Pace(rate_per_prefix)
    ordered = list(in_turns(requests, lambda request: prefix_of(request.source)))
    for start in range(0, len(ordered), page):
        part = ordered[start : start + page]
        pace.wait(request.source for request in part)
        yield from store.move(part)
