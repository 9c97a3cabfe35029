"""
The range writer: write a new version with as few new ranges as its changes need.

A stream of entries is a sequence of *segments* in key order: a range that was not decoded yet, or a table of
rows. Two streams are compared window by window; where both have the same range, neither is decoded.

A key ends a range if the CRC-32 of its UTF-8 bytes is divisible by ``range_keys``. So the ends of ranges
depend on the keys alone, not on the history: equal content gives equal metaranges, and a change of one key
rewrites its range, or two if the key itself ended or ends one. All other ranges are shared.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.storage.store import Store
from ebbtide.targets.lake.catalog.ranges import ENTRIES, Table, read_range, write_range
from ebbtide.targets.repository.model import COMMITTED, RangeInfo

Segment = Any
"""A RangeInfo or a pyarrow.Table sorted by key."""

TOMBSTONE = pa.field("tombstone", pa.bool_(), nullable=False)
CHANGES = pa.schema(
    [ENTRIES.field("key"), TOMBSTONE] + [f.with_nullable(True) for f in ENTRIES if f.name != "key"]
)
"""A change sets a key to an entry, or removes it (tombstone); unique keys, sorted."""

RANGE_KEYS = 10_000


class Cursor:
    """A position in a stream of segments. A range is decoded only when its rows are needed."""

    def __init__(self, store: Store, segments: Iterable[Segment], schema: pa.Schema) -> None:
        self._store = store
        self._segments = iter(segments)
        self._empty = schema.empty_table()
        self._rows: Table = None
        self.range: RangeInfo | None = None
        self.low = self.high = ""
        self.done = False
        self.advance()

    def advance(self) -> None:
        """Go to the next segment."""
        self.range = self._rows = None
        for segment in self._segments:
            if isinstance(segment, RangeInfo):
                self.range, self.low, self.high = segment, segment.min_key, segment.max_key
                return
            if segment.num_rows:
                self._hold(segment)
                return
        self.done = True

    def pop(self) -> Segment:
        """Take the rest of the current segment, as a range if it is not decoded."""
        segment = self.range or self._rows
        self.advance()
        return segment

    def take_to(self, key: str) -> Table:
        """Take the current segment's rows up to and including this key."""
        return self._take(key, bisect_right) if not self.done and self.low <= key else self._empty

    def take_below(self, key: str) -> Table:
        """Take the current segment's rows before this key."""
        return self._take(key, bisect_left) if not self.done and self.low < key else self._empty

    def _take(self, key: str, bisect: Callable[..., int]) -> Table:
        """Decode the current segment if needed, and cut rows off it."""
        if self._rows is None and self.range is not None:
            self._hold(read_range(self._store, COMMITTED, self.range))
        rows = self._rows
        keys = rows.column("key")
        cut = bisect(range(rows.num_rows), key, key=lambda i: keys[i].as_py())
        if cut == rows.num_rows:
            self.advance()
        else:
            self._hold(rows.slice(cut))
        return rows.slice(0, cut)

    def _hold(self, rows: Table) -> None:
        """Make these rows the current segment."""
        keys = rows.column("key")
        self.range, self._rows = None, rows
        self.low, self.high = keys[0].as_py(), keys[-1].as_py()


def windows(left: Cursor, right: Cursor) -> Iterator[tuple[Table, Table]]:
    """Read two streams together: each pair has all rows of both in one window of keys."""
    while not (left.done and right.done):
        if left.range is not None and right.range is not None and left.range.id == right.range.id:
            left.advance()
            right.advance()
            continue
        upto = min(cursor.high for cursor in (left, right) if not cursor.done)
        yield left.take_to(upto), right.take_to(upto)


def overlaid(store: Store, base: Iterable[Segment], changes: Iterable[Table]) -> Iterator[Segment]:
    """Apply changes to a stream; ranges without changes are passed on undecoded."""
    below = Cursor(store, base, ENTRIES)
    above = Cursor(store, changes, CHANGES)
    while not (below.done and above.done):
        if below.done:
            yield live(above.pop())
        elif above.done or above.low > below.high:
            yield below.pop()
        elif above.low < below.low:
            yield live(above.take_below(below.low))
        else:
            upto = min(below.high, above.high)
            yield _merged(below.take_to(upto), above.take_to(upto))


def live(changes: Table) -> Table:
    """Return the entries that changes set, without tombstones."""
    return changes.filter(pc.invert(changes.column("tombstone"))).select(ENTRIES.names).cast(ENTRIES)


def is_in(rows: Table, others: Table) -> Any:
    """Mark the rows whose key is also in the other table."""
    return pc.is_in(rows.column("key"), value_set=others.column("key").combine_chunks())


def rows_of(store: Store, segment: Segment) -> Table:
    """Return the rows of a segment."""
    return read_range(store, COMMITTED, segment) if isinstance(segment, RangeInfo) else segment


def _merged(base: Table, changes: Table) -> Table:
    """Apply changes to rows of the same window of keys."""
    kept = base.filter(pc.invert(is_in(base, changes)))
    new = live(changes)
    return pa.concat_tables([kept, new]).sort_by("key") if new.num_rows else kept


class RangeWriter:
    """Cuts a sorted stream of segments into ranges, with at most one unfinished range in memory."""

    def __init__(self, store: Store, folder: str = COMMITTED, range_keys: int = RANGE_KEYS) -> None:
        self._store, self._folder, self._range_keys = store, folder, range_keys
        self._ranges: list[RangeInfo] = []
        self._buffer: list[Table] = []
        self._unended: RangeInfo | None = None

    def add(self, segment: Segment) -> None:
        """Add the next segment; a range with the same ends as the result is kept unread."""
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
        """End the last range and return all ranges."""
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
    """Apply changes to a version and write the new ranges; only ranges with changes are read."""
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
