"""The marker of a registry on servers and in folders: it stays, and says which registry this is."""

from __future__ import annotations

from contextlib import closing

import pytest
from tests.services.bin_kit import entry_of, recycle
from tests.services.image_kit import push_image

from ebbtide.core.errors import MetadataError, Refused, SafetyStop
from ebbtide.targets.oci.bin.contents import bin_repositories, clear_leftovers, discard_each, entries
from ebbtide.targets.oci.bin.entry import MARKER_REPOSITORY, bin_repository, is_bin
from ebbtide.targets.oci.client.image_layout import ImageLayout
from ebbtide.targets.oci.client.registry import Registry, open_registry
from ebbtide.targets.oci.purge.identity import (
    MARKER_TAG,
    RegistryMarker,
    is_same_registry,
    read_marker,
    write_marker,
)


def test_what_is_written_is_read(images: Registry):
    """A marker reads back; a new one takes its place."""
    first, second = RegistryMarker.new("oci://one"), RegistryMarker.new("oci://one")
    write_marker(images, first)
    found = read_marker(images)
    write_marker(images, second)

    assert (first, second) == (found, read_marker(images))
    assert first.id != second.id


def test_a_marker_says_whose_it_is(images: Registry):
    """The marker of a rehearsal reads back as one, and is no business of a real root."""
    marker = RegistryMarker.new("oci://one", rehearsal=True)
    write_marker(images, marker)
    found = read_marker(images)
    # Other tests use the same server, with real roots.
    write_marker(images, RegistryMarker.new("oci://one"))

    assert marker == found
    found.check_kind("oci://one", rehearsal=True)
    with pytest.raises(SafetyStop, match="belongs to a rehearsal"):
        found.check_kind("oci://one", rehearsal=False)


def test_a_registry_without_a_marker(layout: ImageLayout):
    """It has none until one is written."""
    assert read_marker(layout) is None


def test_one_registry_and_its_copy(layout: ImageLayout, tmp_path):
    """What is written to one of two that are one can be read from the other, and not from a copy."""
    marker = RegistryMarker.new("oci-layout:x")
    write_marker(layout, marker)
    (tmp_path / "copy").mkdir()
    with (
        closing(open_registry(layout.spec)) as same,
        closing(open_registry(f"oci-layout:{tmp_path}/copy")) as copy,
    ):
        write_marker(copy, marker)

        assert is_same_registry(layout, marker, same)
        assert not is_same_registry(layout, marker, copy)


def test_the_marker_survives_everything_that_empties_bins(images: Registry, repository: str):
    """Its repository is a bin to scans, none to those who list bins, and clearing it removes nothing."""
    marker = RegistryMarker.new("oci://one")
    write_marker(images, marker)
    recycle(images, entry_of(repository, push_image(images, repository, ["v1"]), ["v1"]))
    bins = set(bin_repositories(images))
    cleared = clear_leftovers(images, MARKER_REPOSITORY)
    list(discard_each(images, list(entries(images, repository))))

    assert is_bin(MARKER_REPOSITORY)
    assert MARKER_REPOSITORY not in bins
    assert bin_repository(repository) in bins
    assert [] == cleared
    assert marker == read_marker(images)
    with pytest.raises(Refused, match="marker"):
        bin_repository("ebbtide-registry-marker")


def test_something_else_in_its_place(layout: ImageLayout):
    """Nobody can say which registry this is, so it stops."""
    push_image(layout, MARKER_REPOSITORY, [MARKER_TAG])
    with pytest.raises(MetadataError, match="cannot be understood"):
        read_marker(layout)
