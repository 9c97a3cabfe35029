"""Names in the recycle bin."""

from __future__ import annotations

import pytest

from ebbtide.core.errors import BadInput, Refused
from ebbtide.targets.oci.bin.entry import (
    BIN,
    bin_repository,
    entry_tag,
    image_tag,
    is_bin,
    is_entry_tag,
    is_manifest_tag,
    manifest_tag,
    original_of,
)
from ebbtide.targets.oci.client.names import is_tag

LONGEST = 255 - len(BIN)


def test_a_bin_and_its_original():
    """A bin is named after its repository, and leads back to it."""
    assert "ebbtide-recycle/team/app" == bin_repository("team/app")
    assert "team/app" == original_of("ebbtide-recycle/team/app")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ebbtide-recycle/app", True),
        ("ebbtide-recycle", False),
        ("ebbtide-recycle/", False),
        ("ebbtide-recycled/app", False),
        ("team/ebbtide-recycle/app", False),
    ],
)
def test_what_is_a_bin(name: str, expected: bool):  # noqa: FBT001 (a column of the table)
    """Only what lies below the folder of bins is one."""
    assert expected == is_bin(name)


def test_names_that_are_too_long():
    """The longest name that still fits has a bin; one letter more is refused."""
    assert 255 == len(bin_repository("a" * LONGEST))
    with pytest.raises(Refused, match="255"):
        bin_repository("a" * (LONGEST + 1))


@pytest.mark.parametrize("name", ["ebbtide-recycle/app", "../app", ""])
def test_what_has_no_bin(name: str):
    """A bin has no bin, and what is no name has none."""
    with pytest.raises(BadInput):
        bin_repository(name)


def test_what_has_no_original():
    """An ordinary repository is nobody's bin."""
    with pytest.raises(BadInput):
        original_of("team/app")


@pytest.mark.parametrize("digest", ["sha256:" + "a" * 64, "sha512:" + "b" * 128])
def test_tags_in_the_bin(digest: str):
    """The tags of every kind of digest can be tags, are told apart, and lead from the entry to the image."""
    entry, manifest = entry_tag(digest), manifest_tag(digest)

    assert is_tag(entry)
    assert is_tag(manifest)
    assert (True, False) == (is_entry_tag(entry), is_manifest_tag(entry))
    assert (False, True) == (is_entry_tag(manifest), is_manifest_tag(manifest))
    assert manifest == image_tag(entry)
