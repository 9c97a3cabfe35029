"""
Segments: sorted, immutable files of removed items, without Spark.

A segment is a folder with one Parquet file. Its rows are sorted by hash, one row per item, in small row
groups, so that a lookup of one item reads one row group. Segments are merged as streams: memory stays bounded
however many rows they have.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from ebbtide.core.errors import MetadataError
from ebbtide.engine.durability import make_durable
from ebbtide.engine.tables.contracts import REMOVED_ITEMS
from ebbtide.engine.tables.row_counts import CHECKED, check_counts, record_counts

SCHEMA = to_arrow_schema(REMOVED_ITEMS.schema, timezone="UTC")
FILE = "items.parquet"
KEY = ("hash", "address", "version", "action")
"""What makes two rows rows of one item."""
ORDER = ("run_id", "attempt")
"""Of several rows of one item the last in this order counts."""
MOST_IN_MEMORY = 500_000
ROWS_PER_GROUP = 16_384
_BATCH = 65_536

Keep = Callable[[pa.Table], Any]
"""Says of each row of a table whether it is kept, as a mask."""


def last_of_each(rows: pa.Table) -> pa.Table:
    """Sort rows and keep the last row of each item."""
    if not rows.num_rows:
        return rows
    ordered = rows.sort_by([(name, "ascending") for name in (*KEY, *ORDER)])
    before, after = ordered.slice(0, ordered.num_rows - 1), ordered.slice(1)
    differs = np.zeros(before.num_rows, bool)
    for name in KEY:
        old, new = (_comparable(part.column(name)) for part in (before, after))
        differs |= np.asarray(pc.not_equal(old, new))
    return ordered.filter(pa.array(np.append(differs, True)))


def _comparable(column: Any) -> Any:
    """Give a column in which no value equals null; a NUL is in no key, version or action."""
    return pc.fill_null(column, "\0") if pa.types.is_string(column.type) else column


def write_segment(folder: Path, tables: Iterable[pa.Table]) -> int:
    """Write sorted tables that follow each other as one segment, make it durable, and return its rows."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    count = 0
    with pq.ParquetWriter(
        folder / FILE, SCHEMA, compression="zstd", use_dictionary=False, write_page_checksum=True
    ) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=ROWS_PER_GROUP)
            count += table.num_rows
    record_counts(folder, count)
    make_durable(folder)
    return count


def sorted_tables(rows: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Sort a stream of tables in parts that fit in memory."""
    waiting: list[pa.Table] = []
    for table in rows:
        waiting.append(table)
        if sum(part.num_rows for part in waiting) >= MOST_IN_MEMORY:
            yield last_of_each(pa.concat_tables(waiting))
            waiting = []
    if sum(part.num_rows for part in waiting):
        yield last_of_each(pa.concat_tables(waiting))


def merged(segments: Sequence[Path], keep: Keep | None = None) -> Iterator[pa.Table]:
    """Merge segments into one sorted stream with the last row of each item, as far as `keep` keeps it."""
    streams = [_Stream(segment) for segment in segments]
    while any(stream.rows.num_rows for stream in streams):
        # Rows below the bound are complete: no stream has more of them.
        bounds = [stream.last for stream in streams if stream.has_more]
        bound = min(bounds) if bounds else None
        parts = [stream.take_below(bound) for stream in streams]
        rows = last_of_each(pa.concat_tables(parts))
        if keep is not None:
            rows = rows.filter(keep(rows))
        if rows.num_rows:
            yield rows
        for stream in streams:
            if stream.has_more and bound is not None and stream.last == bound:
                stream.read_more()


class _Stream:
    """A segment that is read batch by batch."""

    def __init__(self, segment: Path) -> None:
        file = pq.ParquetFile(segment / FILE, page_checksum_verification=True)
        self._batches = file.iter_batches(_BATCH)
        self.rows = SCHEMA.empty_table()
        self.has_more = True
        self.read_more()

    @property
    def last(self) -> int:
        """The largest hash that was read."""
        return int(self.rows.column("hash")[-1].as_py())

    def read_more(self) -> None:
        """Read one batch more."""
        batch = next(self._batches, None)
        if batch is None:
            self.has_more = False
            return
        self.rows = pa.concat_tables([self.rows, pa.Table.from_batches([batch]).cast(SCHEMA)])

    def take_below(self, bound: int | None) -> pa.Table:
        """Take the rows whose hash is below a bound, or all of them."""
        hashes = np.asarray(self.rows.column("hash"))
        cut = len(hashes) if bound is None else int(np.searchsorted(hashes, bound))
        taken, self.rows = self.rows.slice(0, cut), self.rows.slice(cut)
        return taken


def find_rows(segment: Path, key_hash: int, address: str) -> list[dict[str, Any]]:
    """Look up the rows of one address; statistics of the row groups say where they can be."""
    wanted = (ds.field("hash") == key_hash) & (ds.field("address") == address)
    check_counts(segment)
    return list(read_segment(segment, wanted=wanted).to_pylist())


def read_segment(segment: Path, *columns: str, wanted: pc.Expression | None = None) -> pa.Table:
    """Read some columns of a segment, or all of them, and the rows that are wanted."""
    try:
        return ds.dataset(segment / FILE, format=CHECKED).to_table(
            columns=list(columns) or None, filter=wanted
        )
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as broken:
        first = next(iter(str(broken).splitlines()), type(broken).__name__)
        raise MetadataError(
            f"the table of removed items is damaged: {segment.name} cannot be read ({first})",
            why="it says which items earlier runs have removed",
            fix=f"remove the folder removed/{segment.parent.name} of the state root and plan again: the table"
            " is made anew from the outcomes of all runs",
        ) from None
