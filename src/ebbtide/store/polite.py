"""Polite deletes: spread over prefixes, with a token bucket for each, so that readers do not feel them."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ebbtide.errors import BadInput
from ebbtide.store.base import DeleteRequest, DeleteResult, Store

Seconds = Callable[[], float]


@dataclass
class TokenBucket:
    """A bucket that fills with `rate` tokens a second and holds one second's worth."""

    rate: float
    tokens: float
    filled_at: float

    def take(self, count: int, now: float) -> float:
        """
        Take tokens at once and say how many seconds to wait before using them.

        The bucket may go into debt, so a page larger than the bucket waits longer instead of for ever.
        """
        filled = self.tokens + (now - self.filled_at) * self.rate
        self.tokens = min(self.rate, filled) - count
        self.filled_at = now
        return max(0.0, -self.tokens / self.rate)


def prefix_of(key: str) -> str:
    """
    Give the first two folders of a key: the grain at which deletes are counted.

    Stores split their load from the left of the key. Deep folders in their thousands share one such part, so
    a limit on each of them would limit nothing.
    """
    return "/".join(key.split("/")[:-1][:2])


def spread(requests: Iterable[DeleteRequest]) -> Iterator[DeleteRequest]:
    """Order requests in turns over their prefixes, so that no page falls on one prefix alone."""
    queues: dict[str, deque[DeleteRequest]] = {}
    for request in requests:
        queues.setdefault(prefix_of(request.key), deque()).append(request)
    turns = deque(queues.values())
    while turns:
        queue = turns.popleft()
        yield queue.popleft()
        if queue:
            turns.append(queue)


def polite_delete(
    store: Store,
    requests: Sequence[DeleteRequest],
    rate_per_prefix: float,
    page: int,
    clock: Seconds = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[DeleteResult]:
    """Delete page by page, with at most `rate_per_prefix` keys a second of one prefix, and yield results."""
    if rate_per_prefix <= 0 or page < 1:
        raise BadInput(
            f"a rate of {rate_per_prefix} keys a second in pages of {page} deletes nothing",
            fix="use a rate above 0 and pages of 1 or more",
        )
    buckets: dict[str, TokenBucket] = {}
    ordered = list(spread(requests))
    for start in range(0, len(ordered), page):
        part = ordered[start : start + page]
        wait = _wait_for(part, buckets, rate_per_prefix, clock())
        if wait > 0:
            sleep(wait)
        yield from store.delete(part)


def _wait_for(
    part: Sequence[DeleteRequest], buckets: dict[str, TokenBucket], rate: float, now: float
) -> float:
    """Take the tokens of a page and say how long its slowest prefix must wait."""
    counts = Counter(prefix_of(request.key) for request in part)
    return max(
        buckets.setdefault(prefix, TokenBucket(rate, rate, now)).take(count, now)
        for prefix, count in counts.items()
    )
