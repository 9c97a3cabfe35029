"""Names of images in registries and folders, and the uid of a whole registry."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebbtide.core.errors import BadInput
from ebbtide.targets.oci.client.address import ImageRef, image_ref, registry_address, registry_uid

DIGEST = f"sha256:{1:064x}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("oci://R.example/app:v1", ImageRef("oci://r.example", "app", "v1")),
        ("oci://r.example:5000/a/b:v1", ImageRef("oci://r.example:5000", "a/b", "v1")),
        ("oci://r.example:443/a:v1", ImageRef("oci://r.example", "a", "v1")),
        ("oci://[::1]:5000/a:v1", ImageRef("oci://[::1]:5000", "a", "v1")),
        (f"oci://r.example/a/b@{DIGEST}", ImageRef("oci://r.example", "a/b", "", DIGEST)),
        ("oci-layout:/data/images//a/b:v1", ImageRef("oci-layout:/data/images", "a/b", "v1")),
        ("file:///data/images//a:v1", ImageRef("oci-layout:/data/images", "a", "v1")),
        ("oci-layout:/data:x/y@z//a:v1", ImageRef("oci-layout:/data:x/y@z", "a", "v1")),
        (f"oci-layout:/data//x//a@{DIGEST}", ImageRef("oci-layout:/data/x", "a", "", DIGEST)),
    ],
)
def test_names_of_images(text, expected):
    """A name says in which registry, which repository, and which tag or digest; it reads back as the same."""
    assert expected == image_ref(text)
    assert expected == image_ref(str(expected))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "names no image"),
        ("app:v1", "names no image"),
        ("oci://r.example", "names no image"),
        ("oci://r.example/", "names no image"),
        ("oci://r.example/app", "neither tag nor digest"),
        ("oci://r.example/app:", "is not a tag"),
        ("oci://r.example/app:-x", "is not a tag"),
        ("oci://r.example/app@sha256:1", "is not a digest"),
        ("oci://r.example/app:x@", "a tag and a digest"),
        (f"oci://r.example/app:v1@{DIGEST}", "a tag and a digest"),
        ("oci://r.example/../app:v1", "not the name of a repository"),
        ("oci://r.example//app:v1", "not the name of a repository"),
        ("oci-layout:/data/app:v1", "names no image"),
        ("file:///data/app:v1", "names no image"),
        ("file://data", "names no image"),
        ("https://r.example/app:v1", "not the address of a registry"),
        ("//app:v1", "names no image"),
    ],
)
def test_what_names_no_image(text, why):
    """Anything else is an error that says why."""
    with pytest.raises(BadInput, match=why):
        image_ref(text)


@pytest.mark.parametrize("text", ["oci://u:secret@r.example/app:v1", "oci://u:secret@r.example/app"])
def test_a_password_in_a_name_is_not_shown(text):
    """Names are written into logs, so one with a password is refused without repeating it."""
    with pytest.raises(BadInput, match="has a user name in it") as refused:
        image_ref(text)

    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "other", ["oci://r.example/", "oci://R.EXAMPLE", "oci://r.example:443", "oci://r.example/team/app"]
)
def test_a_registry_has_one_uid(other):
    """Whatever repository and spelling: pins of one registry are in one place."""
    assert registry_uid("oci://r.example") == registry_uid(other)


@pytest.mark.parametrize(
    "other", ["oci://r.example:80", "oci://r.example:5000", "oci://s.example", "oci-layout:/r.example"]
)
def test_registries_have_different_uids(other):
    """Another host, port or kind is another registry."""
    assert registry_uid("oci://r.example") != registry_uid(other)
    assert 32 == len(registry_uid(other))


def test_a_folder_has_one_uid(tmp_path, monkeypatch):
    """A link, a path with dots, a relative one, or one of its layouts: it is the same folder."""
    layout = tmp_path / "images" / "app"
    layout.mkdir(parents=True)
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (tmp_path / "link").symlink_to(tmp_path / "images")
    monkeypatch.chdir(tmp_path)
    spellings = [
        f"oci-layout:{tmp_path}/images",
        f"oci-layout:{tmp_path}/link",
        f"oci-layout:{tmp_path}/images/../images/",
        "oci-layout:images",
        f"file://{tmp_path}/images",
        f"oci-layout:{layout}",
    ]

    assert {f"oci-layout:{Path(tmp_path).resolve()}/images"} == {registry_address(one) for one in spellings}
    assert 1 == len({registry_uid(one) for one in spellings})


def test_a_folder_that_leads_nowhere(tmp_path):
    """A link to itself is an error in words."""
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(BadInput, match="cannot be followed"):
        registry_uid(f"oci-layout:{tmp_path}/loop/x")
