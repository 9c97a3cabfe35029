"""Sealed files say whether they are what was written."""

from __future__ import annotations

import os

import pytest

from ebbtide.engine.files import mark_used, read_sealed, remove_unused, write_sealed


@pytest.mark.parametrize("content", [b"", b"x", b"abc" * 1000])
def test_what_was_written_is_read(tmp_path, content):
    """Content comes back as it was, even none."""
    write_sealed(tmp_path / "file", content)

    assert content == bytes(read_sealed(tmp_path / "file"))


@pytest.mark.parametrize("damage", ["cut", "flipped", "longer", "empty", "missing"])
def test_what_is_damaged_is_not_read(tmp_path, damage):
    """A file that is missing, cut, longer or altered by a bit gives nothing."""
    file = tmp_path / "file"
    write_sealed(file, b"abcdef")
    data = file.read_bytes()
    flipped = bytes([data[0] ^ 1]) + data[1:]
    file.write_bytes({"cut": data[:-1], "flipped": flipped, "longer": data + b"x"}.get(damage, b""))
    if damage == "missing":
        file.unlink()

    assert read_sealed(file) is None


def test_only_what_nobody_used_is_removed(tmp_path):
    """Files that were written or marked since a moment stay."""
    for name in ("old", "marked", "fresh"):
        write_sealed(tmp_path / name, b"x")
        os.utime(tmp_path / name, (1000, 1000))
    mark_used(tmp_path / "marked")
    os.utime(tmp_path / "fresh", (2000, 2000))
    remove_unused(tmp_path, 2000)

    assert {"marked", "fresh"} == {file.name for file in tmp_path.iterdir()}
