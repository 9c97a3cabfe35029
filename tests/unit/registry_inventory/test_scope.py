"""Which repositories a scan takes in, and when a registry that looks empty is not believed."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from tests.services.image_kit import push_image

from ebbtide.core.errors import AlreadyExists, BadInput, SafetyStop
from ebbtide.core.instant import parse_instant
from ebbtide.targets.oci.client.image_layout import ImageLayout
from ebbtide.targets.oci.client.manifest import OCI_MANIFEST, Content
from ebbtide.targets.oci.client.registry import Descriptor, RegistrySpec
from ebbtide.targets.oci.inventory.queries import blobs_of
from ebbtide.targets.oci.inventory.scan import check_catalog, check_tags, find_scope, scan
from ebbtide.targets.oci.inventory.scanner import Scope, TagListing
from ebbtide.targets.oci.inventory.snapshots import Snapshot
from ebbtide.targets.oci.policies.policy import Policies

NOTHING: Any = None
"""A table that is not looked at."""
A, B, C = (f"sha256:{letter * 64}" for letter in "abc")


STOPS, GOES_ON = pytest.raises(SafetyStop, match="last scan"), nullcontext()


def snapshot(*repositories: str, images: int = 1) -> Snapshot:
    """Make a snapshot of which only the numbers count."""
    return Snapshot(NOTHING, NOTHING, dict.fromkeys(repositories, parse_instant("2026-01-01")), images, 1)


@pytest.fixture
def layouts(tmp_path: Path) -> RegistrySpec:
    """Make a folder of two repositories and one of the bin."""
    spec = RegistrySpec(f"oci-layout:{tmp_path}")
    for name in ("app", "team/lib", "ebbtide-recycle/app"):
        push_image(ImageLayout(spec), name, ["v1"])
    return spec


def test_all_repositories(layouts: RegistrySpec):
    """All are taken in but the bin's, and those that were known and are not listed any more."""
    assert Scope(("app", "team/lib")) == find_scope(layouts, None, None)
    assert Scope(("app", "team/lib"), ("old",)) == find_scope(layouts, snapshot("app", "old"), None)


def test_one_repository(layouts: RegistrySpec):
    """Of an address of one repository, or a choice of some, nothing else is taken in."""
    one = RegistrySpec(f"{layouts.url}/app")

    assert Scope(("app",), whole=False) == find_scope(one, snapshot("app", "old"), None)
    assert Scope(("team/lib",), whole=False) == find_scope(layouts, snapshot("old"), ["team/lib"])


def test_the_bin_is_not_scanned(layouts: RegistrySpec):
    """Who names a repository of the bin is told that it is not scanned."""
    with pytest.raises(BadInput, match="recycle bin"):
        find_scope(layouts, None, ["ebbtide-recycle/app"])


@pytest.mark.parametrize(
    ("scope", "earlier", "expectation"),
    [
        (Scope(()), snapshot("app"), STOPS),
        (Scope((), ("app",)), snapshot("app"), STOPS),
        (Scope(("app",)), snapshot("app"), GOES_ON),
        (Scope(()), snapshot("app", images=0), GOES_ON),
        (Scope(()), None, GOES_ON),
    ],
)
def test_an_empty_catalog(scope: Scope, earlier: Snapshot | None, expectation: AbstractContextManager[Any]):
    """A registry that held images and lists no repository is not believed."""
    with expectation:
        check_catalog(scope, earlier)


@pytest.mark.parametrize(
    ("scope", "count", "absent", "earlier", "expectation"),
    [
        (Scope(("a", "b")), 0, (), 5, STOPS),
        (Scope(("a", "b")), 1, ("a",), 5, GOES_ON),
        (Scope(("a", "b")), 0, (), 0, GOES_ON),
        (Scope(("a",), whole=False), 0, ("a",), 5, STOPS),
        (Scope(("a",), whole=False), 0, (), 5, GOES_ON),
    ],
)
def test_all_tags_gone(
    scope: Scope, count: int, absent: tuple[str, ...], earlier: int, expectation: AbstractContextManager[Any]
):
    """All tags of one repository may go at once if it says so itself; those of a registry do not."""
    tagged = TagListing(NOTHING, count, frozenset(absent))
    with expectation:
        check_tags(scope, tagged, earlier)


def test_a_folder_that_is_there_is_not_touched(layouts: RegistrySpec, tmp_path: Path):
    """A scan never writes into a folder that it has not made."""
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(AlreadyExists, match="new folder"):
        scan(NOTHING, layouts, tmp_path, policies=Policies())

    assert "mine" == (tmp_path / "mine").read_text()


def test_layers_that_are_listed_as_children():
    """A builder's cache lists layers as manifests: they count as blobs, and manifests do not."""
    children = (
        Descriptor(A, 1, OCI_MANIFEST),
        Descriptor(B, 2, "application/vnd.oci.image.layer.v1.tar+gzip"),
        Descriptor(C, 3),
    )

    assert [{"digest": B, "size": 2}] == blobs_of(Content(children=children))
