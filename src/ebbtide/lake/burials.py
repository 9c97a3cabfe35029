"""The graveyard of the catalog's readers: what runs took away, looked up in their outcomes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ebbtide.engine.burials import find_burial
from ebbtide.lake.catalog.graveyard import Burial
from ebbtide.ledger.runs import Ledger


@dataclass(frozen=True)
class RunGraveyard:
    """Knows what the runs of a ledger have deleted."""

    root: Path
    ledger: Ledger

    def lookup(self, repository: str, address: str) -> Burial | None:
        """Say what became of an address of this repository."""
        found = find_burial(self.root, self.ledger, f"lake:{repository}", address)
        if found is None:
            return None
        # There is no recycle bin yet: what a run deletes is gone for good.
        return Burial(found.address, found.since, found.run_id, found.rules, restorable=False)
