"""The workshop: what every job on a lake works with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ebbtide.core.instant import Clock
from ebbtide.engine.collector import Context
from ebbtide.state.runs import Ledger
from ebbtide.targets.lake.catalog.catalog import Catalog


@dataclass(frozen=True)
class Workshop:
    """What a job works with: the catalog it looks after, the ledger it keeps, the folder it writes to."""

    catalog: Catalog
    ledger: Ledger
    root: Path
    clock: Clock

    @property
    def context(self) -> Context:
        """The state that runs work with."""
        return Context(self.root, self.ledger, self.clock)
