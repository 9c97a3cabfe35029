"""The build of Ebbtide: a digest of its code. Caches and executors of another build are not used."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import ebbtide


def digest_of(package: Path) -> str:
    """Return the digest of a package's code, here or on an executor."""
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        digest.update(str(file.relative_to(package)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


@cache
def build_id() -> str:
    """
    Return the digest of Ebbtide's own code.

    A cache depends on the code that made it. After any change of that code (how an address is spelled, which
    reference counts) the cache is made again, without a version number that a developer has to raise.
    """
    return digest_of(Path(ebbtide.__file__).parent)
