"""
Explaining objects that nothing references: garbage, items of the recycle bin, what a deleted repository left.

Each answer is that of the plan which would find the object: with --uncommitted, --bin or --deleted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta

import pyarrow.compute as pc

from ebbtide.core.bin_label import items_of
from ebbtide.core.decision import DELETED_REPOSITORY, EMPTY_BIN, CollectorName, HoldReason
from ebbtide.core.errors import AddressError, EbbtideError, NotFound
from ebbtide.core.instant import NEVER, format_instant, format_second
from ebbtide.engine.object_bin import StoreBin
from ebbtide.storage.address import canonical
from ebbtide.storage.store import ObjectInfo, Store
from ebbtide.targets.lake.bin import BIN_ROOT, lake_bin
from ebbtide.targets.lake.catalog.catalog import Catalog
from ebbtide.targets.lake.catalog.model import DeletedRepository
from ebbtide.targets.lake.catalog.partitions import object_pattern
from ebbtide.targets.lake.catalog.ranges import METADATA
from ebbtide.targets.lake.explaining import KEPT, ItemVerdict, ObjectExplanation, decided, explanation_of
from ebbtide.targets.lake.retired.listing import own_folders


def explain_stored(
    catalog: Catalog, repository: str, text: str, grace: timedelta, now: datetime
) -> ObjectExplanation | None:
    """Explain an object that is stored and that nothing references; None if there is none of this address."""
    store = catalog.store(repository)
    info = _find(store, text)
    if info is None:
        return None
    if info.key.startswith(BIN_ROOT):
        verdict = _in_bin(lake_bin(catalog, repository), info.key, now)
    elif re.match(object_pattern(catalog.repository(repository).uid), info.key):
        opened = list(_open_uploads(catalog, repository, info.key))
        verdict = _garbage(info, opened, grace, now)
    else:
        guard = HoldReason.METADATA if info.key.startswith(METADATA) else HoldReason.FOREIGN
        verdict = ItemVerdict(str(CollectorName.UNCOMMITTED), KEPT, NEVER, str(guard), info.key)
    return explanation_of(info.key, info.size, [verdict])


def explain_deleted(
    catalog: Catalog, gone: DeletedRepository, text: str, grace: timedelta, now: datetime
) -> ObjectExplanation | None:
    """Explain an object in the namespace of a deleted repository; None if there is none of this address."""
    store = catalog.retired_store(gone.uid)
    info = _find(store, text)
    if info is None:
        return None
    rules = (DELETED_REPOSITORY,)
    if not (info.key.startswith(own_folders(store, gone.uid)) and _is_spelled_canonically(store, info.key)):
        standing = NEVER, str(HoldReason.FOREIGN), "it is not the repository's"
    else:
        later = info.last_modified > gone.deleted
        since = _written(info) if later else f"deleted {format_instant(gone.deleted)}"
        standing = max(info.last_modified, gone.deleted) + grace, str(HoldReason.NOT_YET), since
    verdict = decided(DELETED_REPOSITORY, standing, rules, (), now)
    return explanation_of(info.key, info.size, [verdict])


def _find(store: Store, text: str) -> ObjectInfo | None:
    """Look for an object by its very key, and then by the canonical form of an address."""
    with suppress(AddressError, NotFound):
        return store.stat(text)
    with suppress(AddressError, NotFound):
        return store.stat(canonical(text, store.spec.url))
    return None


def _is_spelled_canonically(store: Store, key: str) -> bool:
    try:
        return canonical(key, store.spec.url) == key
    except AddressError:
        return False


def _garbage(info: ObjectInfo, opened: list[datetime], grace: timedelta, now: datetime) -> ItemVerdict:
    ripe = info.last_modified + grace
    until = max([ripe, *opened])
    reason = HoldReason.UPLOADING if until > ripe else HoldReason.NOT_YET
    standing = until, str(reason), _written(info)
    return decided(str(CollectorName.UNCOMMITTED), standing, (str(CollectorName.UNCOMMITTED),), (), now)


def _in_bin(contents: StoreBin, key: str, now: datetime) -> ItemVerdict:
    """Say until when the bin keeps an item; what has no label that can be read is left alone."""

    def ignore(_broken: EbbtideError) -> None:
        """Leave damage to `ebb recycle ls`."""

    for label in contents.labels(ignore):
        place = items_of(contents.root, label.folder)
        if key.startswith(place):
            held_by = f"set aside {format_second(label.set_aside)} for {label.days} days"
            standing = label.expires, str(HoldReason.NOT_YET), held_by
            return decided(EMPTY_BIN, standing, (f"recycled by run {label.run}",), (key[len(place) :],), now)
    return ItemVerdict(EMPTY_BIN, KEPT, NEVER, str(HoldReason.METADATA), key)


def _open_uploads(catalog: Catalog, repository: str, address: str) -> Iterator[datetime]:
    """Give until when an address may still be linked."""
    for page in catalog.open_uploads(repository):
        yield from page.filter(pc.equal(page.column("address"), address)).column("expires").to_pylist()


def _written(info: ObjectInfo) -> str:
    return f"last written {info.last_modified:%Y-%m-%dT%H:%M:%SZ}"
