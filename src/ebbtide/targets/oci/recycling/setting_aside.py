"""
Setting an image aside: a whole copy in the bin first, then the entry that says so.

The entry is written last, so that it exists only if the copy is whole; after a crash the same call goes on.
The original is not touched: whoever called deletes it afterwards, in the order of `removal_order`. Callers
hold the registry's lock (`ledger.locks.target_lock`), because whoever empties the bin takes a copy without an
entry for one that was given up.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from ebbtide.core.errors import Denied, MetadataError, NotFound, Unsupported
from ebbtide.targets.oci.base import Registry
from ebbtide.targets.oci.recycling.closure import closure_of
from ebbtide.targets.oci.recycling.document import write_entry
from ebbtide.targets.oci.recycling.entry import BinEntry, merged
from ebbtide.targets.oci.recycling.listing import find_entry
from ebbtide.targets.oci.recycling.moving import bring, check_whole, despite_others
from ebbtide.targets.oci.recycling.naming import bin_repository, manifest_tag


def set_aside(
    registry: Registry,
    entry: BinEntry,
    *,
    read_blobs: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> BinEntry:
    """
    Bring an image with all that it needs into the bin, check that it is there, and give its entry.

    An image that is in the bin already gets one entry for both times. If the original is gone, or no longer
    whole, and the bin has the image, it was deleted after an earlier call, and that is fine.
    """
    bin_name = bin_repository(entry.repository)
    known = find_entry(registry, entry.repository, entry.digest)
    try:
        # A child of an index may have been set aside and removed before the index.
        closure = closure_of(registry, entry.repository, entry.digest, or_in=bin_name)
        source = entry.repository
    except (NotFound, MetadataError):
        if known is None:
            raise
        closure, source = closure_of(registry, bin_name, entry.digest), ""
    result = merged(known[0] if known else None, entry)
    result = replace(result, subject=closure.subject, size=closure.size)
    document = write_entry(result, closure.descriptor)

    def copy_and_say_so() -> None:
        if source:
            bring(registry, closure, source, bin_name, manifest_tag)
        check_whole(registry, closure, bin_name, manifest_tag, read_blobs=read_blobs)
        if known is None or known[1] != document.digest:
            registry.put_manifest(bin_name, result.tag, document)

    despite_others(copy_and_say_so, sleep)
    if known is not None and known[1] != document.digest:
        _forget(registry, bin_name, known[1])
    return result


def _forget(registry: Registry, bin_name: str, document: str) -> None:
    """Delete what an entry said before; where that cannot be, a small document without a tag is left."""
    with suppress(Denied, Unsupported):
        registry.delete_manifest(bin_name, document)
