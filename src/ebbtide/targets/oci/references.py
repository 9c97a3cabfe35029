"""Names by which images run, taken apart: ``host:5000/team/app:v1@sha256:...`` and what shortens it."""

from __future__ import annotations

import re

from ebbtide.core.errors import WorldError
from ebbtide.targets.oci.model import Reference

_SCHEME = re.compile(r"[a-z][a-z0-9.+-]*://")
_DIGEST = re.compile(r"[a-z0-9]+(?:[+._-][a-z0-9]+)*:[A-Za-z0-9=_-]+")
_BARE_DIGEST = re.compile(r"(?:sha256|sha384|sha512|blake3):[A-Za-z0-9=_-]+")
_HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9][A-Za-z0-9.-]*)(?::[0-9]+)?"
_PART = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_REPOSITORY = re.compile(rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*")
"""Only a port may follow a colon here: ``app:v1:v2`` would otherwise be a repository that nobody has."""
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_LATEST = "latest"
_HUB = "library/"


def is_digest(text: str) -> bool:
    """Tell whether a text is a digest: an algorithm, a colon and a value."""
    return _DIGEST.fullmatch(text) is not None


def is_tag(text: str) -> bool:
    """Tell whether a text can be a tag."""
    return _TAG.fullmatch(text) is not None


def read_reference(text: str, where: str) -> Reference:
    """Take a name apart; one without tag and digest means the tag ``latest``, as for every runtime."""
    name = _SCHEME.sub("", text.strip(), count=1)
    if _BARE_DIGEST.fullmatch(name):
        return Reference(None, None, name)
    name, at, digest = name.partition("@")
    # A colon before a slash belongs to the port of a host.
    repository, colon, tag = name.rpartition(":") if ":" in name.rpartition("/")[2] else (name, "", "")
    whole = _REPOSITORY.fullmatch(repository) and (not colon or is_tag(tag)) and (not at or is_digest(digest))
    if not whole:
        raise WorldError(
            f"{where}: {text!r} is no image",
            why="an image that runs and is not understood would not be protected",
            fix="write it as team/app:v1, team/app@sha256:... or with a host before it",
        )
    return Reference(repository, tag or (None if digest else _LATEST), digest or None)


def without_host(repository: str) -> str:
    """Drop the host of a registry, and the folder that Docker Hub leaves out: mirrors have other hosts."""
    first, slash, rest = repository.partition("/")
    path = rest if slash and ("." in first or ":" in first or first == "localhost") else repository
    return path.removeprefix(_HUB)
