"""
The owner marker: an object in every lake's namespace that says which repository of which catalog owns it.

Two catalogs, or one catalog through a symbolic link or another endpoint, can reach one namespace under
different names. Each of them would take the other's objects for garbage. Names cannot show this, the marker
can: it is created only if there is none, and whoever is about to delete something reads it first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime

from ebbtide.core.errors import BadInput, Denied, ForeignNamespace, NameTaken, NotFound, StoreError
from ebbtide.core.instant import format_instant, parse_instant
from ebbtide.storage.address import Place
from ebbtide.storage.base import DeleteRequest, Store, StoreSpec
from ebbtide.storage.opening import open_store
from ebbtide.storage.resolution import resolved

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
        """What tells two owners apart; a name may be given twice."""
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
    """Read the content of a marker; one that cannot be read names an owner that nobody knows."""
    try:
        plain = json.loads(data)
        readable = plain.pop("format") == FORMAT
        owner = Owner(**plain | {"created": parse_instant(plain["created"])})
    except (ValueError, TypeError, KeyError, AttributeError, BadInput):
        readable = False
    if not readable:
        raise ForeignNamespace(
            f"the marker {MARKER} in {place} cannot be read",
            why="it is damaged or was written by a newer Ebbtide, so nobody can tell who owns the namespace",
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
            why="so nobody can tell who owns the namespace",
            fix="remove the folder; the marker is written when the lake is used next",
        ) from None
    found = read_owner(store)
    if found is None:
        raise StoreError(
            f"the marker {MARKER} was written to {store.spec.url} and is not there",
            why="without it nobody can tell who owns the namespace",
            fix="check that the store keeps what it accepts, then try again",
        )
    return found


def replace_owner(store: Store, owner: Owner) -> None:
    """Write the marker anew, whoever it named before."""
    store.write(MARKER, owner.to_json())


def remove_owner(store: Store, owner: tuple[str, str]) -> None:
    """Remove the marker if it names this owner; without the marker the namespace is free."""
    found = read_owner(store)
    if found is not None and found.identity == owner:
        store.delete([DeleteRequest(MARKER)])


def enclosing_owner(spec: StoreSpec) -> tuple[str, Owner] | None:
    """Find the lake in whose namespace a place lies, by the markers in the folders above it."""
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
    """Name the folders or prefixes above a place, the nearest first; the disk's root is no namespace."""
    top = 1 if place.scheme == "file" else 0
    for depth in range(len(place.parts) - 1, top - 1, -1):
        yield Place(place.scheme, place.host, place.parts[:depth])
