"""
The names of repositories, tags and digests, and the hashes behind digests.

Names become parts of URLs and of paths on disk, so all external input is checked here first: what a registry
lists as well as what a user types.
"""

from __future__ import annotations

import hashlib
import re

from ebbtide.core.errors import BadInput, MetadataError

_PART = r"[A-Za-z0-9]+(?:(?:\.|_|__|-+)[A-Za-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_PART}(?:/{_PART})*", re.ASCII)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}", re.ASCII)
_LONGEST_REPOSITORY = 255
_NAMED_AFTER_DIGEST = re.compile(r"[a-z0-9]+-[0-9a-f]{64}(?:\.sig|\.att|\.sbom)?", re.ASCII)


def is_repository(name: str) -> bool:
    """
    Return True for a valid repository name; upper case is accepted, because some registries have it.

    >>> is_repository("team/app"), is_repository("../app")
    (True, False)
    """
    return len(name) <= _LONGEST_REPOSITORY and bool(_REPOSITORY.fullmatch(name))


def is_tag(name: str) -> bool:
    """Return True for a valid tag."""
    return bool(_TAG.fullmatch(name))


def is_digest(text: str) -> bool:
    """Return True for a digest that can be checked here: SHA-256 or SHA-512."""
    return bool(_DIGEST.fullmatch(text))


def check_repository(name: str) -> str:
    """Return the name, or raise BadInput."""
    if not is_repository(name):
        raise BadInput(f"{name!r} is not the name of a repository", fix="use a name like team/app")
    return name


def check_tag(name: str) -> str:
    """Return the tag, or raise BadInput."""
    if not is_tag(name):
        raise BadInput(
            f"{name!r} is not a tag",
            fix="use up to 128 letters, digits, '_', '.' or '-', no '.' or '-' first",
        )
    return name


def check_digest(text: str) -> str:
    """Return the digest, or raise BadInput."""
    if not is_digest(text):
        raise BadInput(f"{text!r} is not a digest", fix="use sha256: and 64 hexadecimal digits in lower case")
    return text


def check_reference(text: str) -> str:
    """Return a tag or a digest, or raise BadInput; no tag has a colon, so the two cannot be confused."""
    return check_digest(text) if ":" in text else check_tag(text)


def digest_of(data: bytes, algorithm: str = "sha256") -> str:
    """Return the digest of some bytes."""
    return f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}"


def check_bytes(data: bytes, digest: str, what: str) -> None:
    """Raise MetadataError unless these bytes match the digest."""
    found = digest_of(data, digest.partition(":")[0])
    if found != digest:
        raise wrong_bytes(what, digest, found)


def wrong_bytes(what: str, digest: str, found: str) -> MetadataError:
    """Return the error for bytes that do not match their digest."""
    return MetadataError(
        f"{what} is not what it should be",
        why=f"its bytes have the digest {found} and not {digest}",
        fix="find out what changes data on the network or in the store",
    )


def fallback_tag(digest: str) -> str:
    """
    Return the tag under which referrers are listed in a registry without referrers API.

    >>> fallback_tag("sha256:" + "0" * 64)[:10]
    'sha256-000'
    """
    return check_digest(digest).replace(":", "-")


def follows_a_digest(tag: str) -> bool:
    """
    Return True for a tag that is named after a digest of 64 characters, as tags of signatures and referrers
    are.

    >>> follows_a_digest("sha256-" + "0" * 64 + ".sig"), follows_a_digest("v1.0")
    (True, False)
    """
    return bool(_NAMED_AFTER_DIGEST.fullmatch(tag))


def digest_followed(tag: str) -> str:
    """
    Return the digest that a tag is named after; empty if it is named after none.

    >>> digest_followed("sha256-" + "0" * 64 + ".sig")[:10], digest_followed("v1.0")
    ('sha256:000', '')
    """
    algorithm, _, rest = tag.partition("-")
    return f"{algorithm}:{rest[:64]}" if follows_a_digest(tag) else ""
