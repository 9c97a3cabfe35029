"""Listings as Arrow batches of key, size, last_modified and etag: make them, join them, sort them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.storage.store import RecordBatch

BATCH_ROWS = 16_384
"""How many rows make a batch worth sending on."""

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


def joined_batches(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    """Join the small pages of a server into larger batches."""
    held: list[Any] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= BATCH_ROWS:
            yield pa.concat_batches(held)
            held, rows = [], 0
    if rows:
        yield pa.concat_batches(held)


def sorted_listing(batches: Iterable[RecordBatch]) -> Any:
    """Return a table in key order; if pages overlap and a key comes twice, its newest row counts."""
    table = pa.Table.from_batches(batches, LISTING_SCHEMA)
    ordered = table.sort_by("key")
    if pc.all(_begins_key(ordered)).as_py():
        return ordered
    # The newest row: a decision by age must not take a rewritten object for the old one.
    ordered = table.sort_by([("key", "ascending"), ("last_modified", "descending")])
    return ordered.filter(_begins_key(ordered))


def _begins_key(ordered: Any) -> Any:
    """Mark each row whose key differs from that of the row before."""
    keys = ordered["key"]
    differs = pc.not_equal(keys[1:], keys[:-1])
    return pa.chunked_array([pa.array([True][: len(keys)], pa.bool_()), *differs.chunks], pa.bool_())
