"""
The search for lakes inside a folder or prefix, by their owner markers.

Whoever takes a namespace must know that no other lake lies in it. The search therefore looks everywhere, or
raises: an object store with too many keys is refused, and a part that cannot be read is an error.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator

import pyarrow.compute as pc

from ebbtide.core.errors import NotFound, Refused, StoreError
from ebbtide.storage.base import Store
from ebbtide.storage.owner_marker import MARKER, Owner, read_owner
from ebbtide.storage.resolution import resolved

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
        return None  # a namespace that is still to be made
    except StoreError as failed:
        raise failed.with_reason("a lake may lie there, and a new one must not enclose it") from failed
    return None


def _metadata_folders(store: Store) -> Iterator[str]:
    """
    Name the folders below a local namespace that have a metadata folder, the upper ones first.

    Links are not followed: no collector does, so what they lead to is not inside.
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
        return []  # it is still to be made, or was removed since its parent was read
    except OSError as error:
        raise StoreError(
            f"cannot list {root}/{folder}",
            why=error.strerror or "",
            fix="let this user read every folder of the namespace, or choose another namespace",
        ) from None


def _marked_prefixes(store: Store) -> Iterator[str]:
    """
    Name the prefixes below a namespace in an object store that have a marker.

    One listing of all keys: to list folder by folder would take a request for each folder.
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
