"""
Namespaces: which folder an address means, who owns it, and which other namespaces lie in or around it.

The owner marker is an object in every namespace that names the repository and the catalog that own it. Two
catalogs, or one catalog through a symbolic link or another endpoint, can reach one namespace under different
names, and each of them would take the other's objects for garbage. Names cannot show this; the marker can. It
is created only if there is none, and it is read before anything is deleted.

A new namespace must not contain another one. The search for nested markers therefore looks everywhere or
raises: an object store with too many keys is refused, and a part that cannot be read is an error.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime

import pyarrow.compute as pc

from ebbtide.core.errors import BadInput, Denied, ForeignNamespace, NameTaken, NotFound, Refused, StoreError
from ebbtide.core.instant import format_instant, parse_instant
from ebbtide.storage.address import Place, locate
from ebbtide.storage.store import DeleteRequest, Store, StoreSpec, open_store


def resolved(url: str) -> Place:
    """Return the place that a URL or a path means on this machine, with symbolic links resolved."""
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
    """Return True if two folders or prefixes are the same, or one contains the other."""
    return encloses(left, right) or encloses(right, left)


def encloses(outer: str, inner: str) -> bool:
    """Return True if the inner place is the outer one, or lies in it."""
    one, other = resolved(outer), resolved(inner)
    same_root = (one.scheme, one.host) == (other.scheme, other.host)
    return same_root and one.parts == other.parts[: len(one.parts)]


MARKER = "_lakefs/ebbtide-owner.json"
"""The marker's key inside a namespace: below the metadata, where nothing is ever taken for data."""
FORMAT = 1


@dataclass(frozen=True)
class Owner:
    """The owner of a namespace, as its marker names it."""

    repository: str
    repository_uid: str
    catalog_uid: str
    created: datetime
    rehearsal: bool = False

    @property
    def identity(self) -> tuple[str, str]:
        """The ids that distinguish two owners; two repositories may have the same name."""
        return self.catalog_uid, self.repository_uid

    @property
    def label(self) -> str:
        """The owner in words."""
        return f"repository {self.repository!r} ({self.repository_uid[:12]}, catalog {self.catalog_uid[:12]})"

    def to_json(self) -> bytes:
        """Write the content of a marker."""
        plain = asdict(self) | {"format": FORMAT, "created": format_instant(self.created)}
        return json.dumps(plain, indent=2, sort_keys=True).encode()


def owner_from_json(data: bytes, place: str) -> Owner:
    """Parse a marker; raise ForeignNamespace for a damaged one, because its owner is unknown."""
    try:
        plain = json.loads(data)
        readable = plain.pop("format") == FORMAT
        owner = Owner(**plain | {"created": parse_instant(plain["created"])})
    except (ValueError, TypeError, KeyError, AttributeError, BadInput):
        readable = False
    if not readable:
        raise ForeignNamespace(
            f"the marker {MARKER} in {place} cannot be read",
            why="it is damaged or was written by a newer Ebbtide, so the owner of the namespace is unknown",
            fix="look at the file; if the namespace is this repository's, run 'ebb lake adopt REPO'",
        )
    return owner


def read_owner(store: Store, folder: str = "") -> Owner | None:
    """Read the marker of a namespace, or of a folder in it; None if there is none."""
    try:
        data = store.read(folder + MARKER)
    except NotFound:
        return None
    return owner_from_json(data, f"{store.spec.url}/{folder}".rstrip("/"))


def claim(store: Store, owner: Owner) -> Owner:
    """Create the marker if there is none, and return the owner that the store names afterwards."""
    try:
        store.create(MARKER, owner.to_json())
    except NameTaken:
        raise ForeignNamespace(
            f"the marker {MARKER} in {store.spec.url} is a folder",
            why="so the owner of the namespace is unknown",
            fix="remove the folder; the marker is written when the lake is used next",
        ) from None
    found = read_owner(store)
    if found is None:
        raise StoreError(
            f"the marker {MARKER} was written to {store.spec.url} and is not there",
            why="without it the owner of the namespace is unknown",
            fix="check that the store keeps what it accepts, then try again",
        )
    return found


def replace_owner(store: Store, owner: Owner) -> None:
    """Overwrite the marker, whichever owner it named before."""
    store.write(MARKER, owner.to_json())


def remove_owner(store: Store, owner: tuple[str, str]) -> None:
    """Remove the marker if it names this owner; without the marker the namespace is free."""
    found = read_owner(store)
    if found is not None and found.identity == owner:
        store.delete([DeleteRequest(MARKER)])


def enclosing_owner(spec: StoreSpec) -> tuple[str, Owner] | None:
    """Find the lake whose namespace contains a place, by the markers in the folders above it."""
    for parent in _parents(resolved(spec.url)):
        try:
            found = read_owner(open_store(StoreSpec(parent.url, spec.options)))
        except Denied:
            # Credentials for one prefix of a bucket need not reach the prefixes above it.
            continue
        if found is not None:
            return parent.url, found
    return None


def _parents(place: Place) -> Iterator[Place]:
    """Yield the folders or prefixes above a place, the nearest first, without the root of the disk."""
    top = 1 if place.scheme == "file" else 0
    for depth in range(len(place.parts) - 1, top - 1, -1):
        yield Place(place.scheme, place.host, place.parts[:depth])


MOST_KEYS = 1_000_000
"""How many keys of an object store are listed: a thousand requests, a minute or two."""
_METADATA = MARKER.split("/", 1)[0]


def nested_owner(store: Store) -> tuple[str, Owner] | None:
    """Find a lake inside a namespace; the namespace's own marker does not count."""
    is_folder = store.spec.url.startswith("file://")
    try:
        for folder in _metadata_folders(store) if is_folder else _marked_prefixes(store):
            found = read_owner(store, folder)
            if found is not None:
                return folder, found
    except NotFound:
        return None  # a namespace that does not exist yet
    except StoreError as failed:
        raise failed.with_reason("a lake may lie there, and a new one must not enclose it") from failed
    return None


def _metadata_folders(store: Store) -> Iterator[str]:
    """
    Yield the folders below a local namespace that have a metadata folder, the upper ones first.

    Links are not followed: no collector follows them, so their targets are not part of the namespace.
    """
    root = f"/{resolved(store.spec.url).path}"
    waiting = deque([""])
    while waiting:
        folder = waiting.popleft()
        for name in _subfolders(root, folder):
            if name != _METADATA:
                waiting.append(f"{folder}{name}/")
            elif folder:
                yield folder


def _subfolders(root: str, folder: str) -> list[str]:
    try:
        with os.scandir(f"{root}/{folder}") as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []  # it does not exist yet, or was removed since its parent was read
    except OSError as error:
        raise StoreError(
            f"cannot list {root}/{folder}",
            why=error.strerror or "",
            fix="let this user read every folder of the namespace, or choose another namespace",
        ) from None


def _marked_prefixes(store: Store) -> Iterator[str]:
    """
    Yield the prefixes below a namespace in an object store that have a marker.

    This is one listing of all keys, because listing folder by folder takes a request per folder.
    """
    listed = 0
    for batch in store.list():
        keys = batch.column("key")
        for key in keys.filter(pc.ends_with(keys, f"/{MARKER}")).to_pylist():
            yield key.removesuffix(MARKER)
        listed += len(keys)
        if listed > MOST_KEYS:
            raise Refused(
                f"{store.spec.url} holds more than {MOST_KEYS:,} objects already",
                why="it takes too long to make sure that no other lake lies among them",
                fix="use an empty prefix",
            )
