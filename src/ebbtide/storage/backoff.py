"""Back-off: how long to wait before asking a busy store again, and when to give up."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


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
