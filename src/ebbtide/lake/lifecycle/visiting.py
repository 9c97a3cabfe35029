"""
Visiting ranges: each is decoded if nobody has decoded it before, and those that changed say what they affect.

A range changed if it came, went, or is reached in another way than before. Each of its rows affects the
address that it names, unless the very same row, reached in the same way, is in a range that neither came nor
went: then one more or one less of it makes no difference. So a commit that rewrites a range for the sake of
one key affects that key's addresses and not ten thousand others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ebbtide.lake.catalog.model import RangeInfo
from ebbtide.lake.lifecycle.reference_files import ReferenceFiles
from ebbtide.lake.lifecycle.world import World
from ebbtide.tables.contracts import VISITED

_MOST_COMPARED = 4
"""A changed range is compared with so many of those that stayed; with more, little more would be found."""
_ROW = ["key", "address", "created", "size", "doubtful"]
_ROWS = pa.schema(
    [
        ("world", pa.int32()),
        ("hash", pa.int64()),
        ("ranges", pa.int64()),
        ("new", pa.int64()),
        ("entries", pa.int64()),
    ]
)


def visit_ranges(
    now: DataFrame, before: DataFrame | None, worlds: Mapping[int, World], *, again: bool = False
) -> DataFrame:
    """Decode what is new, or everything `again`; count it, and say what differs from before."""
    sided = now.withColumn("now", f.lit(True))
    if before is not None:
        sided = sided.unionByName(before.withColumn("now", f.lit(False)))
    units = sided.groupBy("world", "folder", "range_id").agg(
        f.min("min_key").alias("min_key"),
        f.max("max_key").alias("max_key"),
        f.max("count").alias("count"),
        _ties(f.col("now")).alias("now"),
        _ties(~f.col("now")).alias("before"),
    )
    files = {number: world.files for number, world in worlds.items()}
    tasks = 4 * now.sparkSession.sparkContext.defaultParallelism
    # Versions of one stretch of keys meet in one task, where they can be compared.
    spread = units.repartitionByRange(tasks, "world", "min_key")
    visitor = _Visitor(files, again, compares=before is not None)
    return VISITED.check(spread.mapInArrow(visitor, VISITED.schema))


def _ties(side: Column) -> Column:
    """Gather who reaches a range, as text: days may be null, and nulls never equal each other."""
    tie = f.to_json(f.struct("referrer", "name", "days"), {"ignoreNullFields": "false"})
    return f.array_join(f.sort_array(f.collect_list(f.when(side, tie))), "\n")


@dataclass(frozen=True)
class _Unit:
    """A range, and who reaches it now and who did before; nobody is an empty text."""

    world: int
    folder: str
    info: RangeInfo
    now: str
    before: str

    @property
    def stayed(self) -> bool:
        return self.now == self.before

    def can_excuse(self, other: _Unit) -> bool:
        """Tell whether rows of this range may make rows of a changed one count for nothing."""
        return (
            self.stayed
            and self.world == other.world
            and self.now in (other.now, other.before)
            and self.info.min_key <= other.info.max_key
            and other.info.min_key <= self.info.max_key
        )


@dataclass(frozen=True)
class _Visitor:
    """Visits ranges on an executor."""

    files: Mapping[int, ReferenceFiles]
    again: bool
    compares: bool

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        units = [_unit(row) for batch in batches for row in batch.to_pylist()]
        present = [unit for unit in units if unit.now]
        new = sum(self.files[unit.world].ensure(unit.folder, unit.info, again=self.again) for unit in present)
        yield _counts(len(present), new, sum(unit.info.count for unit in present))
        if self.compares:
            for unit in units:
                if not unit.stayed:
                    yield self._affected(unit, units)

    def _affected(self, unit: _Unit, units: Sequence[_Unit]) -> Any:
        """Give the hashes of the addresses that a changed range affects."""
        files = self.files[unit.world]
        # A range that is reached in another way than before has both come and gone: nothing excuses it.
        if unit.now and unit.before:
            hashes = files.hashes(unit.folder, unit.info)
        else:
            rows = files.rows(unit.folder, unit.info)
            staying = [other for other in units if other.can_excuse(unit)]
            # The fullest have most in common with what was added last.
            for other in nlargest(_MOST_COMPARED, staying, key=lambda other: other.info.count):
                known = files.rows(other.folder, other.info).select(_ROW)
                rows = rows.join(known, _ROW, join_type="left anti")
            hashes = np.asarray(rows.column("hash"))
        unique = np.unique(hashes)
        empty = pa.nulls(len(unique), pa.int64())
        worlds = pa.array(np.full(len(unique), unit.world, dtype=np.int32))
        return pa.RecordBatch.from_arrays([worlds, pa.array(unique), empty, empty, empty], schema=_ROWS)


def _unit(row: Mapping[str, Any]) -> _Unit:
    info = RangeInfo(row["range_id"], row["min_key"], row["max_key"], row["count"])
    return _Unit(row["world"], row["folder"], info, row["now"], row["before"])


def _counts(ranges: int, new: int, entries: int) -> Any:
    columns: list[Any] = [None, None, ranges, new, entries]
    return pa.RecordBatch.from_arrays(
        [pa.array([value], field.type) for value, field in zip(columns, _ROWS, strict=True)], schema=_ROWS
    )
