"""
Files of the state root: durable ones, and sealed ones for caches.

A *durable* file survives a power cut. A *sealed* file carries the SHA-256 of its content instead: a power cut
may damage it, and then it is made again. Nothing here imports Arrow or Spark, because commands that need
neither use it.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from uuid import uuid4

_SEAL = hashlib.sha256().digest_size


def make_durable(folder: Path) -> None:
    """Force a folder and all its files to disk, so that a power cut cannot undo them."""
    for place, _, names in os.walk(folder):
        for name in names:
            _sync(Path(place) / name, os.O_RDONLY)
        _sync(Path(place), os.O_RDONLY | os.O_DIRECTORY)


def write_durably(file: Path, text: str) -> None:
    """Write a small file so that readers see all of it or nothing, also after a power cut."""
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


def write_sealed(file: Path, content: bytes) -> None:
    """Write content and seal; a reader sees all of it or nothing, and the seal reveals damage."""
    fresh = file.with_name(f"{file.name}.{uuid4().hex}.tmp")
    with fresh.open("wb") as out:
        out.write(content)
        out.write(hashlib.sha256(content).digest())
    fresh.replace(file)


def read_sealed(file: Path) -> memoryview | None:
    """Return the content; None if the file is missing or damaged."""
    try:
        data = memoryview(file.read_bytes())
    except FileNotFoundError:
        return None
    content, seal = data[:-_SEAL], data[-_SEAL:]
    return content if hashlib.sha256(content).digest() == seal else None


def mark_used(file: Path) -> None:
    """Record the use of a file as its modification time."""
    os.utime(file)


def remove_unused(folder: Path, since: float) -> None:
    """Remove the files below a folder that were not used since a time of the file system's clock."""
    for place, _, names in os.walk(folder):
        for name in names:
            file = Path(place) / name
            if file.stat().st_mtime < since:
                file.unlink(missing_ok=True)
