"""Folders of snapshots: which are removed, and what a damaged note means."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ebbtide.core.errors import MetadataError
from ebbtide.core.instant import parse_instant
from ebbtide.targets.oci.inventory.snapshots import (
    read_snapshot,
    remove_older,
    snapshot_folder,
    snapshot_name,
)


def make(root: Path, name: str, *, whole: bool = True) -> None:
    """Make the folder of a snapshot, or of one that was not finished."""
    folder = snapshot_folder(root, "uid", name)
    (folder / "images").mkdir(parents=True)
    if whole:
        (folder / "snapshot.json").write_text("{}")


@pytest.mark.parametrize(
    ("whole", "broken", "current", "left"),
    [
        ("1234", "", "4", "34"),
        ("12", "", "2", "12"),
        ("1", "", "1", "1"),
        ("134", "2", "4", "34"),
        ("123", "4", "3", "234"),  # a scan at work
        ("1235", "", "3", "35"),  # written, and not recorded yet
        ("12345", "", "1", "12345"),  # the record was set back
    ],
)
def test_older_snapshots_are_removed(tmp_path: Path, whole: str, broken: str, current: str, left: str):
    """The newest two and the current one stay, and so does whatever is newer than the current one."""
    for name in whole + broken:
        make(tmp_path, name, whole=name in whole)
    removed = remove_older(tmp_path, "uid", current)

    assert sorted(left) == sorted(path.name for path in (tmp_path / "registries" / "uid").iterdir())
    assert sorted({*whole, *broken} - set(left)) == sorted(removed)


def test_names_are_in_the_order_of_time():
    """A later scan has a name that sorts after that of an earlier one."""
    times = ["2026-01-02", "2026-01-02T00:00:00.5Z", "2026-10-01"]
    names = [snapshot_name(parse_instant(text)) for text in times]

    assert sorted(names) == names


@pytest.mark.parametrize(
    "note",
    [
        None,
        "",
        "{",
        "[]",
        "{}",
        json.dumps({"format": 2, "images": 0, "tags": 0, "scanned": {}}),
        json.dumps({"format": 1, "images": 0, "scanned": {}}),
        json.dumps({"format": 1, "images": 0, "tags": 0, "scanned": []}),
        json.dumps({"format": 1, "images": 0, "tags": 0, "scanned": {"app": "monday"}}),
    ],
)
def test_a_snapshot_without_a_good_note(tmp_path: Path, note: str | None):
    """A snapshot whose note is missing or damaged is an error, and not an empty registry."""
    if note is not None:
        (tmp_path / "snapshot.json").write_text(note)
    with pytest.raises(MetadataError, match="cannot be used"):
        read_snapshot(None, tmp_path)  # type: ignore[arg-type]
