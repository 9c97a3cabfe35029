"""The shape of a listing: Arrow batches of key, size, last_modified and etag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ebbtide.storage.base import RecordBatch

LISTING_SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("last_modified", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("etag", pa.string()),
    ]
)


def listing_batch(keys: Sequence[str], sizes: Any, micros: Any, etags: Sequence[str | None]) -> RecordBatch:
    """Make one batch of a listing from its columns, lists or arrays; times are microseconds since 1970."""
    columns = (keys, sizes, micros, etags)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, LISTING_SCHEMA, strict=True)]
    return pa.record_batch(arrays, schema=LISTING_SCHEMA)
