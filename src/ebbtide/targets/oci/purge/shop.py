"""What every job and command on a registry works with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from ebbtide.core.instant import Clock
from ebbtide.engine.collector import Context, Identity
from ebbtide.state.runs import Ledger
from ebbtide.targets.oci.client.address import canonical_name, registry_address
from ebbtide.targets.oci.client.registry import Registry, RegistryOptions, RegistrySpec, open_registry
from ebbtide.targets.oci.records.records import ImageRecords


@dataclass(frozen=True)
class RegistryShop:
    """How a registry is reached, what is recorded of it, the ledger, and the folder that is written to."""

    spec: RegistrySpec
    records: ImageRecords
    ledger: Ledger
    root: Path
    clock: Clock
    running: str | None = None
    """The source of running images that is configured; None if none is."""

    owner: str = ""
    """The uid of the registry that was found at an unknown name; see `identity.owner_of`."""

    @property
    def context(self) -> Context:
        """The state that runs on the registry work with."""
        return Context(self.root, self.ledger, self.clock)

    @property
    def identity(self) -> Identity:
        """Which registry it is."""
        return Identity(self.spec.url, self.uid, self.spec.url)

    @property
    def uid(self) -> str:
        """Name the whole registry for locks and records, also where one repository is meant."""
        return self.owner or self.records.uid_of(self.name)

    @property
    def name(self) -> str:
        """Give the canonical name of the whole registry."""
        allow_http = RegistryOptions.parse(self.spec.options).allow_http
        return canonical_name(self.spec.url, allow_http=allow_http)

    @property
    def address(self) -> str:
        """Give the address at which the whole registry is reached."""
        return registry_address(self.spec.url)

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
        return bool(self.ledger.runs_since(self.uid, moment))
