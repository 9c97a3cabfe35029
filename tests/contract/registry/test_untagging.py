"""Deleting one tag: what becomes of its manifest and its siblings, in honest and in rough registries."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.contract.registry.conftest import connected
from tests.services.flaky_proxy import FlakyProxy, Request, Response
from tests.services.image_kit import push_image
from tests.services.registry import RegistryServer

from ebbtide.core.errors import SafetyStop, StalePlan, Unsupported
from ebbtide.targets.oci.client.distribution import RegistryClient
from ebbtide.targets.oci.client.image_layout import ImageLayout
from ebbtide.targets.oci.client.registry import untag


def test_a_tag_goes_alone(layout: ImageLayout):
    """The tag goes, its sibling and the manifest stay, and a second time there is nothing to do."""
    pushed = push_image(layout, "app", ["v1", "v2"])

    assert untag(layout, "app", "v1", pushed.digest, ["v1", "v2"])
    assert pushed.digest == layout.resolve("app", "v2").digest
    assert not untag(layout, "app", "v1", pushed.digest, ["v2"])


def test_a_tag_that_moved(layout: ImageLayout):
    """A tag that stands for something else than was planned is left where it is."""
    old = push_image(layout, "app", ["v1"], name="old")
    new = push_image(layout, "app", ["v1"], name="new")
    with pytest.raises(StalePlan):
        untag(layout, "app", "v1", old.digest)

    assert new.digest == layout.resolve("app", "v1").digest


def test_a_registry_that_cannot(client: RegistryClient, repository: str):
    """Where tags cannot be deleted, that is said and nothing is changed."""
    pushed = push_image(client, repository, ["v1", "v2"])
    with pytest.raises(Unsupported):
        untag(client, repository, "v1", pushed.digest, ["v2"])

    assert ["v1", "v2"] == sorted(client.tags(repository))


def test_a_registry_that_deletes_the_manifest(
    registry: RegistryServer, client: RegistryClient, proxy: FlakyProxy, repository: str
):
    """A registry that takes the manifest and all tags for one tag gets them back, and the run stops."""
    pushed = push_image(client, repository, ["v1", "v2", "v3"])

    def delete_all(_request: Request, _forward: Callable[[], Response]) -> Response:
        with connected(registry.endpoint) as direct:
            direct.delete_manifest(repository, pushed.digest)
        return Response(202)

    proxy.inject(lambda r: r.method == "DELETE" and r.path.endswith("/v1"), delete_all)
    with pytest.raises(SafetyStop, match="put back"):
        untag(client, repository, "v1", pushed.digest, ["v1", "v2", "v3"])

    assert ["v2", "v3"] == sorted(client.tags(repository))
    assert pushed.manifest == client.manifest(repository, "v2")
