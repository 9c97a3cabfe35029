"""Image layouts on disk: what only they can do, and what becomes of damaged ones."""

from __future__ import annotations

import json
import os
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.services.image_kit import push_image, push_index, push_signature

from ebbtide.core.errors import BadInput, EbbtideError, MetadataError, NotFound, Refused, StoreError
from ebbtide.targets.oci.client.image_layout import ImageLayout
from ebbtide.targets.oci.client.layout_folder import LayoutFolder
from ebbtide.targets.oci.client.manifest import OCI_INDEX
from ebbtide.targets.oci.client.names import digest_of
from ebbtide.targets.oci.client.registry import Ability, RegistrySpec

LATER = datetime(2100, 1, 1, tzinfo=UTC)


def index_of(layout: ImageLayout, repository: str) -> dict:
    """Read index.json."""
    return json.loads((layout.root / repository / "index.json").read_bytes())


def blobs_of(layout: ImageLayout, repository: str) -> set[str]:
    """Name all blobs that lie in a layout."""
    folder = layout.root / repository / "blobs" / "sha256"
    return {f"sha256:{path.name}" for path in folder.iterdir()}


def test_a_tag_is_deleted_alone(layout: ImageLayout):
    """A deleted tag leaves its manifest and the other tags, and a second time there is nothing."""
    pushed = push_image(layout, "app", ["v1", "v2"])

    assert layout.delete_tag("app", "v1")
    assert ["v2"] == list(layout.tags("app"))
    assert pushed.manifest == layout.manifest("app", pushed.digest)
    assert not layout.delete_tag("app", "v1")


def test_the_last_tag_leaves_an_untagged_manifest(layout: ImageLayout):
    """A manifest whose last tag went is still listed, so that it can be found and judged."""
    pushed = push_image(layout, "app", ["v1"])
    layout.delete_tag("app", "v1")

    assert [pushed.digest] == list(layout.untagged("app"))
    assert pushed.manifest == layout.manifest("app", pushed.digest)


def test_what_others_wrote_into_the_index_stays(layout: ImageLayout):
    """Rewriting index.json keeps what Ebbtide does not know: other rows, annotations and fields."""
    push_image(layout, "app", ["v1", "v2"])
    path = layout.root / "app" / "index.json"
    document = index_of(layout, "app")
    document["annotations"] = {"who": "another tool"}
    document["manifests"][0]["platform"] = {"os": "linux"}
    document["manifests"][0]["annotations"]["note"] = "kept"
    path.write_text(json.dumps(document))
    other = push_image(layout, "app", ["v3"], name="other")
    layout.delete_manifest("app", other.digest)

    assert document == index_of(layout, "app")
    layout.delete_tag("app", document["manifests"][1]["annotations"]["org.opencontainers.image.ref.name"])
    assert document["manifests"][:1] == index_of(layout, "app")["manifests"]


def test_everything_is_possible_on_a_disk(layout: ImageLayout):
    """A layout can do all that a registry may be able to."""
    push_image(layout, "app", ["v1"])
    found = layout.capabilities("app")

    assert {Ability.YES} == {
        found.manifest_delete,
        found.tag_delete,
        found.referrers_api,
        found.untagged_listing,
    }


def test_repositories_are_folders(layout: ImageLayout):
    """Layouts at any depth are repositories by their path, and blobs are not looked into."""
    for name in ("b/c", "a", "b/c/d"):
        push_image(layout, name, ["v1"])
    (layout.root / "no layout").mkdir()

    assert ["a", "b/c", "b/c/d"] == list(layout.repositories())


def test_the_address_of_one_layout(layout: ImageLayout):
    """The address of a layout is that of its folder's one repository."""
    pushed = push_image(layout, "app", ["v1"])
    push_image(layout, "other", ["v1"])
    single = ImageLayout(RegistrySpec(f"oci-layout:{layout.root}/app"))

    assert ["app"] == list(single.repositories())
    assert pushed.manifest == single.manifest("app", "v1")


def test_a_child_is_not_deleted_under_its_index(layout: ImageLayout):
    """A manifest that an index needs is Refused, and can go once the index has gone."""
    child = push_image(layout, "app", name="amd64")
    index = push_index(layout, "app", ["v1"], [child])
    with pytest.raises(Refused):
        layout.delete_manifest("app", child.digest)

    assert child.manifest == layout.manifest("app", child.digest)
    assert layout.delete_manifest("app", index.digest)
    assert layout.delete_manifest("app", child.digest)


def test_blobs_that_nothing_needs_are_removed(layout: ImageLayout):
    """After a delete, the sweep removes what only the deleted image needed, and all else stays whole."""
    doomed = push_image(layout, "app", ["v1"], name="doomed", layers=[b"own", b"shared"])
    child = push_image(layout, "app", name="child", layers=[b"shared"])
    index = push_index(layout, "app", ["v2"], [child])
    signature = push_signature(layout, "app", index)
    needed = {index.digest, child.digest, *child.blobs, signature.digest, *signature.blobs}
    layout.delete_manifest("app", doomed.digest)
    removed = layout.remove_unneeded_blobs("app", LATER)

    assert {doomed.blobs[0], digest_of(b"own")} == set(removed)
    assert needed <= blobs_of(layout, "app")
    assert [] == layout.remove_unneeded_blobs("app", LATER)


def test_young_blobs_are_left(layout: ImageLayout):
    """A blob that was written or asked for again after the moment stays: its manifest may be on the way."""
    push_image(layout, "app", ["v1"])
    for data in (b"old", b"used again"):
        layout.put_blob("app", digest_of(data), len(data), lambda data=data: [data])
        os.utime(layout.root / "app/blobs/sha256" / digest_of(data)[7:], (1, 1))
    layout.put_blob("app", digest_of(b"used again"), 10, lambda: [b"used again"])
    removed = layout.remove_unneeded_blobs("app", datetime(2000, 1, 1, tzinfo=UTC))

    assert [digest_of(b"old")] == removed


def test_what_a_crash_left_is_swept(layout: ImageLayout):
    """Half-written files of a crashed upload are removed when they are old."""
    push_image(layout, "app", ["v1"])
    left = layout.root / "app/blobs/sha256/.ebbtide-0123"
    left.write_bytes(b"half")

    assert [] == layout.remove_unneeded_blobs("app", datetime(2000, 1, 1, tzinfo=UTC))
    assert left.exists()
    layout.remove_unneeded_blobs("app", LATER)
    assert not left.exists()


def test_a_damaged_blob_is_written_again(layout: ImageLayout):
    """A blob whose bytes on disk are wrong does not count as there, so that a restore repairs it."""
    pushed = push_image(layout, "app", ["v1"], layers=[b"layer"])
    path = layout.root / "app/blobs/sha256" / pushed.blobs[1][7:]
    path.write_bytes(b"LAYER")
    with pytest.raises(MetadataError):
        list(layout.blob("app", pushed.blobs[1]))
    layout.put_blob("app", pushed.blobs[1], 5, lambda: [b"layer"])

    assert b"layer" == path.read_bytes()


def test_a_write_that_fails_changes_nothing(layout: ImageLayout, monkeypatch: pytest.MonkeyPatch):
    """If index.json cannot be moved into place, the old one stands and nothing is left beside it."""
    push_image(layout, "app", ["v1", "v2"])
    before = index_of(layout, "app")

    replace = Path.replace

    def refuse(path: Path, target: Path) -> Path:
        if not path.is_relative_to(layout.root):
            return replace(path, target)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(StoreError, match="No space"):
        layout.delete_tag("app", "v1")

    assert before == index_of(layout, "app")
    assert ["blobs", "index.json", "oci-layout"] == sorted(p.name for p in (layout.root / "app").iterdir())


def test_two_writers_lose_nothing(layout: ImageLayout):
    """Tags that several threads write and delete at once all end as each left them."""

    def work(number: int) -> None:
        push_image(layout, "app", [f"stays-{number}", f"goes-{number}"], name=str(number))
        layout.delete_tag("app", f"goes-{number}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [f"stays-{n}" for n in range(6)] == sorted(layout.tags("app"))


def test_a_layout_that_another_made_meanwhile(layout: ImageLayout, monkeypatch: pytest.MonkeyPatch):
    """Making a layout that somebody else has just made and filled leaves what is in it."""
    push_image(layout, "app", ["v1"])
    before = index_of(layout, "app")
    exists = Path.exists
    monkeypatch.setattr(Path, "exists", lambda path: not path.is_relative_to(layout.root) and exists(path))
    LayoutFolder(layout.root / "app").create()
    monkeypatch.undo()

    assert before == index_of(layout, "app")


def corrupt(folder: Path, name: str, body: bytes | None) -> None:
    """Overwrite or remove a file of a layout."""
    if body is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(body)


ROW = {"mediaType": OCI_INDEX, "digest": digest_of(b"x"), "size": 1}
TAGGED = {"annotations": {"org.opencontainers.image.ref.name": "v1"}}
TWICE = [{**ROW, **TAGGED}, {**ROW, **TAGGED, "digest": digest_of(b"y")}]


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("oci-layout", b'{"imageLayoutVersion":"9"}'),
        ("oci-layout", b"nonsense"),
        ("index.json", None),
        ("index.json", b""),
        ("index.json", b"[]"),
        ("index.json", b'{"schemaVersion":2}'),
        ("index.json", json.dumps({"manifests": [{**ROW, "digest": "sha256:../../x"}]}).encode()),
        ("index.json", json.dumps({"manifests": [{**ROW, "size": -1}]}).encode()),
        ("index.json", json.dumps({"manifests": TWICE}).encode()),
    ],
)
def test_a_damaged_layout(layout: ImageLayout, name: str, body: bytes | None):
    """A layout that cannot be understood is an error for every question, and nothing in it is removed."""
    push_image(layout, "app", ["v1"])
    before = blobs_of(layout, "app")
    corrupt(layout.root / "app", name, body)
    for ask in (
        lambda: list(layout.tags("app")),
        lambda: layout.manifest("app", "v1"),
        lambda: layout.delete_tag("app", "v1"),
        lambda: layout.remove_unneeded_blobs("app", LATER),
    ):
        with pytest.raises(MetadataError):
            ask()

    assert before == blobs_of(layout, "app")


def test_a_missing_manifest_stops_the_sweep(layout: ImageLayout):
    """A manifest that is listed and not there stops a sweep, since nobody knows what it needs."""
    child = push_image(layout, "app", name="child")
    push_index(layout, "app", ["v1"], [child])
    push_image(layout, "app", ["v2"])
    (layout.root / "app/blobs/sha256" / child.digest[7:]).unlink()
    before = blobs_of(layout, "app")
    with pytest.raises(MetadataError, match="no blob for the manifest"):
        layout.remove_unneeded_blobs("app", LATER)

    assert before == blobs_of(layout, "app")


def test_a_listed_manifest_that_is_not_there(layout: ImageLayout):
    """A tag whose manifest is gone is damage and not an answer of NotFound, which would mean no such tag."""
    pushed = push_image(layout, "app", ["v1"])
    (layout.root / "app/blobs/sha256" / pushed.digest[7:]).unlink()
    with pytest.raises(MetadataError, match="which does not exist"):
        layout.manifest("app", "v1")


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda path: RegistrySpec(f"oci-layout:{path}/none"), NotFound),
        (lambda path: RegistrySpec("oci://host"), BadInput),
        (lambda path: RegistrySpec(f"oci-layout:{path}", {"page": "1"}), BadInput),
    ],
)
def test_what_is_no_folder_of_layouts(tmp_path, make, error: type[EbbtideError]):
    """A missing folder, a server's address and options that mean nothing here are refused."""
    with pytest.raises(error):
        ImageLayout(make(tmp_path))


def test_a_repository_cannot_lie_among_blobs(layout: ImageLayout):
    """A repository whose path would lead into a layout's blobs is refused."""
    with pytest.raises(BadInput):
        layout.put_blob("app/blobs/sha256", digest_of(b""), 0, lambda: [b""])


def test_a_manifest_that_skopeo_forgot(layout: ImageLayout):
    """A manifest that no row lists, as skopeo leaves it when it moves a tag, can still be deleted."""
    old = push_image(layout, "app", ["v1"], name="old")
    push_image(layout, "app", ["v2"], name="new")
    document = index_of(layout, "app")
    document["manifests"] = [row for row in document["manifests"] if row["digest"] != old.digest]
    (layout.root / "app/index.json").write_text(json.dumps(document))

    assert layout.delete_manifest("app", old.digest)
    assert not layout.delete_manifest("app", old.digest)
    assert not layout.delete_manifest("app", old.blobs[0])
