"""Ranges of a small store, decoded, for tests of what is done with them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from ebbtide.storage.store import StoreSpec, open_store
from ebbtide.targets.lake.catalog.ranges import write_range
from ebbtide.targets.lake.repository import CatalogDecoder
from ebbtide.targets.repository.model import COMMITTED, RangeInfo
from ebbtide.targets.repository.range_cache import RangeCache

NAMESPACE = "s3://bucket/lake"


def make_files(folder: Path) -> RangeCache:
    """Keep decoded ranges of a namespace in a folder."""
    return RangeCache(
        folder / "references", CatalogDecoder(StoreSpec((folder / "store").as_uri())), NAMESPACE
    )


def make_range(files: RangeCache, addresses: Sequence[str]) -> RangeInfo:
    """Write a range with an entry for each address."""
    created = [datetime(2026, 1, 1, tzinfo=UTC)] * len(addresses)
    rows = {
        "key": [f"raw/{number}" for number in range(len(addresses))],
        "address": list(addresses),
        "created": pa.array(created, pa.timestamp("us", "UTC")),
        "size": [1] * len(addresses),
        "checksum": [""] * len(addresses),
    }
    return write_range(open_store(files.decoder.store), COMMITTED, pa.table(rows))
