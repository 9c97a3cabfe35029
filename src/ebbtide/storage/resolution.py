"""
Which folder a local address really means: symbolic links resolved, so that two names of one folder compare.

The canonical form of an address asks no disk. That is enough to compare names that one catalog wrote, and
not enough to tell whether two namespaces are one folder.
"""

from __future__ import annotations

import os

from ebbtide.storage.address import Place, locate


def resolved(url: str) -> Place:
    """Give the place that a URL or a path means on this machine; what is not on a disk stays as it is."""
    place = locate(url)
    if place.scheme != "file":
        return place
    return Place("file", "", tuple(part for part in os.path.realpath(f"/{place.path}").split("/") if part))


def resolved_path(namespace: str) -> str:
    """Resolve '..' in a plain path as the system does, so that it names a folder; URLs stay as they are."""
    if "://" in namespace or ".." not in namespace.split("/"):
        return namespace
    return os.path.realpath(namespace)


def overlap(left: str, right: str) -> bool:
    """Tell whether one folder or prefix is, holds or lies in the other."""
    return encloses(left, right) or encloses(right, left)


def encloses(outer: str, inner: str) -> bool:
    """Tell whether a place is, or lies in, another one."""
    one, other = resolved(outer), resolved(inner)
    same_root = (one.scheme, one.host) == (other.scheme, other.host)
    return same_root and one.parts == other.parts[: len(one.parts)]
