"""The witness of a lake: an object of its metadata that every host must see before it reads or deletes."""

from __future__ import annotations

from dataclasses import replace

from ebbtide.storage.namespace import MARKER
from ebbtide.storage.store import Store, StoreSpec
from ebbtide.targets.lake.catalog.ranges import COMMITTED, METARANGES


def witnessed(store: Store) -> StoreSpec:
    """
    Say how to open a lake's store, with an object in it that whoever opens it must see.

    A host with another disk under the same path would find the namespace empty: what it lists would be gone,
    and what it deletes absent. The owner marker goes last of all; a lake without one, because an earlier
    Ebbtide made it, has committed metadata, which never changes while the repository is there.
    Only folders are asked: a bucket is the same one for whoever reaches it.
    """
    if not store.spec.url.startswith("file://"):
        return store.spec
    for prefix in (MARKER, f"{METARANGES}/", f"{COMMITTED}/"):
        for batch in store.list(prefix):
            if batch.num_rows:
                return replace(store.spec, witness=str(batch.column("key")[0].as_py()))
    return store.spec
