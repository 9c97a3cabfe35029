"""What every registry promises, whether a server or a folder."""

from __future__ import annotations

import json
import pickle

import pytest
from tests.services.image_kit import fresh_repository, manifest_of, push_image, push_index, push_signature

from ebbtide.core.errors import BadInput, MetadataError, NotFound, StoreError
from ebbtide.targets.oci.client.manifest import OCI_MANIFEST, read_content
from ebbtide.targets.oci.client.names import digest_of
from ebbtide.targets.oci.client.registry import Ability, Manifest, Registry

NOWHERE = "sha256:" + "0" * 64


def test_it_fulfils_the_protocol(images: Registry):
    """Both kinds have every method of the protocol, and a spec that an executor can be given."""
    assert isinstance(images, Registry)
    assert images.spec == pickle.loads(pickle.dumps(images.spec))  # noqa: S301 (our own bytes)


def test_repositories_and_tags_are_listed(images: Registry, repository: str):
    """A pushed image shows up in the catalog and under all of its tags."""
    push_image(images, repository, ["v1", "latest"])

    assert repository in set(images.repositories())
    assert ["latest", "v1"] == sorted(images.tags(repository))


def test_tags_of_a_repository_that_is_not_there(images: Registry, repository: str):
    """A repository that is not there is an error and not one without tags."""
    with pytest.raises(NotFound):
        list(images.tags(repository))


def test_a_manifest_is_read_byte_for_byte(images: Registry, repository: str):
    """A manifest comes back as it was pushed, by its tag and by its digest."""
    pushed = push_image(images, repository, ["v1"])

    assert pushed.manifest == images.manifest(repository, "v1")
    assert pushed.manifest == images.manifest(repository, pushed.digest)


def test_resolving_a_tag(images: Registry, repository: str):
    """A tag resolves to the digest, the size and the kind of its manifest."""
    pushed = push_image(images, repository, ["v1"])
    found = images.resolve(repository, "v1")

    assert (pushed.digest, len(pushed.manifest.body), OCI_MANIFEST) == (
        found.digest,
        found.size,
        found.media_type,
    )


@pytest.mark.parametrize("reference", ["none", NOWHERE])
def test_what_is_not_there(images: Registry, repository: str, reference: str):
    """A tag or digest that is not there is NotFound, whether read or resolved."""
    push_image(images, repository, ["v1"])
    for ask in (images.manifest, images.resolve):
        with pytest.raises(NotFound):
            ask(repository, reference)


@pytest.mark.parametrize("name", ["", "../up", "a//b", "a b", "a?n=1", "a%2Fb", "/a"])
def test_names_that_are_none(images: Registry, name: str):
    """A name that could lead elsewhere in a URL or on a disk is refused before anything is asked."""
    for ask in (
        lambda: list(images.tags(name)),
        lambda: images.manifest(name, "v1"),
        lambda: images.delete_manifest(name, NOWHERE),
        lambda: images.blob_size(name, NOWHERE),
    ):
        with pytest.raises(BadInput):
            ask()


@pytest.mark.parametrize("reference", ["", "a/b", "..", "v1?x", "sha256:abc", "sha256:" + "A" * 64])
def test_references_that_are_none(images: Registry, repository: str, reference: str):
    """What is neither a tag nor a whole digest is refused."""
    push_image(images, repository, ["v1"])
    for ask in (images.manifest, images.delete_tag, images.delete_manifest):
        with pytest.raises(BadInput):
            ask(repository, reference)


def test_a_digest_is_no_tag(images: Registry, repository: str):
    """Deleting a tag never takes a digest, because that would delete all tags on it."""
    pushed = push_image(images, repository, ["v1"])
    with pytest.raises(BadInput):
        images.delete_tag(repository, pushed.digest)

    assert pushed.manifest == images.manifest(repository, "v1")


def test_blobs_are_streamed_and_sized(images: Registry, repository: str):
    """A blob comes back whole, in parts, and its size is known."""
    data = bytes(range(256)) * 10_000
    pushed = push_image(images, repository, ["v1"], layers=[data])
    digest = pushed.blobs[1]

    assert len(data) == images.blob_size(repository, digest)
    assert data == b"".join(images.blob(repository, digest))


def test_a_blob_that_is_not_there(images: Registry, repository: str):
    """A missing blob is NotFound when it is sized and when it is read."""
    push_image(images, repository, ["v1"])
    for ask in (images.blob_size, lambda *names: list(images.blob(*names))):
        with pytest.raises(NotFound):
            ask(repository, NOWHERE)


def test_wrong_bytes_are_not_taken_for_a_blob(images: Registry, repository: str):
    """Bytes that do not hash to the digest make no blob."""
    push_image(images, repository, ["v1"])
    with pytest.raises((MetadataError, StoreError)):
        images.put_blob(repository, NOWHERE, 5, lambda: [b"other"])
    with pytest.raises(NotFound):
        images.blob_size(repository, NOWHERE)


def test_a_manifest_needs_its_blobs(images: Registry, repository: str):
    """A manifest whose blobs are not there is not taken."""
    push_image(images, repository, ["v1"])
    blob = {"mediaType": "x/y", "digest": NOWHERE, "size": 5}
    manifest = manifest_of({"config": blob, "layers": []}, OCI_MANIFEST)
    with pytest.raises(NotFound):
        images.put_manifest(repository, "v2", manifest)

    assert ["v1"] == list(images.tags(repository))


def test_a_manifest_is_not_written_under_another_digest(images: Registry, repository: str):
    """A manifest whose bytes are not those of the digest is refused before it is sent."""
    pushed = push_image(images, repository, ["v1"])
    with pytest.raises((MetadataError, BadInput)):
        images.put_manifest(repository, NOWHERE, pushed.manifest)
    with pytest.raises(MetadataError):
        images.put_manifest(repository, "v2", Manifest(NOWHERE, OCI_MANIFEST, pushed.manifest.body))


def test_an_overwritten_tag(images: Registry, repository: str):
    """A tag that moves stands for the new manifest, and the old one stays by its digest."""
    old = push_image(images, repository, ["v1"], name="old")
    new = push_image(images, repository, ["v1"], name="new")

    assert new.digest == images.resolve(repository, "v1").digest
    assert old.manifest == images.manifest(repository, old.digest)
    assert ["v1"] == list(images.tags(repository))


def test_deleting_a_manifest_takes_all_its_tags(images: Registry, repository: str):
    """A manifest is deleted with every tag on it, others stay, and a second time there is nothing."""
    doomed = push_image(images, repository, ["v1", "v2"], name="doomed")
    other = push_image(images, repository, ["v3"], name="other")

    assert images.delete_manifest(repository, doomed.digest)
    assert ["v3"] == list(images.tags(repository))
    assert other.manifest == images.manifest(repository, "v3")
    with pytest.raises(NotFound):
        images.manifest(repository, doomed.digest)
    assert not images.delete_manifest(repository, doomed.digest)


def test_an_emptied_repository(images: Registry, repository: str):
    """A repository whose last manifest went has no tags, and that is no error."""
    pushed = push_image(images, repository, ["v1"])
    images.delete_manifest(repository, pushed.digest)

    assert [] == list(images.tags(repository))


def test_an_index_and_its_children(images: Registry, repository: str):
    """An index names its children in order, and each can be read by its digest."""
    children = [push_image(images, repository, name=name) for name in ("amd64", "arm64")]
    index = push_index(images, repository, ["v1"], children)
    content = read_content(images.manifest(repository, "v1"))

    assert index.digest == images.resolve(repository, "v1").digest
    assert [child.digest for child in children] == [child.digest for child in content.children]
    assert [c.manifest for c in children] == [images.manifest(repository, c.digest) for c in children]


def test_referrers_follow_their_subject(images: Registry, repository: str):
    """A signature is found from what it signs, and what nothing signs has none."""
    signed = push_image(images, repository, ["v1"], name="signed")
    plain = push_image(images, repository, ["v2"], name="plain")
    signature = push_signature(images, repository, signed)

    assert [signature.digest] == [found.digest for found in images.referrers(repository, signed.digest)]
    assert [] == list(images.referrers(repository, plain.digest))
    assert signed.digest == read_content(images.manifest(repository, signature.digest)).subject


def test_an_image_is_kept_in_another_repository(images: Registry, repository: str):
    """Mounted blobs and a manifest put again make the same image elsewhere, which outlives the first."""
    pushed = push_image(images, repository, ["v1"], layers=[b"one", b"two"])
    bin_of_it = fresh_repository()
    mounted = [images.mount_blob(bin_of_it, digest, repository) for digest in pushed.blobs]
    images.put_manifest(bin_of_it, "kept", pushed.manifest)
    images.delete_manifest(repository, pushed.digest)

    assert [True, True, True] == mounted
    assert pushed.manifest == images.manifest(bin_of_it, "kept")
    assert b"two" == b"".join(images.blob(bin_of_it, digest_of(b"two")))


def test_a_blob_that_cannot_be_mounted(images: Registry, repository: str):
    """A blob that the source does not have is not mounted, and that is told and no error."""
    push_image(images, repository, ["v1"])

    assert not images.mount_blob(fresh_repository(), NOWHERE, repository)


def test_probing_changes_nothing(images: Registry, repository: str):
    """Finding out what a repository can do leaves every tag and manifest as it was."""
    pushed = push_image(images, repository, ["v1", "v2"])
    found = images.capabilities(repository)

    assert Ability.YES == found.manifest_delete
    assert ["v1", "v2"] == sorted(images.tags(repository))
    assert pushed.manifest == images.manifest(repository, "v1")


def test_documents_are_json(images: Registry, repository: str):
    """A manifest's bytes are what its author wrote, spaces and all."""
    pushed = push_image(images, repository, ["v1"])

    assert 2 == json.loads(images.manifest(repository, "v1").body)["schemaVersion"]
    assert pushed.digest == digest_of(images.manifest(repository, "v1").body)
