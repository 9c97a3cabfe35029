"""Facts about a real registry that purging rests on."""

from __future__ import annotations

import json

import pytest
from tests.contract.registry.conftest import connected
from tests.services.image_kit import fresh_repository, push_image, push_index
from tests.services.registry import RegistryServer, registry_server, skopeo

from ebbtide.core.errors import NotFound, Unsupported
from ebbtide.targets.oci.client.distribution import RegistryClient
from ebbtide.targets.oci.client.image_layout import ImageLayout
from ebbtide.targets.oci.client.manifest import read_content
from ebbtide.targets.oci.client.registry import Ability, RegistrySpec


def test_what_it_can_do(client: RegistryClient, repository: str):
    """Debian's registry deletes digests but no tags, has no referrers API, and lists nothing untagged."""
    push_image(client, repository, ["v1"])
    found = client.capabilities(repository)

    assert (Ability.YES, Ability.NO) == (found.manifest_delete, found.tag_delete)
    assert (Ability.NO, Ability.NO) == (found.referrers_api, found.untagged_listing)


def test_a_tag_cannot_be_deleted_there(client: RegistryClient, repository: str):
    """A tag delete is Unsupported, and the tag and its siblings are as they were."""
    pushed = push_image(client, repository, ["v1", "v2"])
    with pytest.raises(Unsupported, match="400"):
        client.delete_tag(repository, "v1")
    with pytest.raises(Unsupported):
        client.untagged(repository)

    assert [pushed.digest] * 2 == [client.resolve(repository, tag).digest for tag in ("v1", "v2")]


def test_deletes_switched_off(tmp_path, repository: str):
    """A registry with deletes switched off is found out by probing, and refuses without harm."""
    with registry_server(tmp_path / "r", deletes=False) as server, connected(server.endpoint) as client:
        pushed = push_image(client, repository, ["v1"])

        assert Ability.NO == client.capabilities(repository).manifest_delete
        with pytest.raises(Unsupported, match="405"):
            client.delete_manifest(repository, pushed.digest)
        assert ["v1"] == list(client.tags(repository))


def test_pages_are_followed(registry: RegistryServer):
    """The catalog and tags come whole, each name once, in pages of one."""
    repositories = {fresh_repository() for _ in range(3)}
    with connected(registry.endpoint, page="1") as client:
        for name in repositories:
            push_image(client, name, ["v1", "v2", "v3"])
        catalog = list(client.repositories())
        tags = [sorted(client.tags(name)) for name in repositories]

        assert repositories <= set(catalog)
        assert len(catalog) == len(set(catalog))
        assert [["v1", "v2", "v3"]] * 3 == tags


def test_an_address_of_one_repository(registry: RegistryServer, repository: str):
    """An address with a repository lists that one and does not ask for the catalog."""
    with connected(registry.endpoint, repository=repository) as client:
        assert [repository] == list(client.repositories())


def test_what_is_kept_elsewhere_survives_the_collector(tmp_path, repository: str):
    """An image mounted into another repository lives through the registry's own garbage collector."""
    kept_in = fresh_repository()
    with registry_server(tmp_path / "r") as server, connected(server.endpoint) as client:
        kept = push_image(client, repository, ["v1"], name="kept", layers=[b"kept", b"shared"])
        lost = push_image(client, repository, ["v2"], name="lost", layers=[b"lost", b"shared"])
        for digest in kept.blobs:
            assert client.mount_blob(kept_in, digest, repository)
        client.put_manifest(kept_in, "v1", kept.manifest)
        for image in (kept, lost):
            client.delete_manifest(repository, image.digest)
        server.garbage_collect()
        source = f"docker://127.0.0.1:{server.port}/{kept_in}:v1"
        skopeo("copy", "--src-tls-verify=false", source, f"dir:{tmp_path}/d")

        assert kept.manifest == client.manifest(kept_in, "v1")
        assert {b"kept", b"shared"} == {b"".join(client.blob(kept_in, d)) for d in kept.blobs[1:]}
        assert kept.manifest.body == (tmp_path / "d" / "manifest.json").read_bytes()
        with pytest.raises(NotFound):
            client.blob_size(kept_in, lost.blobs[1])


def test_skopeo_and_we_see_the_same(
    registry: RegistryServer, client: RegistryClient, repository: str, tmp_path
):
    """A multi-arch image that skopeo copies from the registry into a layout is the same there."""
    children = [push_image(client, repository, name=name) for name in ("amd64", "arm64")]
    index = push_index(client, repository, ["v1"], children)
    source = f"docker://127.0.0.1:{registry.port}/{repository}:v1"
    skopeo("copy", "--all", "--preserve-digests", "--src-tls-verify=false", source, f"oci:{tmp_path}/copy:v1")
    layout = ImageLayout(RegistrySpec(f"oci-layout:{tmp_path}/copy"))
    raw = skopeo("inspect", "--raw", "--tls-verify=false", source)

    assert index.manifest == layout.manifest("copy", "v1")
    assert json.loads(raw) == json.loads(index.manifest.body)
    assert {c.digest for c in children} == set(layout.untagged("copy"))
    assert index.digest == client.resolve(repository, "v1").digest
    assert 2 == len(read_content(layout.manifest("copy", "v1")).children)
