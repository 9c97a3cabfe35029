"""What every job and command on a registry works with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from ebbtide.ledger.runs import Ledger, RunState
from ebbtide.registry.base import Registry, RegistrySpec
from ebbtide.registry.client.address import registry_uid
from ebbtide.registry.client.opening import open_registry
from ebbtide.registry.records.records import ImageRecords
from ebbtide.rules.instant import Clock

_WITHOUT_DELETES = (RunState.PLANNING, RunState.PLANNED, RunState.ABANDONED)


@dataclass(frozen=True)
class RegistryShop:
    """How a registry is reached, what is recorded of it, the ledger, and the folder that is written to."""

    spec: RegistrySpec
    records: ImageRecords
    ledger: Ledger
    root: Path
    clock: Clock

    @property
    def uid(self) -> str:
        """Name the whole registry for locks and records, also where one repository is meant."""
        return registry_uid(self.spec.url)

    @contextmanager
    def opened(self) -> Iterator[Registry]:
        """Open the registry for the block."""
        registry = open_registry(self.spec)
        try:
            yield registry
        finally:
            registry.close()

    def purged_since(self, moment: datetime) -> bool:
        """Tell whether a run of ours may have removed something since then."""
        ended = [run for run in self.ledger.runs(self.uid) if run.state not in _WITHOUT_DELETES]
        return any(run.finished_at is None or run.finished_at >= moment for run in ended)
