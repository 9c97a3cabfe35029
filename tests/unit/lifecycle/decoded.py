"""Ranges of a small store, decoded, for tests of what is done with them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from ebbtide.storage.store import StoreSpec, open_store
from ebbtide.targets.lake.catalog.model import RangeInfo
from ebbtide.targets.lake.catalog.ranges import COMMITTED, write_range
from ebbtide.targets.lake.metadata.reference_files import ReferenceFiles

NAMESPACE = "s3://bucket/lake"


def make_files(folder: Path) -> ReferenceFiles:
    """Keep decoded ranges of a namespace in a folder."""
    return ReferenceFiles(folder / "references", StoreSpec((folder / "store").as_uri()), NAMESPACE)


def make_range(files: ReferenceFiles, addresses: Sequence[str]) -> RangeInfo:
    """Write a range with an entry for each address."""
    created = [datetime(2026, 1, 1, tzinfo=UTC)] * len(addresses)
    rows = {
        "key": [f"raw/{number}" for number in range(len(addresses))],
        "address": list(addresses),
        "created": pa.array(created, pa.timestamp("us", "UTC")),
        "size": [1] * len(addresses),
        "checksum": [""] * len(addresses),
    }
    return write_range(open_store(files.store), COMMITTED, pa.table(rows))
