"""How things in the bin are named: its repositories, and the tags that keep collectors away from them."""

from __future__ import annotations

import re

from ebbtide.core.errors import BadInput, Refused
from ebbtide.targets.oci.names import check_digest, check_repository, is_digest, is_repository

BIN = "ebbtide-recycle/"
"""Repositories whose names begin so are bins; scans of images leave them out."""

MARKER_REPOSITORY = f"{BIN}ebbtide-registry-marker"
"""Where a registry says which one it is; it is the bin of no repository."""

_ENTRY, _MANIFEST = "e-", "m-"
_LONGEST_VALUE = 96
_OWN = re.compile(r"[em]-(?:[0-9a-f]{64}|sha512-[0-9a-f]{96})", re.ASCII)


def is_bin(repository: str) -> bool:
    """Tell whether a repository is the bin of another."""
    return repository.startswith(BIN) and is_repository(repository.removeprefix(BIN))


def bin_repository(repository: str) -> str:
    """
    Name the bin of a repository; Refused if the name would be too long for a registry.

    >>> bin_repository("team/app")
    'ebbtide-recycle/team/app'
    """
    if is_bin(check_repository(repository)):
        raise BadInput(f"{repository} is a bin itself", fix="give the name that the images had before")
    name = f"{BIN}{repository}"
    if name == MARKER_REPOSITORY:
        raise Refused(
            f"{repository} can have no recycle bin",
            why=f"{name} is where Ebbtide keeps the marker of the registry",
            fix="move its images to another name",
        )
    if not is_repository(name):
        raise Refused(
            f"{repository} can have no recycle bin",
            why=f"{name!r} would be longer than the 255 characters that a name may have",
            fix="give its images a policy that does not recycle, or move them to a shorter name",
        )
    return name


def original_of(repository: str) -> str:
    """Name the repository that a bin belongs to."""
    if not is_bin(repository):
        raise BadInput(f"{repository!r} is no recycle bin", fix=f"bins are named {BIN}REPOSITORY")
    return repository.removeprefix(BIN)


def entry_tag(digest: str) -> str:
    """Give the tag under which the bin describes an image."""
    return f"{_ENTRY}{_value(digest)}"


def manifest_tag(digest: str) -> str:
    """
    Give the tag that a manifest has of its own in the bin.

    A registry's collector may remove what has no tag, and even the children of an index that has one.
    """
    return f"{_MANIFEST}{_value(digest)}"


def is_entry_tag(tag: str) -> bool:
    """Tell whether the bin describes an image under this tag."""
    return tag.startswith(_ENTRY)


def is_manifest_tag(tag: str) -> bool:
    """Tell whether this tag only keeps a manifest."""
    return tag.startswith(_MANIFEST)


def image_tag(tag: str) -> str:
    """Give the tag that keeps the image which an entry's tag is about."""
    return f"{_MANIFEST}{tag.removeprefix(_ENTRY)}"


def is_own_shape(tag: str) -> bool:
    """Return True if a tag of a bin has the shape of ours; only its content can say whether it is."""
    return bool(_OWN.fullmatch(tag))


def image_reference(tag: str) -> str:
    """
    Give the digest of the image that an entry's tag is about, or its tag where that cannot hold all of it.

    The digest is better: somebody may have moved the tag.
    """
    digest = f"sha256:{tag.removeprefix(_ENTRY)}"
    return digest if is_digest(digest) else image_tag(tag)


def _value(digest: str) -> str:
    """Write a digest so that it fits into a tag, which has no room for all of a SHA-512."""
    algorithm, _, value = check_digest(digest).partition(":")
    return value if algorithm == "sha256" else f"{algorithm}-{value[:_LONGEST_VALUE]}"
