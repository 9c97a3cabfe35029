"""
Removed items as a plan sees them: what is gone from its place, and what was restored and is held.

A plan keeps links to the segments that it was made with, so that it can be shown later as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.core.decision import HoldReason, Outcome
from ebbtide.core.errors import MetadataError
from ebbtide.core.instant import from_micros
from ebbtide.engine.removed_segments import SCHEMA, read_segment
from ebbtide.engine.spark.session import FEW
from ebbtide.engine.tables.contracts import REMOVED_ITEMS
from ebbtide.engine.tables.row_counts import counted_rows, link_table

BACK = str(Outcome.RESTORED)
GONE = [str(outcome) for outcome in Outcome if outcome.is_gone]

Hold = tuple[datetime, int]
"""Until when a restored item is held, and the number of the restore."""


def held_by_restore(run_id: int) -> str:
    """Name the restore that holds an item."""
    return f"restore {run_id}"


@dataclass(frozen=True)
class Segment:
    """One part of the table: where it lies, how many rows it has, and how many of them are restored items."""

    path: Path
    rows: int
    restored: int


@dataclass(frozen=True)
class RemovedItems:
    """The removed items of a target at one moment; a later segment's row replaces an earlier one's."""

    segments: tuple[Segment, ...] = ()

    @property
    def rows(self) -> int:
        """How many items there are at most."""
        return sum(one.rows for one in self.segments)

    @property
    def restored(self) -> int:
        """How many of them were restored."""
        return sum(one.restored for one in self.segments)

    @property
    def is_few(self) -> bool:
        """Tell whether the restored items are few enough to be sent to every executor."""
        return self.restored <= FEW

    def gone(self, spark: SparkSession) -> DataFrame:
        """Give the hashes of the items that are gone: one join, however many runs there were."""
        rows = self._read(spark)
        gone = rows.where(f.col("outcome").isin(GONE)).select("hash", "run_id")
        if not self.restored:
            return gone.select("hash")
        back = rows.where(f.col("outcome") == BACK)
        last = back.groupBy("hash").agg(f.max("run_id").alias("back_in")).withColumnRenamed("hash", "back")
        later = (f.col("hash") == f.col("back")) & (f.col("back_in") > f.col("run_id"))
        return gone.join(last.hint(_hint(self.restored)), later, "left_anti").select("hash")

    def held(self, spark: SparkSession) -> DataFrame:
        """Give the restored items that are held: hash, version, until when, and by which restore."""
        back = self._read(spark).where((f.col("outcome") == BACK) & f.col("until").isNotNull())
        latest = f.max(f.struct("until", "run_id")).alias("latest")
        found = back.groupBy("hash", "address", "version").agg(latest)
        return found.select(
            "hash", "address", "version", "latest.until", f.col("latest.run_id").alias("restore")
        )

    def laid_over(self, verdicts: DataFrame) -> DataFrame:
        """Leave out of verdicts what is gone, and hold what was restored."""
        return self.holding(self.without_gone(verdicts))

    def without_gone(self, items: DataFrame) -> DataFrame:
        """Leave out the items that are gone."""
        if not self.rows:
            return items
        # A few are sent to where the many are; shuffling those takes longer than all else.
        gone = self.gone(items.sparkSession).hint(_hint(self.rows))
        return items.join(gone, "hash", "left_anti")

    def holding(self, verdicts: DataFrame) -> DataFrame:
        """Move the deadline of every item that was restored to the end of its hold, if that is later."""
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
        """Give the hashes of what is gone, sorted; without Spark."""
        found = np.empty(0, np.int64)
        for one in self.segments:
            _check_rows(one)
            found = gone_after(found, read_segment(one.path, "hash", "outcome"))
        return found

    def gone_since(self, moment: datetime) -> Iterator[pa.Table]:
        """Give the rows of the items that went at a moment or later; without Spark."""
        for one in self.segments:
            _check_rows(one)
            yield read_segment(one.path, wanted=went_since(moment))

    def holds(self) -> dict[int, Hold]:
        """Give until when each restored item is held, and by which restore, by hash; without Spark."""
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
        """Give the same items under another folder's name, where a fold does not reach them."""
        folder.mkdir(parents=True)
        for number, one in enumerate(self.segments):
            link_table(one.path, folder / f"{number:04d}-{one.rows}-{one.restored}")
        return removed_in(folder)


def went_since(moment: datetime) -> pc.Expression:
    """Select the rows of items that went at a moment or later."""
    return ds.field("outcome").isin(GONE) & (ds.field("at") >= pa.scalar(moment, SCHEMA.field("at").type))


def gone_after(gone: Any, rows: pa.Table) -> Any:
    """Give the sorted hashes of what is gone after later rows, which bring items back or take them away."""
    hashes = np.asarray(rows.column("hash"))
    back, taken = (
        hashes[np.asarray(pc.is_in(rows.column("outcome"), pa.array(kinds)))] for kinds in ([BACK], GONE)
    )
    return np.union1d(np.setdiff1d(gone, back), taken)


def removed_in(folder: Path) -> RemovedItems:
    """Find the removed items that were linked into a folder."""
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
            why="which of its rows were gone when it was planned is unknown",
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
            f"removed items {segment.path.name} have not {segment.rows} rows", fix="make a new plan"
        )
