"""The recycle bin of image layouts: bytes are freed there, and only those that nothing needs."""

from __future__ import annotations

from tests.services.bin_kit import entry_of, push_team, recycle, recycle_all, whole
from tests.services.image_kit import Pushed, push_image

from ebbtide.targets.oci.bin.contents import discard, discard_each, read_entry
from ebbtide.targets.oci.bin.moves import restore
from ebbtide.targets.oci.client.image_layout import ImageLayout
from ebbtide.targets.oci.client.manifest import OCI_MANIFEST
from ebbtide.targets.oci.client.names import digest_of
from ebbtide.targets.oci.client.registry import Manifest


def blobs(layout: ImageLayout, repository: str) -> set[str]:
    """Name all blobs that lie in a layout."""
    return {f"sha256:{p.name}" for p in (layout.root / repository / "blobs" / "sha256").iterdir()}


def test_discarding_frees_bytes(layout: ImageLayout):
    """The layers of a discarded image go at once, and those that another entry shares stay."""
    doomed = push_image(layout, "app", ["v1"], layers=[b"base", b"doomed"], name="doomed")
    kept = push_image(layout, "app", ["v2"], layers=[b"base", b"kept"], name="kept")
    gone, waits = (recycle(layout, entry_of("app", one, [t])) for one, t in ((doomed, "v1"), (kept, "v2")))
    discard(layout, gone)
    left = blobs(layout, gone.bin)

    assert digest_of(b"doomed") not in left
    assert doomed.digest not in left
    assert set(whole(layout, waits.bin, kept.digest)) < left
    assert set(whole(layout, waits.bin, kept.digest)) | {layout.resolve(waits.bin, waits.tag).digest} == left


def test_an_empty_bin_has_no_bytes(layout: ImageLayout):
    """When all is discarded or restored, no blob is left in the bin, and none is lost outside."""
    team = push_team(layout, "app")
    new, multi = whole(layout, "app", team.new.digest), whole(layout, "app", team.multi.digest)
    kept = recycle_all(layout, team.entries)
    back = next(entry for entry in kept if entry.digest == team.multi.digest)
    done = restore(layout, back)
    list(discard_each(layout, [e for e in kept if e not in [back, *(p.entry for p in done.referrers)]]))

    assert set() == blobs(layout, back.bin)
    assert new == whole(layout, "app", team.new.digest)
    assert multi == whole(layout, "app", team.multi.digest)


def test_digests_of_another_kind(layout: ImageLayout):
    """An image known by a SHA-512, which is too long for a tag, comes back by it."""
    body = push_image(layout, "app", layers=[b"base"]).manifest.body
    manifest = Manifest(digest_of(body, "sha512"), OCI_MANIFEST, body)
    layout.put_manifest("app", "v1", manifest)
    entry = recycle(layout, entry_of("app", Pushed(manifest), ["v1"]))
    done = restore(layout, read_entry(layout, "app", manifest.digest))

    assert ("v1",) == done.tags
    assert manifest == layout.manifest("app", "v1")
    assert [] == list(layout.tags(entry.bin))
