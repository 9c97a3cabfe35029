"""What somebody else put into the repository of a bin survives every way of emptying it."""

from __future__ import annotations

from tests.services.bin_kit import entry_of, recycle, tags_of, whole
from tests.services.image_kit import push_image, push_index

from ebbtide.targets.oci.bin.contents import (
    clear_leftovers,
    discard,
    discard_each,
    entries,
    foreign_in,
    leftovers,
)
from ebbtide.targets.oci.bin.entry import bin_repository, entry_tag, manifest_tag
from ebbtide.targets.oci.client.image_layout import ImageLayout
from ebbtide.targets.oci.client.registry import Registry

OTHER = "sha256:" + "0" * 64


def test_tags_that_only_look_like_ours(images: Registry, repository: str):
    """Tags with the names of entries and copies but other content stay, and are reported."""
    bin_name = bin_repository(repository)
    gone = push_image(images, repository, ["v1"], name="gone")
    entry = recycle(images, entry_of(repository, gone, ["v1"]))
    names = ["mine", "m-mine", "e-mine", manifest_tag(OTHER), entry_tag(OTHER)]
    own = {name: push_image(images, bin_name, [name], name=name, layers=[name.encode()]) for name in names}
    before = {name: whole(images, bin_name, own[name].digest) for name in names}
    listed = list(entries(images, repository))
    found = leftovers(images, bin_name)
    done = list(discard_each(images, listed))

    assert [entry] == listed
    assert [] == found == clear_leftovers(images, bin_name)
    assert [None] == [one.error for one in done]
    assert {name: own[name].digest for name in names} == tags_of(images, bin_name)
    assert before == {name: whole(images, bin_name, own[name].digest) for name in names}
    assert sorted(names) == sorted(foreign_in(images, bin_name).tags)


def test_a_tag_of_ours_that_somebody_moved(images: Registry, repository: str):
    """If the tag of a copy was moved to another image, emptying the bin does not remove that image."""
    bin_name = bin_repository(repository)
    gone = push_image(images, repository, ["v1"], name="gone")
    entry = recycle(images, entry_of(repository, gone, ["v1"]))
    moved = push_image(images, bin_name, [manifest_tag(gone.digest)], name="moved")
    discard(images, entry)

    assert {manifest_tag(gone.digest): moved.digest} == tags_of(images, bin_name)
    assert whole(images, bin_name, moved.digest)


def test_a_foreign_tag_on_a_copy(images: Registry, repository: str):
    """A copy that somebody tagged in the bin stays with its platforms when its entry is discarded."""
    bin_name = bin_repository(repository)
    children = [push_image(images, repository, name=name) for name in ("amd64", "arm64")]
    index = push_index(images, repository, ["v1"], children)
    entry = recycle(images, entry_of(repository, index, ["v1"]))
    before = whole(images, bin_name, index.digest)
    images.put_manifest(bin_name, "mine", index.manifest)
    discard(images, entry)

    assert index.digest == tags_of(images, bin_name)["mine"]
    assert before == whole(images, bin_name, index.digest)
    assert [] == list(entries(images, repository))


def test_a_foreign_manifest_without_a_tag(layout: ImageLayout):
    """Where untagged manifests can be listed, those that Ebbtide did not write stay too."""
    gone = push_image(layout, "app", ["v1"], name="gone")
    entry = recycle(layout, entry_of("app", gone, ["v1"]))
    own = push_image(layout, entry.bin, name="untagged", layers=[b"untagged"])
    before = whole(layout, entry.bin, own.digest)
    discard(layout, entry)

    assert before == whole(layout, entry.bin, own.digest)
