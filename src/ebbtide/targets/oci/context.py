"""The context of a registry: what every run and command on it works with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from ebbtide.core.errors import EnvironmentProblem, Unsupported
from ebbtide.engine.collector import Context, Identity
from ebbtide.targets.oci.client.address import canonical_name, registry_address
from ebbtide.targets.oci.client.registry import Registry, RegistryOptions, RegistrySpec, open_registry
from ebbtide.targets.oci.records.records import ImageRecords


@dataclass(frozen=True)
class RegistryReach:
    """Reaches a registry from an executor: opens it, and asks for its first repository."""

    registry: RegistrySpec

    def __call__(self) -> None:
        """Ask; a registry without a catalog has answered too."""
        with closing(open_registry(self.registry)) as registry:
            try:
                list(islice(registry.repositories(), 1))
            except Unsupported:
                return
            except OSError as broken:
                raise EnvironmentProblem(f"{self.registry.url} cannot be reached: {broken}") from broken


@dataclass(frozen=True)
class RegistryContext(Context):
    """What every run works with, and how the registry is reached, and its records."""

    spec: RegistrySpec
    records: ImageRecords
    running: str | None = None
    """The configured source of running images; None if there is none."""

    owner: str = ""
    """The uid of the registry that was found at an unknown name; see `identity.owner_of`."""

    @property
    def identity(self) -> Identity:
        """Which registry it is."""
        return Identity(self.spec.url, self.uid, self.spec.url)

    @property
    def uid(self) -> str:
        """The uid of the whole registry for locks and records, also if one repository is meant."""
        return self.owner or self.records.uid_of(self.name)

    @property
    def name(self) -> str:
        """The canonical name of the whole registry."""
        allow_http = RegistryOptions.parse(self.spec.options).allow_http
        return canonical_name(self.spec.url, allow_http=allow_http)

    @property
    def address(self) -> str:
        """The address of the whole registry."""
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
        """Return True if a run of ours may have removed something since then."""
        return bool(self.ledger.runs_since(self.uid, moment))
