"""The catalog's question to whoever deletes: what became of this object?"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True)
class Burial:
    """What is known of a deleted object: when it went, by which run and rules, and whether for good."""

    address: str
    since: datetime
    run_id: int
    rules: tuple[str, ...]
    restorable: bool
    until: datetime | None = None
    """Until when it lies in the recycle bin, if it does."""


class Graveyard(Protocol):
    """Knows what runs have deleted; the ledger of runs is one."""

    def lookup(self, repository: str, address: str) -> Burial | None:
        """Say what became of an address of the repository of this name; None if no run deleted it."""
