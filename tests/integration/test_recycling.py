"""The recycle bin from end to end: a real registry, its own garbage collector, and pulls by another tool."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.services.bin_kit import entry_of, push_team, recycle, recycle_all, tags_of, whole
from tests.services.image_kit import Pushed, manifest_of, push_image
from tests.services.registry import RegistryServer, registry_server, skopeo

from ebbtide.core.errors import MetadataError, NotFound, Unsupported
from ebbtide.targets.oci.bin.contents import discard, discard_each, entries, read_entry
from ebbtide.targets.oci.bin.moves import restore, set_aside
from ebbtide.targets.oci.client.manifest import OCI_MANIFEST
from ebbtide.targets.oci.client.names import digest_of
from ebbtide.targets.oci.client.registry import Registry, RegistrySpec, open_registry

Folder = dict[str, str]


@pytest.fixture
def server(tmp_path) -> Iterator[RegistryServer]:
    """Run a registry of this test's own, whose collector may be run."""
    with registry_server(tmp_path / "server") as running:
        yield running


@pytest.fixture
def images(server: RegistryServer) -> Registry:
    """Open it."""
    return open_registry(RegistrySpec(server.url))


def pull(server: RegistryServer, name: str, folder: Path) -> Folder:
    """Pull an image for all platforms to a folder by skopeo; give the hash of every file there."""
    source = f"docker://127.0.0.1:{server.port}/{name}"
    skopeo("copy", "--all", "--preserve-digests", "--src-tls-verify=false", source, f"dir:{folder}")
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def stored(server: RegistryServer, digest: str) -> bool:
    """Tell whether the registry stores the bytes of a blob, whatever it says."""
    value = digest.removeprefix("sha256:")
    return bool(list((server.folder / "data").rglob(f"blobs/sha256/{value[:2]}/{value}/data")))


@pytest.mark.parametrize("options", [(), ("-m",)], ids=["collected", "collected with -m"])
def test_requirement_6_0_there_and_back(
    server: RegistryServer, images: Registry, tmp_path: Path, options: tuple[str, ...]
):
    """What was set aside outlives the registry's collector and is pulled again byte for byte."""
    team = push_team(images, "team/app")
    elsewhere = push_image(images, "other/app", ["v1"], layers=[b"base", b"elsewhere"], name="elsewhere")
    lost = push_image(images, "team/app", ["lost"], layers=[b"lost"], name="lost")
    stem = team.multi.digest.replace(":", "-")
    names = ["v1", "latest", "v2", f"{stem}.sig", stem, "moved"]
    before = [pull(server, f"team/app:{name}", tmp_path / f"a{n}") for n, name in enumerate(names)]
    old = whole(images, "team/app", team.old.digest)
    recycle_all(images, team.entries)
    images.delete_manifest("team/app", lost.digest)
    server.garbage_collect(*options)
    between = tags_of(images, "team/app")
    restore(images, read_entry(images, "team/app", team.multi.digest))
    restore(images, read_entry(images, "team/app", team.sibling.digest))
    restore(images, read_entry(images, "team/app", team.old.digest))
    server.garbage_collect()
    after = [pull(server, f"team/app:{name}", tmp_path / f"b{n}") for n, name in enumerate(names)]

    assert {"moved": team.new.digest} == between
    assert before == after
    assert old == whole(images, "team/app", team.old.digest)
    assert [team.signature.digest] == [d.digest for d in images.referrers("team/app", team.multi.digest)]
    assert elsewhere.manifest == images.manifest("other/app", "v1")
    assert b"elsewhere" in whole(images, "other/app", elsewhere.digest).values()
    assert not stored(server, lost.blobs[1])
    assert [] == list(entries(images))


def test_emptying_frees_bytes(server: RegistryServer, images: Registry):
    """What is discarded is freed by the next collection; what others share is not."""
    doomed = push_image(images, "app", ["v1"], layers=[b"base", b"doomed"], name="doomed")
    kept = push_image(images, "app", ["v2"], layers=[b"base", b"kept"], name="kept")
    gone, waits = (recycle(images, entry_of("app", one, [t])) for one, t in ((doomed, "v1"), (kept, "v2")))
    server.garbage_collect("-m")
    waiting = stored(server, doomed.blobs[2])
    discard(images, gone)
    server.garbage_collect("-m")
    found = [stored(server, digest) for digest in (*doomed.blobs, *kept.blobs)]

    assert waiting
    assert [False, True, False, True, True, True] == found
    assert [waits] == list(entries(images))
    assert ("v2",) == restore(images, waits).tags
    assert {b"base", b"kept"} <= set(whole(images, "app", kept.digest).values())


def test_deletes_switched_off(tmp_path: Path):
    """Where nothing can be deleted, the bin says so clearly, and a restored image is back all the same."""
    with registry_server(tmp_path / "server", deletes=False) as server:
        images = open_registry(RegistrySpec(server.url))
        pushed = push_image(images, "app", ["v1"])
        entry = set_aside(images, entry_of("app", pushed, ["v1"]))
        results = list(discard_each(images, [entry]))
        with pytest.raises(Unsupported, match=r"cannot be emptied.*does not delete"):
            discard(images, entry)
        done = restore(images, entry)

        assert [True] == [isinstance(one.error, Unsupported) for one in results]
        assert [entry] == list(entries(images))
        assert (("v1",), True) == (done.tags, done.left_in_bin)
        assert "cannot be emptied" in " ".join(done.troubles)


def test_a_blob_that_only_seems_to_be_there(server: RegistryServer, images: Registry):
    """An image whose bytes are lost is not set aside if every blob is read, and the original stays."""
    pushed = push_image(images, "app", ["v1"], layers=[b"a layer that gets lost"])
    value = pushed.blobs[1].removeprefix("sha256:")
    (path,) = (server.folder / "data").rglob(f"blobs/sha256/{value[:2]}/{value}/data")
    path.write_bytes(b"a layer that was 'lost")
    with pytest.raises(MetadataError):
        set_aside(images, entry_of("app", pushed, ["v1"]), read_blobs=True)

    assert [] == list(entries(images))
    path.unlink()
    with pytest.raises((MetadataError, NotFound)):
        set_aside(images, entry_of("app", pushed, ["v1"]))
    assert [] == list(entries(images))
    assert {"v1": pushed.digest} == tags_of(images, "app")


def test_layers_that_are_a_vendors(server: RegistryServer, images: Registry):
    """An image with a layer that is fetched from a vendor is set aside and restored without that layer."""
    settings = json.loads(server.config.read_text())
    settings["validation"] = {"manifests": {"urls": {"allow": ["^https://vendor"]}}}
    server.stop()
    server.config.write_text(json.dumps(settings))
    server.start()
    document = json.loads(push_image(images, "app").manifest.body)
    document["layers"].append(
        {
            "mediaType": "application/vnd.oci.image.layer.nondistributable.v1.tar",
            "digest": digest_of(b"elsewhere"),
            "size": 9,
            "urls": ["https://vendor.example/layer"],
        }
    )
    foreign = Pushed(manifest_of(document, OCI_MANIFEST))
    images.put_manifest("app", "v1", foreign.manifest)
    restore(images, recycle(images, entry_of("app", foreign, ["v1"])))

    assert foreign.manifest == images.manifest("app", "v1")
