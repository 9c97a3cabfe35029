"""Rehearsals that took over a registry of a real root (issue 15, A1 and A6)."""

from __future__ import annotations

import json
from contextlib import closing

import pytest
from tests.services.image_kit import push_image

from ebbtide.cli.main import run
from ebbtide.targets.oci.bin.entry import MARKER_REPOSITORY
from ebbtide.targets.oci.client.manifest import OCI_MANIFEST
from ebbtide.targets.oci.client.names import digest_of
from ebbtide.targets.oci.client.registry import Manifest, open_registry
from ebbtide.targets.oci.purge.identity import MARKER_PREFIX, MARKER_TAG

KINDS = {"real": [], "rehearsal": ["--rehearsal"]}


@pytest.fixture
def root(tmp_path, monkeypatch, capsys):
    """Give what runs a command in a root of either kind, and returns its exit code and errors."""
    for kind, options in KINDS.items():
        (tmp_path / kind).mkdir()
        monkeypatch.chdir(tmp_path / kind)
        assert 0 == run(["init", *options])

    def command(kind, *words):
        monkeypatch.chdir(tmp_path / kind)
        capsys.readouterr()
        code = run(list(words))
        return code, capsys.readouterr().err

    return command


@pytest.fixture
def target(tmp_path):
    """Give a folder with one image."""
    (tmp_path / "images").mkdir()
    target = f"oci-layout:{tmp_path}/images"
    with closing(open_registry(target)) as registry:
        push_image(registry, "app", ["v1"])
    return target


@pytest.mark.parametrize(("first", "second"), [("real", "rehearsal"), ("rehearsal", "real")])
def test_a_registry_belongs_to_one_kind_of_root(root, target, first, second):
    """Pinning, adopting and planning stop with exit code 3 in a registry of a root of the other kind."""
    pin = ("image", "pin", f"{target}//app:v1")
    mine, _ = root(first, *pin)
    others = [
        root(second, *words)
        for words in (
            pin,
            ("image", "adopt", target),
            ("image", "adopt", target, "--as-new"),
            ("plan", target),
        )
    ]
    again, _ = root(first, *pin)

    assert (0, 0) == (mine, again)
    assert [3] * 4 == [code for code, _ in others]
    assert all("belongs to a re" in said for _, said in others)


def without_kind(target):
    """Rewrite the marker of a registry as earlier versions wrote it."""
    with closing(open_registry(target)) as registry:
        plain = json.loads(registry.manifest(MARKER_REPOSITORY, MARKER_TAG).body)
        del plain["annotations"][f"{MARKER_PREFIX}kind"]
        body = json.dumps(plain).encode()
        registry.put_manifest(MARKER_REPOSITORY, MARKER_TAG, Manifest(digest_of(body), OCI_MANIFEST, body))


def test_a_marker_of_an_earlier_version_is_real(root, target):
    """A marker that does not say its kind belongs to a real root: that one goes on, and a rehearsal stops."""
    pin = ("image", "pin", f"{target}//app:v1")
    root("real", *pin)
    without_kind(target)

    assert 0 == root("real", *pin)[0]
    assert 3 == root("rehearsal", *pin)[0]
