"""The workshop: what every job on a lake works with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ebbtide.lake.catalog.catalog import Catalog
from ebbtide.ledger.runs import Ledger
from ebbtide.rules.instant import Clock


@dataclass(frozen=True)
class Workshop:
    """What a job works with: the catalog it looks after, the ledger it keeps, the folder it writes to."""

    catalog: Catalog
    ledger: Ledger
    root: Path
    clock: Clock
