"""Sealed files: small immutable files that carry the SHA-256 of their content, for caches on a disk."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from uuid import uuid4

_SEAL = hashlib.sha256().digest_size


def write_sealed(file: Path, content: bytes) -> None:
    """Write content and seal; a reader sees all of it or nothing, and after a power cut the seal tells."""
    fresh = file.with_name(f"{file.name}.{uuid4().hex}.tmp")
    with fresh.open("wb") as out:
        out.write(content)
        out.write(hashlib.sha256(content).digest())
    fresh.replace(file)


def read_sealed(file: Path) -> memoryview | None:
    """Read the content; None if the file is not there or is not what was written."""
    try:
        data = memoryview(file.read_bytes())
    except FileNotFoundError:
        return None
    content, seal = data[:-_SEAL], data[-_SEAL:]
    return content if hashlib.sha256(content).digest() == seal else None


def mark_used(file: Path) -> None:
    """Note on the file itself that it is still of use."""
    os.utime(file)


def remove_unused(folder: Path, since: float) -> None:
    """Remove the files below a folder that nobody has marked since a moment of the file system's clock."""
    for place, _, names in os.walk(folder):
        for name in names:
            file = Path(place) / name
            if file.stat().st_mtime < since:
                file.unlink(missing_ok=True)
