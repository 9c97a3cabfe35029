"""Reaching a registry from an executor: whether it answers there as it does to the driver."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from itertools import islice

from ebbtide.core.errors import EnvironmentProblem, Unsupported
from ebbtide.targets.oci.client.registry import RegistrySpec, open_registry


@dataclass(frozen=True)
class RegistryReach:
    """Reaches a registry: opens it, and asks for its first repository."""

    registry: RegistrySpec

    def __call__(self) -> None:
        """Ask; a registry that has no catalog has answered too."""
        with closing(open_registry(self.registry)) as registry:
            try:
                list(islice(registry.repositories(), 1))
            except Unsupported:
                return
            except OSError as broken:
                raise EnvironmentProblem(f"{self.registry.url} cannot be reached: {broken}") from broken
