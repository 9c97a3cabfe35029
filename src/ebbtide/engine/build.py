"""Which build of Ebbtide this is: what one build has cached, no other build may trust."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import ebbtide


def digest_of(package: Path) -> str:
    """Digest the code of a package, here or on an executor."""
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        digest.update(str(file.relative_to(package)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


@cache
def build_id() -> str:
    """
    Digest the package's own code.

    A cache says what the code that made it understood. After any change to that code (how an address is
    spelled, which reference counts) it is made anew, and nobody has to remember to raise a version.
    """
    return digest_of(Path(ebbtide.__file__).parent)
