"""The recycle bin on servers and in folders alike: what is set aside comes back, and nothing else moves."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.services.bin_kit import DAY, NOON, entry_of, push_team, recycle, recycle_all, tags_of, whole
from tests.services.image_kit import manifest_of, push_image, push_index

from ebbtide.core.errors import MetadataError, NotFound, Refused, StalePlan
from ebbtide.targets.oci.bin.contents import (
    bin_repositories,
    clear_leftovers,
    discard,
    discard_each,
    entries,
    leftovers,
    read_entry,
)
from ebbtide.targets.oci.bin.entry import bin_repository, manifest_tag
from ebbtide.targets.oci.bin.image_copy import closure_of
from ebbtide.targets.oci.bin.moves import restore, set_aside
from ebbtide.targets.oci.client.distribution import RegistryClient
from ebbtide.targets.oci.client.manifest import OCI_INDEX
from ebbtide.targets.oci.client.registry import Manifest, Registry


def test_there_and_back(images: Registry, repository: str):
    """An image that was set aside, deleted and restored is the same to the byte under the same tags."""
    pushed = push_image(images, repository, ["v1", "v2"], layers=[b"one", b"two"])
    before = whole(images, repository, pushed.digest)
    entry = recycle(images, entry_of(repository, pushed, ["v1", "v2"]))
    gone = tags_of(images, repository)
    done = restore(images, entry)

    assert {} == gone
    assert before == whole(images, repository, pushed.digest)
    assert {"v1": pushed.digest, "v2": pushed.digest} == tags_of(images, repository)
    assert (("v1", "v2"), {}, False, ()) == (done.tags, done.taken, done.left_in_bin, done.troubles)
    assert {} == tags_of(images, bin_repository(repository))


def test_the_bin_describes_itself(images: Registry, repository: str):
    """What set_aside gave is what the bin says later, alone and in the list of all bins."""
    pushed = push_image(images, repository, ["v1"])
    entry = set_aside(images, entry_of(repository, pushed, ["v1"]))
    of_other_tests: list[MetadataError] = []
    every = entries(images, on_damage=of_other_tests.append)
    listed = [found for found in every if found.repository == repository]

    assert entry == read_entry(images, repository, pushed.digest)
    assert [entry] == list(entries(images, repository)) == listed
    assert bin_repository(repository) in set(bin_repositories(images))
    assert sum(map(len, whole(images, repository, pushed.digest).values())) == entry.size


def test_setting_aside_leaves_the_original(images: Registry, repository: str):
    """The original and its tags are as they were, and a second time changes nothing in the bin."""
    pushed = push_image(images, repository, ["v1"])
    first = set_aside(images, entry_of(repository, pushed, ["v1"]))
    in_bin = tags_of(images, bin_repository(repository))
    second = set_aside(images, entry_of(repository, pushed, ["v1"]))

    assert first == second
    assert in_bin == tags_of(images, bin_repository(repository))
    assert {"v1": pushed.digest} == tags_of(images, repository)


def test_an_original_that_is_gone(images: Registry, repository: str):
    """To set aside again what was deleted since is fine; what was never there is NotFound."""
    pushed = push_image(images, repository, ["v1"])
    entry = recycle(images, entry_of(repository, pushed, ["v1"]))

    assert entry == set_aside(images, entry_of(repository, pushed, ["v1"]))
    discard(images, entry)
    with pytest.raises(NotFound):
        set_aside(images, entry)


def test_every_manifest_is_a_root(images: Registry, repository: str):
    """Each manifest in the bin has a tag of its own, for collectors remove those that have none."""
    team = push_team(images, repository)
    recycle_all(images, team.entries)
    found = tags_of(images, bin_repository(repository))
    rooted = {digest for tag, digest in found.items() if tag.startswith("m-")}

    assert {manifest_tag(digest): digest for digest in rooted}.items() <= found.items()
    assert rooted == {
        digest for entry in team.entries for digest in closure_of(images, entry.bin, entry.digest).digests
    }
    assert {team.multi.digest, team.signature.digest} <= rooted


def test_a_whole_team(images: Registry, repository: str):
    """Indexes with shared platforms, signatures of both kinds and an overwritten tag all come back whole."""
    team = push_team(images, repository)
    before = {entry.digest: whole(images, repository, entry.digest) for entry in team.entries}
    tags, other = tags_of(images, repository), whole(images, repository, team.new.digest)
    recycle_all(images, team.entries)
    between = tags_of(images, repository)
    multi = restore(images, read_entry(images, repository, team.multi.digest))
    for digest in (team.sibling.digest, team.old.digest):
        restore(images, read_entry(images, repository, digest))

    assert {"moved": team.new.digest} == between
    assert {team.listed.digest, team.cosign.digest} == {part.entry.digest for part in multi.referrers}
    assert tags == tags_of(images, repository)
    assert before == {digest: whole(images, repository, digest) for digest in before}
    assert other == whole(images, repository, team.new.digest)
    assert [team.signature.digest] == [d.digest for d in images.referrers(repository, team.multi.digest)]
    assert [] == list(entries(images, repository))


def test_an_image_without_its_signatures(images: Registry, repository: str):
    """Signatures stay in the bin if that is wanted."""
    team = push_team(images, repository)
    recycle_all(images, team.entries)
    done = restore(images, read_entry(images, repository, team.multi.digest), with_referrers=False)
    left = {entry.digest for entry in entries(images, repository)}

    assert () == done.referrers
    assert {team.listed.digest, team.cosign.digest, team.sibling.digest, team.old.digest} == left


def test_a_tag_that_is_taken(images: Registry, repository: str):
    """A tag that stands for another image stays so and is told; the image is back under the others."""
    old = push_image(images, repository, ["v1", "v2"], name="old")
    entry = recycle(images, entry_of(repository, old, ["v1", "v2"]))
    new = push_image(images, repository, ["v1"], name="new")
    done = restore(images, entry)

    assert {"v1": new.digest, "v2": old.digest} == tags_of(images, repository)
    assert (("v2",), {"v1": new.digest}, True) == (done.tags, done.taken, done.left_in_bin)
    assert [entry] == list(entries(images, repository))


def test_a_taken_tag_and_nothing_to_keep(images: Registry, repository: str):
    """Whoever says so gets the image out of the bin although a tag was taken."""
    old = push_image(images, repository, ["v1", "v2"], name="old")
    entry = recycle(images, entry_of(repository, old, ["v1", "v2"]))
    push_image(images, repository, ["v1"], name="new")
    done = restore(images, entry, keep_in_bin=False)

    assert not done.left_in_bin
    assert [] == list(entries(images, repository))


def test_all_tags_are_taken(images: Registry, repository: str):
    """If no tag is free nothing changes; under another name the image comes back."""
    old = push_image(images, repository, ["v1"], name="old")
    before = whole(images, repository, old.digest)
    entry = recycle(images, entry_of(repository, old, ["v1"]))
    new = push_image(images, repository, ["v1"], name="new")
    with pytest.raises(Refused, match=f"stands for {new.digest}.*--to"):
        restore(images, entry)
    with pytest.raises(NotFound):
        images.manifest(repository, old.digest)
    with pytest.raises(Refused):
        restore(images, entry, to_tags=["v1"])
    done = restore(images, entry, to_tags=["v1-old"])

    assert {"v1": new.digest, "v1-old": old.digest} == tags_of(images, repository)
    assert (("v1-old",), False) == (done.tags, done.left_in_bin)
    assert before == whole(images, repository, old.digest)


def test_pushed_again_while_in_the_bin(images: Registry, repository: str):
    """An image that somebody pushed again gets only the tags that it lacks."""
    pushed = push_image(images, repository, ["v1", "v2"])
    entry = recycle(images, entry_of(repository, pushed, ["v1", "v2"]))
    push_image(images, repository, ["v1", "mine"])
    done = restore(images, entry)

    assert dict.fromkeys(["mine", "v1", "v2"], pushed.digest) == tags_of(images, repository)
    assert (("v1", "v2"), {}) == (done.tags, done.taken)


def test_expired_twice(images: Registry, repository: str):
    """An image that came again and expired again has one entry, with both tags and the later date."""
    pushed = push_image(images, repository, ["v1"])
    recycle(images, entry_of(repository, pushed, ["v1"]))
    push_image(images, repository, ["v2"])
    later = recycle(images, entry_of(repository, pushed, ["v2"], NOON + 3 * DAY))

    assert [later] == list(entries(images, repository))
    assert (("v1", "v2"), NOON + 18 * DAY) == (later.tag_names, later.expires_at)
    assert [] == leftovers(images, bin_repository(repository))


def test_one_of_two_tags(images: Registry, repository: str):
    """A tag can be set aside while the image stays under another, and comes back alone."""
    pushed = push_image(images, repository, ["keep"])
    entry = set_aside(images, entry_of(repository, pushed, ["v1"]))
    restore(images, entry)

    assert dict.fromkeys(["keep", "v1"], pushed.digest) == tags_of(images, repository)


def test_an_image_that_had_no_tag(images: Registry, repository: str):
    """What had no tag comes back without, as it was."""
    pushed = push_image(images, repository)
    before = whole(images, repository, pushed.digest)
    done = restore(images, recycle(images, entry_of(repository, pushed)))

    assert ((), {}, False) == (done.tags, done.taken, done.left_in_bin)
    assert before == whole(images, repository, pushed.digest)


def test_discarding_spares_what_is_shared(images: Registry, repository: str):
    """Of two indexes that share a platform one is discarded, and the other still comes back whole."""
    team = push_team(images, repository)
    before = whole(images, repository, team.sibling.digest)
    kept = recycle_all(images, team.entries)
    multi = next(entry for entry in kept if entry.digest == team.multi.digest)
    discard(images, multi)

    with pytest.raises(NotFound):
        images.manifest(multi.bin, team.multi.digest)
    with pytest.raises(NotFound):
        read_entry(images, repository, team.multi.digest)
    restore(images, read_entry(images, repository, team.sibling.digest))
    assert before == whole(images, repository, team.sibling.digest)


def test_emptying_a_bin(images: Registry, repository: str):
    """When every entry is discarded nothing is left, and other images are as they were."""
    team = push_team(images, repository)
    other = whole(images, repository, team.new.digest)
    kept = recycle_all(images, team.entries)
    done = list(discard_each(images, kept))

    assert [None] * len(kept) == [one.error for one in done]
    assert {} == tags_of(images, bin_repository(repository))
    assert other == whole(images, repository, team.new.digest)
    discard(images, kept[0])


def test_an_entry_that_changed_is_not_discarded(images: Registry, repository: str):
    """What was set aside again since it was listed stays, because nobody decided about that."""
    pushed = push_image(images, repository, ["v1"])
    listed = set_aside(images, entry_of(repository, pushed, ["v1"]))
    again = set_aside(images, entry_of(repository, pushed, ["v1"], NOON + DAY))
    with pytest.raises(StalePlan):
        discard(images, listed)

    assert [again] == list(entries(images, repository))
    assert whole(images, repository, pushed.digest) == whole(images, again.bin, pushed.digest)


def test_leftovers(images: Registry, repository: str):
    """Manifests without an entry are found, an index before its children; the next discard clears them."""
    children = [push_image(images, repository, name=name) for name in ("amd64", "arm64")]
    index = push_index(images, repository, ["v1"], children)
    kept = set_aside(images, entry_of(repository, children[0], ["child"]))
    entry = set_aside(images, entry_of(repository, index, ["v1"]))
    images.delete_manifest(entry.bin, images.resolve(entry.bin, entry.tag).digest)
    found = leftovers(images, entry.bin)
    discard(images, entry)

    assert [index.digest, children[1].digest] == found
    assert [] == leftovers(images, entry.bin) == clear_leftovers(images, entry.bin)
    assert [kept] == list(entries(images, repository))


def test_a_damaged_entry(images: Registry, repository: str):
    """One damaged entry is named, hides no other, and its image can still be had by its digest."""
    good, bad = (push_image(images, repository, [name], name=name) for name in ("good", "bad"))
    kept = recycle(images, entry_of(repository, good, ["good"]))
    entry = recycle(images, entry_of(repository, bad, ["bad"]))
    document = json.loads(images.manifest(entry.bin, entry.tag).body)
    document["annotations"]["io.ebbtide.recycle.version"] = "99"
    images.put_manifest(entry.bin, entry.tag, manifest_of(document, OCI_INDEX))
    told: list[MetadataError] = []

    with pytest.raises(MetadataError, match=entry.tag):
        list(entries(images, repository))
    with pytest.raises(MetadataError, match=entry.tag):
        read_entry(images, repository, bad.digest)
    assert [kept] == list(entries(images, repository, told.append))
    assert [True] == [entry.tag in str(error) for error in told]
    with pytest.raises(MetadataError, match=entry.tag):
        set_aside(images, entry)
    discard(images, kept)
    done = restore(images, replace(entry, tags=()), to_tags=["saved"])
    assert {"saved": bad.digest} == tags_of(images, repository)
    assert done.left_in_bin
    assert entry.tag in " ".join(done.troubles)


def test_an_image_that_is_not_whole_in_the_bin(client: RegistryClient, repository: str):
    """If the bin has lost a platform nothing is restored, and the tag does not appear."""
    children = [push_image(client, repository, name=name) for name in ("amd64", "arm64")]
    index = push_index(client, repository, ["v1"], children)
    entry = recycle(client, entry_of(repository, index, ["v1"]))
    client.delete_manifest(entry.bin, children[0].digest)
    with pytest.raises(MetadataError, match=children[0].digest):
        restore(client, entry)

    assert {} == tags_of(client, repository)
    discard(client, entry)
    assert [] == list(entries(client, repository))


def test_an_address_of_one_repository(images: Registry, repository: str):
    """A registry that lists only one repository has its bin found by name."""
    pushed = push_image(images, repository, ["v1"])
    entry = set_aside(images, entry_of(repository, pushed, ["v1"]))

    class OnlyOne:
        """The registry, opened for one repository."""

        def __getattr__(self, name: str):
            return (lambda: iter([repository])) if name == "repositories" else getattr(images, name)

    assert [entry] == list(entries(OnlyOne()))


def test_bins_are_left_alone(images: Registry, repository: str):
    """What lies in a bin cannot be set aside from there."""
    pushed = push_image(images, repository, ["v1"])
    entry = set_aside(images, entry_of(repository, pushed, ["v1"]))
    with pytest.raises(Exception, match="bin itself"):
        set_aside(images, replace(entry, repository=entry.bin))


def test_reading_every_blob(images: Registry, repository: str):
    """With read_blobs every byte is read, there and back."""
    pushed = push_image(images, repository, ["v1"], layers=[b"x" * 100_000])
    set_aside(images, entry_of(repository, pushed, ["v1"]), read_blobs=True)
    images.delete_manifest(repository, pushed.digest)
    done = restore(images, read_entry(images, repository, pushed.digest), read_blobs=True)

    assert ("v1",) == done.tags


def test_a_registry_that_mounts_nothing(images: Registry, repository: str):
    """Where blobs cannot be mounted their bytes are sent, there and back."""
    pushed = push_image(images, repository, ["v1"], layers=[b"one", b"two"])
    before = whole(images, repository, pushed.digest)

    class NoMounts:
        """The registry without mounts."""

        def __getattr__(self, name: str):
            return (lambda *_names: False) if name == "mount_blob" else getattr(images, name)

    restore(NoMounts(), recycle(NoMounts(), entry_of(repository, pushed, ["v1"])))

    assert before == whole(images, repository, pushed.digest)


def test_a_mounted_blob_that_cannot_be_read(images: Registry, repository: str):
    """A registry that claims to have mounted a blob and does not have it is found out; no entry appears."""
    pushed = push_image(images, repository, ["v1"], layers=[b"one"])
    index = push_index(images, repository, ["v2"], [pushed])

    class Forgetful:
        """The registry, which has no blobs in bins, whatever it said."""

        def __getattr__(self, name: str):
            return self.none if name == "blob_size" else getattr(images, name)

        def none(self, name: str, digest: str) -> int:
            """Have no blob in a bin."""
            if name == bin_repository(repository):
                raise NotFound("no such blob")
            return images.blob_size(name, digest)

    for image in (pushed, index):
        with pytest.raises(MetadataError, match=r"cannot be read.*collector"):
            set_aside(Forgetful(), entry_of(repository, image, ["v1"]))
    assert [] == list(entries(images, repository))


class Busy:
    """A registry into which somebody pushes the tag `v1` as soon as the first manifest is written."""

    def __init__(self, images: Registry) -> None:
        self.images, self.pushed = images, ""

    def __getattr__(self, name: str):
        """Do all else as the other does."""
        return getattr(self.images, name)

    def put_manifest(self, name: str, reference: str, manifest: Manifest) -> None:
        """Write it, and let the other push."""
        self.images.put_manifest(name, reference, manifest)
        if not self.pushed:
            self.pushed = push_image(self.images, name, ["v1"], name="new").digest


def test_a_tag_that_somebody_puts_meanwhile(images: Registry, repository: str):
    """A tag that is pushed while the image is brought back is not overwritten."""
    old = push_image(images, repository, ["v1", "v2"], name="old")
    entry = recycle(images, entry_of(repository, old, ["v1", "v2"]))
    busy = Busy(images)
    done = restore(busy, entry)

    assert {"v1": busy.pushed, "v2": old.digest} == tags_of(images, repository)
    assert (("v2",), {"v1": busy.pushed}, True) == (done.tags, done.taken, done.left_in_bin)


def test_the_last_tag_is_taken_meanwhile(images: Registry, repository: str):
    """An image that is back without any of its tags stays in the bin, whatever the caller says."""
    old = push_image(images, repository, ["v1"], name="old")
    entry = recycle(images, entry_of(repository, old, ["v1"]))
    done = restore(Busy(images), entry, keep_in_bin=False)

    assert ((), True) == (done.tags, done.left_in_bin)
    assert [entry] == list(entries(images, repository))


def test_a_signature_whose_tag_is_taken(images: Registry, repository: str):
    """A signature that cannot come back under its tag is told and stays in the bin; the image is back."""
    team = push_team(images, repository)
    recycle_all(images, team.entries)
    tag = team.multi.digest.replace(":", "-") + ".sig"
    other = push_image(images, repository, [tag], name="other signature")
    done = restore(images, read_entry(images, repository, team.multi.digest))

    assert (("latest", "v1"), False) == (done.tags, done.left_in_bin)
    assert [team.listed.digest] == [part.entry.digest for part in done.referrers]
    assert f"{tag} stands for {other.digest}" in " ".join(done.troubles)
    assert team.cosign.digest in {entry.digest for entry in entries(images, repository)}
