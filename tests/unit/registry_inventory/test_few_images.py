"""Scans by the driver: no Spark is asked for anything, and more than few images are left to it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from tests.services.image_kit import push_image, push_index

from ebbtide.core.errors import MetadataError
from ebbtide.core.instant import parse_instant
from ebbtide.engine.tables.counted import write_rows
from ebbtide.targets.oci.client.image_layout import ImageLayout
from ebbtide.targets.oci.client.registry import RegistrySpec
from ebbtide.targets.oci.inventory.scan import CompletedScan, scan
from ebbtide.targets.oci.inventory.scanner import Limits
from ebbtide.targets.oci.inventory.snapshots import read_snapshot
from ebbtide.targets.oci.policies.policy import Policies
from ebbtide.targets.oci.tables import EVENTS

NOW = parse_instant("2026-01-01")
NO_SPARK: Any = None


@pytest.fixture
def layout(tmp_path: Path) -> ImageLayout:
    """Open a registry on an empty folder."""
    (tmp_path / "layouts").mkdir()
    return ImageLayout(RegistrySpec(f"oci-layout:{tmp_path / 'layouts'}"))


def scanned(
    layout: ImageLayout, folder: Path, few: int, *, now: datetime = NOW, **options: Any
) -> CompletedScan:
    """Scan without Spark."""
    limits = Limits(few=few)
    return scan(
        NO_SPARK, layout.spec, folder, policies=Policies(), clock=lambda: now, limits=limits, **options
    )


def moves(done: CompletedScan) -> dict[str, datetime | None]:
    """Read when each tag was moved."""
    rows = ds.dataset(done.folder / "tags", format="parquet").to_table().to_pylist()
    return {row["tag"]: row["moved_at"] for row in rows}


def push_tags(layout: ImageLayout) -> None:
    """Push four tags of one image."""
    push_image(layout, "app", ["v1", "v2", "v3", "v4"])


def push_untagged(layout: ImageLayout) -> None:
    """Push a tag, and three images without one."""
    push_image(layout, "app", ["v1"])
    for number in range(3):
        push_image(layout, "app", name=f"{number}")


def push_children(layout: ImageLayout) -> None:
    """Push an index of three images."""
    push_index(layout, "app", ["v1"], [push_image(layout, "app", name=f"{n}") for n in range(3)])


@pytest.mark.parametrize("push", [push_tags, push_untagged, push_children])
def test_more_than_few_are_left_to_spark(
    layout: ImageLayout, tmp_path: Path, push: Callable[[ImageLayout], None]
):
    """Four tags or manifests are few where four may be, and not where only three may."""
    push(layout)
    done = scanned(layout, tmp_path / "four", few=4)
    with pytest.raises(AttributeError, match="NoneType"):  # Spark is asked, and there is none
        scanned(layout, tmp_path / "three", few=3)

    assert 4 == max(done.images, done.tags)
    assert not (tmp_path / "three").exists()


def test_what_was_known_counts_too(layout: ImageLayout, tmp_path: Path):
    """Where an earlier scan knew more than few, nothing is asked before Spark is."""
    push_tags(layout)
    first = scanned(layout, tmp_path / "first", few=4)
    known = read_snapshot(NO_SPARK, first.folder)

    assert (1, 4) == (known.image_count, known.tag_count)
    assert 4 == scanned(layout, tmp_path / "second", few=5, earlier=known).tags
    with pytest.raises(AttributeError, match="NoneType"):
        scanned(layout, tmp_path / "third", few=4, earlier=known)


def test_a_snapshot_that_was_changed_is_not_believed(layout: ImageLayout, tmp_path: Path):
    """A byte that is another one in the snapshot before stops the scan, and so do rows that are missing."""
    push_tags(layout)
    first = scanned(layout, tmp_path / "first", few=10)
    (file,) = (first.folder / "tags").glob("*.parquet")
    whole = file.read_bytes()
    place = len(whole) // 4
    file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    with pytest.raises(MetadataError, match="its table tags cannot be read"):
        scanned(layout, tmp_path / "second", few=10, earlier=first.snapshot)
    file.unlink()
    with pytest.raises(MetadataError, match="'tags' is not whole"):
        scanned(layout, tmp_path / "third", few=10, earlier=first.snapshot)


def test_a_scan_of_one_repository_dates_it_by_the_scan_before(layout: ImageLayout, tmp_path: Path):
    """What its first scan finds was moved nobody knows when, and what comes later when that was told."""
    push_image(layout, "app", ["v1"])
    first = scanned(layout, tmp_path / "first", few=9, repositories=["app"])
    newer = push_image(layout, "app", ["v2"], name="newer")
    told, now = NOW + timedelta(hours=1), NOW + timedelta(hours=2)
    row = {"action": "push", "repository": "app", "tag": "v2", "digest": newer.digest, "at": told}
    write_rows(EVENTS, [row], tmp_path / "events")
    second = scanned(
        layout,
        tmp_path / "second",
        few=9,
        now=now,
        repositories=["app"],
        earlier=first.snapshot,
        events=tmp_path / "events",
    )

    assert {"v1": None} == moves(first)
    assert {"v1": None, "v2": told} == moves(second)
