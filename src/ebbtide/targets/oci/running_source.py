"""The source of running images that a plan used, and who chose it: a plan records it, and apply compares."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_SOURCE, _BY = "running_source", "running_source_by"


@dataclass(frozen=True)
class RunningSource:
    """A source of running images by its name, None for no source, and the user who planned with it."""

    name: str | None
    by: str

    def plain(self) -> dict[str, Any]:
        """Return it as the manifest of a plan has it."""
        return {_SOURCE: self.name, _BY: self.by}


def planned_source(snapshot: dict[str, Any]) -> str | None:
    """Return the source that a plan used, from its manifest; None if it used none, or does not say."""
    found = snapshot.get(_SOURCE)
    return None if found is None else str(found)


def is_cluster(source: str) -> bool:
    """Return True if a source is the API of a cluster and not a file."""
    return source.startswith(("http://", "https://"))


def source_kind(source: str | None) -> str:
    """Return the kind of a source: none, cluster or file."""
    return "none" if source is None else "cluster" if is_cluster(source) else "file"


def named_source(source: str | None) -> str | None:
    """Return the name of a source as `source_name` does; None is no source."""
    return None if source is None else source_name(source)


def source_name(source: str) -> str:
    """
    Return one name for all spellings of a source: a file by its path, a cluster by its address.

    The name is written into plans and logs, so a password in an address is left out.
    """
    if not is_cluster(source):
        return str(Path(source).resolve())
    parts = urlsplit(source)
    host = (parts.hostname or "").lower()
    default = {"http": 80, "https": 443}[parts.scheme]
    try:
        port = parts.port or default
    except ValueError:
        port = default
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}:{port}{parts.path.rstrip('/')}"


def same_source(one: str | None, other: str | None) -> bool:
    """Return True if two sources, either of which may be none, are the same."""
    return named_source(one) == named_source(other)
