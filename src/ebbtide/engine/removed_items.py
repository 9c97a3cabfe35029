"""
Removed items as a plan sees them: items that are gone, and restored items that are held.

The two are applied separately. A collector that lists its store sees by itself what is gone, and only needs
the holds (`holding`). One that goes by references also needs to leave out what is gone (`without_gone`).

A plan keeps links to the segments that it was made with, so that it can be shown later as it was. A segment
is a folder with one immutable Parquet file. Its rows are sorted by hash, one row per item, in small row
groups, so that a lookup of one item reads one row group. Segments are merged as streams, so memory stays
bounded for any number of rows.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema

from ebbtide.core.decision import HoldReason, Outcome
from ebbtide.core.errors import MetadataError
from ebbtide.core.instant import from_micros
from ebbtide.engine.files import make_durable
from ebbtide.engine.spark.session import FEW
from ebbtide.engine.tables.contracts import REMOVED_ITEMS
from ebbtide.engine.tables.row_counts import CHECKED, check_counts, counted_rows, link_table, record_counts

BACK = str(Outcome.RESTORED)
GONE = [str(outcome) for outcome in Outcome if outcome.is_gone]

Hold = tuple[datetime, int]
"""Until when a restored item is held, and the number of the restore."""


def held_by_restore(run_id: int) -> str:
    """Return the holder of a restored item."""
    return f"restore {run_id}"


@dataclass(frozen=True)
class Segment:
    """One part of the table: its folder, its rows, and how many of them are restored items."""

    path: Path
    rows: int
    restored: int


@dataclass(frozen=True)
class RemovedItems:
    """The removed items of a target at one moment; a later segment's row replaces an earlier one's."""

    segments: tuple[Segment, ...] = ()

    @property
    def rows(self) -> int:
        """The number of rows, which is at least the number of items."""
        return sum(one.rows for one in self.segments)

    @property
    def restored(self) -> int:
        """The number of rows about restored items."""
        return sum(one.restored for one in self.segments)

    @property
    def is_few(self) -> bool:
        """Return True if the restored items are few enough to be sent to every executor."""
        return self.restored <= FEW

    def gone(self, spark: SparkSession) -> DataFrame:
        """Return the hashes of the items that are gone, with one join for any number of runs."""
        rows = self._read(spark)
        gone = rows.where(f.col("outcome").isin(GONE)).select("hash", "run_id")
        if not self.restored:
            return gone.select("hash")
        back = rows.where(f.col("outcome") == BACK)
        last = back.groupBy("hash").agg(f.max("run_id").alias("back_in")).withColumnRenamed("hash", "back")
        later = (f.col("hash") == f.col("back")) & (f.col("back_in") > f.col("run_id"))
        return gone.join(last.hint(_hint(self.restored)), later, "left_anti").select("hash")

    def held(self, spark: SparkSession) -> DataFrame:
        """Return the restored items that are held: hash, address, version, until when, by which restore."""
        back = self._read(spark).where((f.col("outcome") == BACK) & f.col("until").isNotNull())
        latest = f.max(f.struct("until", "run_id")).alias("latest")
        found = back.groupBy("hash", "address", "version").agg(latest)
        return found.select(
            "hash", "address", "version", "latest.until", f.col("latest.run_id").alias("restore")
        )

    def laid_over(self, verdicts: DataFrame) -> DataFrame:
        """Leave out items that are gone, and hold restored items."""
        return self.holding(self.without_gone(verdicts))

    def without_gone(self, items: DataFrame) -> DataFrame:
        """Leave out the items that are gone."""
        if not self.rows:
            return items
        # A few hashes are sent to all executors, because shuffling the items would take longest.
        gone = self.gone(items.sparkSession).hint(_hint(self.rows))
        return items.join(gone, "hash", "left_anti")

    def holding(self, verdicts: DataFrame) -> DataFrame:
        """Move the deadline of every restored item to the end of its hold, if that is later."""
        if not self.restored:
            return verdicts
        longest = f.max(f.struct("until", "restore")).alias("h")
        held = self.held(verdicts.sparkSession).groupBy("hash").agg(longest)
        joined = verdicts.join(held.hint(_hint(self.restored)), "hash", "left")
        holder = f.concat(f.lit(held_by_restore(0)[:-1]), f.col("h.restore"))
        return hold_back(joined, f.col("h.until"), holder).select(*verdicts.columns)

    def _read(self, spark: SparkSession) -> DataFrame:
        return REMOVED_ITEMS.read(spark, *(one.path for one in self.segments))

    def gone_hashes(self) -> Any:
        """Return the sorted hashes of the items that are gone; without Spark."""
        found = np.empty(0, np.int64)
        for one in self.segments:
            _check_rows(one)
            found = gone_after(found, read_segment(one.path, "hash", "outcome"))
        return found

    def gone_since(self, moment: datetime) -> Iterator[pa.Table]:
        """Yield the rows of the items that were removed at a moment or later; without Spark."""
        for one in self.segments:
            _check_rows(one)
            yield read_segment(one.path, wanted=went_since(moment))

    def holds(self) -> dict[int, Hold]:
        """Return until when each restored item is held, and by which restore, by hash; without Spark."""
        found: dict[int, tuple[int, int]] = {}
        wanted = (ds.field("outcome") == BACK) & ds.field("until").is_valid()
        for one in self.segments if self.restored else ():
            _check_rows(one)
            rows = read_segment(one.path, "hash", "until", "run_id", wanted=wanted)
            until = rows.column("until").cast(pa.int64()).to_pylist()
            for key, micros, run in zip(
                rows.column("hash").to_pylist(), until, rows.column("run_id").to_pylist(), strict=True
            ):
                found[key] = max(found.get(key, (0, 0)), (micros, run))
        return {key: (from_micros(micros), run) for key, (micros, run) in found.items()}

    def linked(self, folder: Path) -> RemovedItems:
        """Link the segments into another folder, where a fold does not remove them."""
        folder.mkdir(parents=True)
        for number, one in enumerate(self.segments):
            link_table(one.path, folder / f"{number:04d}-{one.rows}-{one.restored}")
        return removed_in(folder)


def went_since(moment: datetime) -> pc.Expression:
    """Return the filter for items that were removed at a moment or later."""
    return ds.field("outcome").isin(GONE) & (ds.field("at") >= pa.scalar(moment, SCHEMA.field("at").type))


def gone_after(gone: Any, rows: pa.Table) -> Any:
    """Return the sorted hashes of the items that are gone after later rows were applied."""
    hashes = np.asarray(rows.column("hash"))
    back, taken = (
        hashes[np.asarray(pc.is_in(rows.column("outcome"), pa.array(kinds)))] for kinds in ([BACK], GONE)
    )
    return np.union1d(np.setdiff1d(gone, back), taken)


def removed_in(folder: Path) -> RemovedItems:
    """Return the removed items that were linked into a folder."""
    try:
        places = sorted(folder.iterdir())
        numbers = [place.name.split("-") for place in places]
        return RemovedItems(
            tuple(
                Segment(place, int(rows), int(back))
                for place, (_, rows, back) in zip(places, numbers, strict=True)
            )
        )
    except (OSError, ValueError) as broken:
        raise MetadataError(
            f"the removed items of run {folder.parent.name} cannot be read",
            why="it is unknown which of its rows were gone when it was planned",
            fix="make a new plan",
        ) from broken


def hold_back(verdicts: DataFrame, until: Any, holder: Any) -> DataFrame:
    """Hold each row until a moment, if that is later than its deadline and known."""
    longer = f.coalesce(until > f.col("deadline"), f.lit(False))
    return verdicts.withColumns(
        {
            "hold": f.when(longer, str(HoldReason.RESTORED)).otherwise(f.col("hold")),
            "holder": f.when(longer, holder).otherwise(f.col("holder")),
            "deadline": f.when(longer, until).otherwise(f.col("deadline")),
        }
    )


def _hint(rows: int) -> str:
    return "broadcast" if rows <= FEW else "shuffle_hash"


def _check_rows(segment: Segment) -> None:
    if counted_rows(segment.path) != segment.rows:
        raise MetadataError(
            f"removed items {segment.path.name} do not have {segment.rows} rows", fix="make a new plan"
        )


SCHEMA = to_arrow_schema(REMOVED_ITEMS.schema, timezone="UTC")
FILE = "items.parquet"
KEY = ("hash", "address", "version", "action")
"""Rows that agree in these columns are about one item."""
ORDER = ("run_id", "attempt")
"""The last row of an item in this order counts."""
MOST_IN_MEMORY = 500_000
ROWS_PER_GROUP = 16_384
_BATCH = 65_536

Keep = Callable[[pa.Table], Any]
"""Returns a mask of the rows to keep."""


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
    """Replace null by a NUL, which is in no key, version or action, so that nulls compare equal."""
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
    """Merge segments into one sorted stream with the last row of each item, if `keep` keeps it."""
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
    """Return the rows of one address; the statistics of row groups limit what is read."""
    wanted = (ds.field("hash") == key_hash) & (ds.field("address") == address)
    check_counts(segment)
    return list(read_segment(segment, wanted=wanted).to_pylist())


def read_segment(segment: Path, *columns: str, wanted: pc.Expression | None = None) -> pa.Table:
    """Read some or all columns of a segment, and the wanted rows."""
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
