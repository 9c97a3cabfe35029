"""
Retention: until when commits keep each address.

A range is kept as long as the commit that keeps it longest. Most ranges belong to a head; what a head needs
cannot become due and gets no row. So the ranges whose term ends and that no head has are read first, and of
all other ranges only the rows that name one of their addresses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ebbtide.core.decision import CollectorName, HoldReason
from ebbtide.core.instant import NEVER, to_micros
from ebbtide.engine.tables.contracts import REFERENCES
from ebbtide.engine.tables.digest import without
from ebbtide.targets.repository.affected import is_affected, note_affected
from ebbtide.targets.repository.model import RangeInfo
from ebbtide.targets.repository.range_cache import RangeCache
from ebbtide.targets.repository.ranges import latest_term
from ebbtide.targets.repository.world import World

_MOMENT = pa.timestamp("us", tz="UTC")
_NEVER = to_micros(NEVER)


def retained_references(ranges: DataFrame, worlds: Mapping[int, World], folder: Path) -> DataFrame:
    """Return all references to the addresses that a commit stops keeping and no head needs."""
    kept = kept_ranges(ranges).persist()
    files = {number: world.files for number, world in worlds.items()}
    candidates = kept.where(f.col("lapses") & ~_by_head())
    note_affected(read_kept(candidates, files), folder)
    others = read_kept(kept.where(~f.col("lapses") & ~_by_head()), files, among=folder)
    at_heads = read_kept(kept.where(_by_head()), files, among=folder)
    return without(read_kept(candidates, files).unionByName(others), at_heads, on=("world", "hash"))


def every_reference(ranges: DataFrame, worlds: Mapping[int, World]) -> DataFrame:
    """Return the references to all addresses, also to those that heads need: for small worlds."""
    return read_kept(kept_ranges(ranges), {number: world.files for number, world in worlds.items()})


def kept_ranges(ranges: DataFrame) -> DataFrame:
    """Return each range once, with the term of the commit that keeps it longest."""
    return (
        ranges.where(f.col("until").isNotNull())
        .groupBy("world", "folder", "range_id")
        .agg(
            f.min("min_key").alias("min_key"),
            f.max("max_key").alias("max_key"),
            f.max("count").alias("count"),
            latest_term().alias("term"),
            f.max("lapses").alias("lapses"),
        )
        .select("world", "folder", "range_id", "min_key", "max_key", "count", "lapses", "term.*")
    )


def _by_head() -> Column:
    return f.col("why") == str(HoldReason.HEAD)


def read_kept(kept: DataFrame, files: Mapping[int, RangeCache], *, among: Path | None = None) -> DataFrame:
    """Return the references in ranges, which lapse with the range: all, or of affected addresses only."""
    return _spread(kept).mapInArrow(_KeptReader(files, among), REFERENCES.schema)


def _spread(kept: DataFrame) -> DataFrame:
    return kept.repartition(4 * kept.sparkSession.sparkContext.defaultParallelism, "range_id")


def _units(batches: Iterable[Any]) -> Iterator[tuple[dict[str, Any], RangeInfo]]:
    for batch in batches:
        for row in batch.to_pylist():
            yield row, RangeInfo(row["range_id"], row["min_key"], row["max_key"], row["count"])


@dataclass(frozen=True)
class _KeptReader:
    """Reads ranges on an executor; all references in a range have its term."""

    files: Mapping[int, RangeCache]
    among: Path | None

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        for row, info in _units(batches):
            files = self.files[row["world"]]
            chosen = None
            if self.among is not None:
                chosen = is_affected(self.among, row["world"], files.hashes(row["folder"], info))
                if not chosen.any():
                    continue
            rows = files.rows(row["folder"], info)
            yield from _references(rows if chosen is None else rows.filter(pa.array(chosen)), row)


def _references(rows: Any, kept: Mapping[str, Any]) -> Iterator[Any]:
    """Return the references of one range, which lapse with it; a doubtful spelling never lapses."""
    count = rows.num_rows
    until = to_micros(kept["until"])
    doubtful = np.asarray(rows.column("doubtful"))
    columns = {
        "world": pa.repeat(pa.scalar(kept["world"], pa.int32()), count),
        "touched": pa.repeat(pa.scalar(kept["lapses"]), count),
        "lapse": pa.array(np.where(doubtful, _NEVER, until), _MOMENT),
        "rules": pa.repeat(pa.scalar([str(CollectorName.RETENTION)], pa.list_(pa.string())), count),
        "holder": pa.repeat(pa.scalar(kept["keeper"], pa.string()), count),
        "why": pa.array(np.where(doubtful, str(HoldReason.SPELLING), kept["why"]), pa.string()),
    }
    names = REFERENCES.columns
    table = pa.table([columns[name] if name in columns else rows.column(name) for name in names], names)
    yield from table.combine_chunks().to_batches(max_chunksize=65_536)
