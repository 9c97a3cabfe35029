"""Open a registry from its address: a server or a folder of image layouts."""

from __future__ import annotations

from ebbtide.storage.executor_proof import check_fitness
from ebbtide.targets.oci.base import Registry, RegistrySpec
from ebbtide.targets.oci.client.address import LayoutPath, parse_address
from ebbtide.targets.oci.client.image_layout import ImageLayout


def open_registry(spec: RegistrySpec | str) -> Registry:
    """Open the registry at an address. Close it when done; each process opens its own."""
    check_fitness()
    found = RegistrySpec(spec) if isinstance(spec, str) else spec
    if isinstance(parse_address(found.url), LayoutPath):
        return ImageLayout(found)
    from ebbtide.targets.oci.client.server import RegistryClient  # noqa: PLC0415 (httpx takes a while to load)

    return RegistryClient(found)
