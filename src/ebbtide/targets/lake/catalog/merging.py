"""
Writing a new version as few new ranges as its changes need.

A key ends a range when the CRC-32 of its UTF-8 bytes is divisible by ``range_keys``. So where ranges end
depends on the keys alone, not on the history: equal content gives equal metaranges, and a change of one key
rewrites its range, or two where the key itself ended or ends one. All other ranges are shared.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from ebbtide.storage.store import Store
from ebbtide.targets.lake.catalog.model import RangeInfo
from ebbtide.targets.lake.catalog.ranges import COMMITTED, Table, read_range, write_range
from ebbtide.targets.lake.catalog.segments import Segment, overlaid

RANGE_KEYS = 10_000


class RangeWriter:
    """Cuts a sorted stream of segments into ranges; holds no more than one unfinished range in memory."""

    def __init__(self, store: Store, folder: str = COMMITTED, range_keys: int = RANGE_KEYS) -> None:
        self._store, self._folder, self._range_keys = store, folder, range_keys
        self._ranges: list[RangeInfo] = []
        self._buffer: list[Table] = []
        self._unended: RangeInfo | None = None

    def add(self, segment: Segment) -> None:
        """Take the next segment; a range that stands where it would be cut anyway is kept unread."""
        if not isinstance(segment, RangeInfo):
            self._add_rows(segment)
        elif self._buffer or self._unended is not None:
            self._add_rows(read_range(self._store, self._folder, segment))
        elif zlib.crc32(segment.max_key.encode()) % self._range_keys == 0:
            self._ranges.append(segment)
        else:
            # Only the last range of a version has no key that ends it. If rows follow now, it must grow.
            self._unended = segment

    def finish(self) -> list[RangeInfo]:
        """End the last range and give all of them."""
        if self._unended is not None:
            self._ranges.append(self._unended)
            self._unended = None
        self._flush()
        return self._ranges

    def _add_rows(self, rows: Table) -> None:
        """Buffer rows and end a range at each key that ends one."""
        if rows.num_rows == 0:
            return
        if self._unended is not None:
            unended, self._unended = self._unended, None
            self._add_rows(read_range(self._store, self._folder, unended))
        start = 0
        for end in _ends(rows, self._range_keys):
            self._buffer.append(rows.slice(start, end + 1 - start))
            self._flush()
            start = end + 1
        if start < rows.num_rows:
            self._buffer.append(rows.slice(start))

    def _flush(self) -> None:
        """Write the buffered rows as a range."""
        if self._buffer:
            rows = pa.concat_tables(self._buffer)
            self._ranges.append(write_range(self._store, self._folder, rows))
            self._buffer = []


def apply_changes(
    store: Store,
    base: list[RangeInfo],
    changes: Iterator[Table] | Iterable[Table],
    *,
    range_keys: int = RANGE_KEYS,
) -> list[RangeInfo]:
    """Write base with the changes laid over it, as a stream; only ranges that a change touches are read."""
    writer = RangeWriter(store, COMMITTED, range_keys)
    for segment in overlaid(store, base, changes):
        writer.add(segment)
    return writer.finish()


def _ends(rows: Table, range_keys: int) -> list[int]:
    """Find the rows whose key ends a range."""
    keys = rows.column("key").cast(pa.binary()).to_pylist()
    sums = np.fromiter(map(zlib.crc32, keys), dtype=np.uint32, count=len(keys))
    ends: list[int] = np.flatnonzero(sums % np.uint32(range_keys) == 0).tolist()
    return ends
