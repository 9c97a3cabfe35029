"""
Ranges and metaranges: immutable, content-addressed Parquet files under ``_lakefs/``.

The name of a file is the SHA-256 of its bytes, so a reader can check that it has exactly what was written. A
missing, truncated or altered file raises :class:`MetadataError`; it never counts as "no entries".
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ebbtide.core.errors import MetadataError, NotFound
from ebbtide.core.instant import from_micros
from ebbtide.storage.store import Store
from ebbtide.targets.lake.catalog.model import Entry
from ebbtide.targets.lake.catalog.names import after_prefix
from ebbtide.targets.repository.model import COMMITTED, METADATA, RangeInfo

Table = Any
"""A pyarrow.Table; pyarrow ships no types."""

ENTRIES = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("address", pa.string(), nullable=False),
        pa.field("created", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("checksum", pa.string(), nullable=False),
    ]
)
RANGES = pa.schema(
    [
        pa.field("range_id", pa.string(), nullable=False),
        pa.field("min_key", pa.string(), nullable=False),
        pa.field("max_key", pa.string(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
    ]
)

METARANGES = f"{METADATA}metaranges"
"""Metaranges of commits, in their own folder, so that a listing finds every commit ever made."""

_METARANGES = 64
_RANGES = 4


def metadata_key(folder: str, content_id: str) -> str:
    """Return the key of a range or metarange."""
    return f"{folder}/{content_id}.parquet"


def metarange_key(folder: str, metarange_id: str) -> str:
    """Return the key of a metarange."""
    return metadata_key(METARANGES if folder == COMMITTED else folder, metarange_id)


def write_range(store: Store, folder: str, entries: Table) -> RangeInfo:
    """Write entries, already sorted by key, as one range; the same content gets the same file."""
    keys = entries.column("key")
    # One chunk per column: the bytes, and so the name of the range, must depend on the rows alone.
    rows = entries.select(ENTRIES.names).cast(ENTRIES).combine_chunks()
    content_id, data = _encoded(rows)
    _write(store, metadata_key(folder, content_id), data)
    return RangeInfo(content_id, keys[0].as_py(), keys[-1].as_py(), entries.num_rows)


def write_metarange(
    store: Store, folder: str, ranges: Sequence[RangeInfo], note: Callable[[str], None] = lambda _id: None
) -> str:
    """Write a commit's list of ranges, in key order, and return its id; call `note` with it before."""
    columns = {
        "range_id": [r.id for r in ranges],
        "min_key": [r.min_key for r in ranges],
        "max_key": [r.max_key for r in ranges],
        "count": [r.count for r in ranges],
    }
    metarange_id, data = _encoded(pa.table(columns, schema=RANGES))
    note(metarange_id)
    _write(store, metarange_key(folder, metarange_id), data)
    return metarange_id


def read_range(
    store: Store,
    folder: str,
    info: RangeInfo,
    columns: Sequence[str] | None = None,
) -> Table:
    """Read a range and check it against its name and the metarange."""
    table = _decoded(*_fetched(store, [metadata_key(folder, info.id)]), info.id, ENTRIES, columns)
    if table.num_rows != info.count:
        raise MetadataError(
            f"range {info.id} has {table.num_rows} entries, its metarange says {info.count}",
            why="a reference may be missing",
            fix="restore the file from a backup of the namespace, then plan again",
        )
    return table


def read_metarange(store: Store, folder: str, metarange_id: str) -> list[RangeInfo]:
    """Read a commit's list of ranges."""
    rows = metarange_table(store, folder, metarange_id).to_pylist()
    return [RangeInfo(r["range_id"], r["min_key"], r["max_key"], r["count"]) for r in rows]


def metarange_table(store: Store, folder: str, metarange_id: str) -> Table:
    """Read a commit's list of ranges as a table."""
    places = dict.fromkeys([metarange_key(folder, metarange_id), metadata_key(folder, metarange_id)])
    return _decoded(*_fetched(store, list(places)), metarange_id, RANGES, None)


def is_metarange(store: Store, folder: str, content_id: str) -> bool:
    """Return True for a metarange, False for a range; raise an error if the file cannot be read."""
    key, data = _fetched(store, [metadata_key(folder, content_id)])
    return bool(_opened(key, data, content_id).schema_arrow.names == RANGES.names)


def _encoded(table: Table) -> tuple[str, bytes]:
    """Encode a table; return the hash of its bytes, which is its name, and the bytes."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", row_group_size=131_072)
    data = sink.getvalue().to_pybytes()
    return hashlib.sha256(data).hexdigest(), data


def _write(store: Store, key: str, data: bytes) -> None:
    """Write a file, unless it exists."""
    try:
        known = store.stat(key).size == len(data)
    except NotFound:
        known = False
    if not known:
        store.write(key, data)


def _fetched(store: Store, keys: Sequence[str]) -> tuple[str, bytes]:
    """Read the first of these files that exists."""
    for key in keys:
        try:
            return key, store.read(key)
        except NotFound:
            continue
    raise MetadataError(
        f"{keys[0]} is missing",
        why="what it references is unknown, so nothing may be deleted",
        fix="restore the file from a backup of the namespace, then plan again",
    )


def _opened(key: str, data: bytes, content_id: str) -> Any:
    """Open a file, and check that its bytes are those that were written."""
    if hashlib.sha256(data).hexdigest() != content_id:
        raise MetadataError(
            f"{key} is damaged: its {len(data)} bytes are not what was written",
            why="what it references is unknown, so nothing may be deleted",
            fix="restore the file from a backup of the namespace, then plan again",
        )
    try:
        return pq.ParquetFile(pa.BufferReader(data))
    except pa.ArrowException as broken:
        raise MetadataError(f"{key} is not a Parquet file of this kind", why=str(broken)) from broken


def _decoded(
    key: str, data: bytes, content_id: str, schema: pa.Schema, columns: Sequence[str] | None
) -> Table:
    """Read the table of a file, and check its columns."""
    file = _opened(key, data, content_id)
    if file.schema_arrow.names != schema.names:
        raise MetadataError(
            f"{key} has the columns {file.schema_arrow.names}, not {schema.names}",
            why="a column that is not understood may be a reference",
            fix="use the Ebbtide that wrote it, or a newer one",
        )
    try:
        table = file.read(columns=list(columns) if columns else None)
    except pa.ArrowException as broken:
        raise MetadataError(f"{key} is not a Parquet file of this kind", why=str(broken)) from broken
    wanted = [schema.field(name) for name in (columns or schema.names)]
    return table.select([field.name for field in wanted]).cast(pa.schema(wanted))


class CommittedContent:
    """The metaranges and ranges of a namespace, with the last few in memory."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._metarange = lru_cache(_METARANGES)(self._read_metarange)
        self._range = lru_cache(_RANGES)(self._read_range)

    def ranges(self, metarange_id: str, prefix: str = "") -> list[RangeInfo]:
        """Return the ranges of a metarange, in key order; with a prefix, those that may have such keys."""
        found = self._metarange(metarange_id)
        if not prefix:
            return list(found)
        end = after_prefix(prefix)
        return [r for r in found if r.max_key >= prefix and (end is None or r.min_key < end)]

    def find(self, metarange_id: str, key: str) -> Entry | None:
        """Look up one key; reads at most one range."""
        ranges = self._metarange(metarange_id)
        place = bisect_left(ranges, key, key=lambda found: found.max_key)
        if place == len(ranges) or ranges[place].min_key > key:
            return None
        rows = self._range(ranges[place])
        keys = rows.column("key")
        row = bisect_left(range(rows.num_rows), key, key=lambda i: keys[i].as_py())
        found = next(entries(rows.slice(row, 1)))
        return found if found.key == key else None

    def _read_metarange(self, metarange_id: str) -> tuple[RangeInfo, ...]:
        """Read a metarange once; it can never change."""
        return tuple(read_metarange(self.store, COMMITTED, metarange_id))

    def _read_range(self, info: RangeInfo) -> Table:
        """Read a range once; it can never change."""
        return read_range(self.store, COMMITTED, info)


def entries(rows: Table) -> Iterator[Entry]:
    """Turn rows into entries."""
    return (entry for entry in optional_entries(rows) if entry is not None)


def optional_entries(rows: Table, before: str = "") -> Iterator[Entry | None]:
    """Turn rows into entries, None for null rows; column names may have a prefix."""
    columns: list[list[Any]] = [rows.column("key").to_pylist()]
    for name in ("address", "created", "size", "checksum"):
        column = rows.column(before + name)
        columns.append((column.cast("int64") if name == "created" else column).to_pylist())
    for key, address, created, size, checksum in zip(*columns, strict=True):
        found = address is not None
        yield Entry(key, address, from_micros(created), size, checksum) if found else None
