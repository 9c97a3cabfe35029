"""
What a moved version is called at its location.

`KEY/TOKEN`, where the token is the version's id or, of a version without one of its own, the time and etag
that tell it from the next object of the same key: a location outlives what comes and goes under one key. A
name that not every store can hold is replaced by a hash: `_hashed/SHA256`. No two versions share a name.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from urllib.parse import quote

from ebbtide.storage.store import key_problem

HASHED = "_hashed"
ABOUT = "_about"
"""Where a folder keeps what a bucket would keep beside the bytes."""
RESERVED = frozenset({HASHED, ABOUT, ".ebbtide-tmp"})

_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_ETAG = re.compile(r"[A-Za-z0-9-]{1,64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff]")
_LONGEST_PART = 200
"""In bytes; file systems take 255."""
_LONGEST_NAME = 1024
"""In bytes, as S3 has it."""


@dataclass(frozen=True)
class Identity:
    """What tells one version of one object from every other that there ever was."""

    bucket: str
    key: str
    version: str
    etag: str
    modified: datetime

    @property
    def mark(self) -> str:
        """Give it as a short text that a copy carries, so that it is known again."""
        name = sha256(f"{self.bucket}/{self.key}".encode()).hexdigest()
        return f"{quote(self.version, safe='')} {quote(self.etag, safe='')} {_moment(self.modified)} {name}"


def target_name(identity: Identity, root: str = "") -> str:
    """Name a version below the root of its location."""
    token = _token(identity)
    name = f"{identity.key}/{token}"
    if token is None or _is_awkward(name) or len((root + name).encode()) > _LONGEST_NAME:
        whole = "\0".join([identity.key, identity.version, identity.etag, _moment(identity.modified)])
        return f"{HASHED}/{sha256(whole.encode()).hexdigest()}"
    return name


def _token(identity: Identity) -> str | None:
    """Name the version among those of its key; None if it has no name that every store can hold."""
    version, etag = identity.version, identity.etag
    if version == "null":
        return f"null-{_moment(identity.modified)}-{etag}" if _ETAG.fullmatch(etag) else None
    # A store's own id that looks like one of ours must not be taken for it.
    return version if _ID.fullmatch(version) and not version.startswith("null") else None


def _is_awkward(name: str) -> bool:
    parts = name.split("/")
    return bool(
        key_problem(name)
        or "" in parts
        or parts[0] in RESERVED
        or _CONTROL.search(name)
        # Some file systems take two spellings of a letter for one name.
        or not unicodedata.is_normalized("NFC", name)
        or max(len(part.encode()) for part in parts) > _LONGEST_PART
    )


def _moment(modified: datetime) -> str:
    return f"{modified.astimezone(UTC):%Y%m%dT%H%M%SZ}"
