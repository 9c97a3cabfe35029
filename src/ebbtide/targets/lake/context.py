"""The context of runs on repositories of the embedded catalog."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ebbtide.core.instant import Clock
from ebbtide.engine.collector import Context
from ebbtide.state.runs import Ledger
from ebbtide.targets.lake.catalog.catalog import Catalog


@dataclass(frozen=True)
class LakeContext:
    """The catalog, the ledger of runs, the state root and the clock."""

    catalog: Catalog
    ledger: Ledger
    root: Path
    clock: Clock

    @property
    def context(self) -> Context:
        """The state that runs on any target work with."""
        return Context(self.root, self.ledger, self.clock)
