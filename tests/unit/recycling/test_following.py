"""What follows an image out of the bin, and in which order manifests are deleted."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.services.bin_kit import DAY, NOON

from ebbtide.targets.oci.bin.entry import BinEntry, KeptTag, followers, is_follower, signature_tags
from ebbtide.targets.oci.bin.image_copy import removal_order
from ebbtide.targets.oci.client.manifest import Content
from ebbtide.targets.oci.client.names import digest_of
from ebbtide.targets.oci.client.registry import Descriptor

D = [digest_of(bytes([number])) for number in range(8)]
IMAGE = BinEntry("app", D[0], NOON, NOON + DAY, (KeptTag("v1"),))


def test_all_that_follows():
    """Referrers, what is tagged after a platform, and signatures of signatures follow; others do not."""
    attestation = replace(IMAGE, digest=D[2], tags=(), subject=D[0])
    of_a_platform = replace(IMAGE, digest=D[3], tags=(KeptTag(D[1].replace(":", "-") + ".sig"),))
    of_the_attestation = replace(IMAGE, digest=D[4], tags=(), subject=D[2])
    stranger = replace(IMAGE, digest=D[5], tags=(KeptTag("v2"),), subject=D[6])
    found = followers(IMAGE, [D[0], D[1]], [of_the_attestation, stranger, of_a_platform, attestation, IMAGE])

    assert {D[2], D[3], D[4]} == {entry.digest for entry in found}
    assert found.index(attestation) < found.index(of_the_attestation)
    assert [True, True, True, True, False] == [
        is_follower(entry) for entry in (attestation, of_a_platform, of_the_attestation, stranger, IMAGE)
    ]


def test_long_digests_are_cut_in_tags():
    """A SHA-512 is followed by tags that hold all of it, and by those that hold what the standard leaves."""
    digest = "sha512:" + "ab" * 64

    assert {f"sha512-{'ab' * 64}.sig", f"sha512-{'ab' * 32}.sig"} <= signature_tags(digest)


@given(st.data())
def test_removal_order(data: st.DataObject):
    """Every manifest comes once, before its children and before its subject."""
    contents = {}
    for number, digest in enumerate(D):
        below = D[:number]
        children = data.draw(st.lists(st.sampled_from(below), unique=True) if below else st.just([]))
        subject = data.draw(st.sampled_from([*below, ""]))
        contents[digest] = Content(tuple(Descriptor(child, 1) for child in children), subject=subject)
    order = removal_order(contents)

    assert sorted(D) == sorted(order)
    for digest, content in contents.items():
        for needed in [child.digest for child in content.children] + [content.subject] * bool(
            content.subject
        ):
            assert order.index(digest) < order.index(needed)
