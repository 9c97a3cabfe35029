"""Reading committed content: immutable, so what was read once may be remembered."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from ebbtide.core.instant import from_micros
from ebbtide.storage.store import Store
from ebbtide.targets.lake.catalog.model import Entry, RangeInfo
from ebbtide.targets.lake.catalog.names import after_prefix
from ebbtide.targets.lake.catalog.ranges import COMMITTED, Table, read_metarange, read_range

_METARANGES = 64
_RANGES = 4


class Committed:
    """One namespace's metaranges and ranges, with the last few kept in memory."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._metarange = lru_cache(_METARANGES)(self._read_metarange)
        self._range = lru_cache(_RANGES)(self._read_range)

    def ranges(self, metarange_id: str, prefix: str = "") -> list[RangeInfo]:
        """Give a metarange's ranges, in key order; with a prefix only those that can hold such keys."""
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
    """Turn rows into entries, None where there is none; the columns' names may have a prefix."""
    columns: list[list[Any]] = [rows.column("key").to_pylist()]
    for name in ("address", "created", "size", "checksum"):
        column = rows.column(before + name)
        columns.append((column.cast("int64") if name == "created" else column).to_pylist())
    for key, address, created, size, checksum in zip(*columns, strict=True):
        found = address is not None
        yield Entry(key, address, from_micros(created), size, checksum) if found else None
