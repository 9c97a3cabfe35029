"""One rig for each kind of registry: a server through a proxy that can make trouble, and a folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from tests.services.flaky_proxy import FlakyProxy, flaky_proxy
from tests.services.image_kit import fresh_repository
from tests.services.registry import RegistryServer

from ebbtide.storage.rate_limit import Backoff
from ebbtide.targets.oci.client.credentials import Credentials
from ebbtide.targets.oci.client.distribution import RegistryClient
from ebbtide.targets.oci.client.image_layout import ImageLayout
from ebbtide.targets.oci.client.registry import Registry, RegistrySpec

FAST = Backoff(tries=3, first=0.001, sleep=lambda _: None)
"""So that a test of back-off takes no time."""


@pytest.fixture
def proxy(registry: RegistryServer) -> Iterator[FlakyProxy]:
    """Run a proxy in front of the registry that does nothing yet but forward."""
    with flaky_proxy(registry.endpoint) as running:
        yield running


@contextlib.contextmanager
def connected(
    endpoint: str,
    credentials: Credentials | None = None,
    backoff: Backoff = FAST,
    repository: str = "",
    **options: str,
) -> Iterator[RegistryClient]:
    """Open a client at an http URL until the block ends."""
    url = f"{endpoint.replace('http://', 'oci://')}/{repository}"
    client = RegistryClient(RegistrySpec(url, options), credentials or Credentials(), backoff)
    with contextlib.closing(client):
        yield client


@pytest.fixture
def client(proxy: FlakyProxy) -> Iterator[RegistryClient]:
    """Open a client through the proxy."""
    with connected(proxy.endpoint) as found:
        yield found


@pytest.fixture
def layout(tmp_path) -> ImageLayout:
    """Open a registry on an empty folder."""
    return ImageLayout(RegistrySpec(f"oci-layout:{tmp_path}"))


@pytest.fixture(params=["client", "layout"])
def images(request: pytest.FixtureRequest) -> Registry:
    """Give each kind of registry in turn."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def repository() -> str:
    """Give the name of a repository that is not there yet."""
    return fresh_repository()
