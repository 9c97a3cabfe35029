"""Durable writes. A module of its own because commands that need no Arrow use it."""

from __future__ import annotations

import os
from pathlib import Path


def make_durable(folder: Path) -> None:
    """Force a folder and all its files to disk, so that a power cut cannot take back what we recorded."""
    for place, _, names in os.walk(folder):
        for name in names:
            _sync(Path(place) / name, os.O_RDONLY)
        _sync(Path(place), os.O_RDONLY | os.O_DIRECTORY)


def write_durably(file: Path, text: str) -> None:
    """Write a small file so that it is there whole or not at all."""
    fresh = file.with_suffix(".tmp")
    fresh.write_text(text, encoding="utf-8")
    _sync(fresh, os.O_RDONLY)
    fresh.replace(file)
    _sync(file.parent, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
