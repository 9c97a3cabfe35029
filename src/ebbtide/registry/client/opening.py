"""Open a registry from its address: a server or a folder of image layouts."""

from __future__ import annotations

from ebbtide.registry.base import Registry, RegistrySpec
from ebbtide.registry.client.address import LayoutPath, parse_address
from ebbtide.registry.client.image_layout import ImageLayout


def open_registry(spec: RegistrySpec | str) -> Registry:
    """Open the registry at an address. Close it when done; each process opens its own."""
    found = RegistrySpec(spec) if isinstance(spec, str) else spec
    if isinstance(parse_address(found.url), LayoutPath):
        return ImageLayout(found)
    from ebbtide.registry.client.server import RegistryClient  # noqa: PLC0415 (httpx takes a while to load)

    return RegistryClient(found)
