"""Incremental runs: standings that cannot have changed are kept, all others are added up again.

An address's standing is a pure function of the range rows that name it: what a range says, and how the rules
treat who reaches it. The ranges of then and now are compared, whatever caused the difference (a commit, a
reset, a branch deleted, a staged copy that is gone). Every address that a row which came *or went* names is
added up again, from all the ranges there are now; the others are what they were. Nothing is derived from a
log of changes, and no earlier run need have succeeded.

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
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ebbtide.core.errors import MetadataError
from ebbtide.engine.layers import laid_over
from ebbtide.engine.spark.failures import own_errors
from ebbtide.targets.repository.affected import affected_table, finish_folder, make_folder, write_affected
from ebbtide.targets.repository.lifecycle import references, standings
from ebbtide.targets.repository.model import RangeInfo
from ebbtide.targets.repository.range_cache import RangeCache
from ebbtide.targets.repository.world import World


@dataclass(frozen=True)
class Visited:
    """How many ranges a run uses, how many of them it had to decode, and what differs from before."""

    ranges: int
    new: int
    entries: int
    affected: int | None
    """How many addresses differ; None if there is nothing to compare with, or it would not pay."""
    folder: Path
    """Where they are written."""


@dataclass(frozen=True)
class Refreshed:
    """Standings added up again: of the affected addresses, or of all if nothing earlier could be kept."""

    rows: DataFrame
    affected: DataFrame | None
    count: int
    """How many addresses are affected."""

    def laid_over(self, earlier: DataFrame) -> DataFrame:
        """Give all standings: what was kept, and what was added up again."""
        if self.affected is None:
            return self.rows
        return laid_over(earlier, self.affected, self.count, self.rows)


def visited(
    ranges: DataFrame,
    before: DataFrame | None,
    worlds: Mapping[int, World],
    folder: Path,
    *,
    again: bool = False,
    most_changed: float = 0.5,
) -> Visited:
    """
    Decode the ranges that nobody has decoded before, or all of them `again`, and compare with before.

    With more than `most_changed` rows changed for every entry, adding up everything is the shorter way.
    """
    try:
        with own_errors():
            counts = visit_ranges(ranges, before, worlds, folder, again=again)
    except MetadataError:
        if before is None:
            raise
        # A range that went may be in no store any more. What it named is not needed to read everything.
        return visited(ranges, None, worlds, folder, again=again)
    few = before is not None and counts["affected"] <= most_changed * counts["entries"]
    affected = counts.pop("affected")
    return Visited(**counts, affected=affected if few else None, folder=folder)


def refreshed(ranges: DataFrame, worlds: Mapping[int, World], seen: Visited) -> Refreshed:
    """Add up the standings of the affected addresses, or all of them."""
    if seen.affected is None:
        return Refreshed(standings(references(ranges, worlds)), None, 0)
    affected = affected_table(ranges.sparkSession, seen.folder)
    among = references(ranges, worlds, among=seen.folder)
    return Refreshed(standings(among, affected), affected, seen.affected)


_MOST_COMPARED = 4
"""A changed range is compared with so many of those that stayed; with more, little more would be found."""
_ROW = ["key", "address", "created", "size", "doubtful"]
_COUNTS = pa.schema([(name, pa.int64()) for name in ("ranges", "new", "entries", "affected")])


def visit_ranges(
    now: DataFrame, before: DataFrame | None, worlds: Mapping[int, World], folder: Path, *, again: bool
) -> dict[str, int]:
    """Decode what is new, or everything `again`; count it, and write to a folder what differs from before."""
    make_folder(folder)
    sided = now.withColumn("now", f.lit(True))
    if before is not None:
        sided = sided.unionByName(before.withColumn("now", f.lit(False)))
    units = sided.groupBy("world", "folder", "range_id").agg(
        f.min("min_key").alias("min_key"),
        f.max("max_key").alias("max_key"),
        f.max("count").alias("count"),
        _referrers(f.col("now")).alias("now"),
        _referrers(~f.col("now")).alias("before"),
    )
    files = {number: world.files for number, world in worlds.items()}
    tasks = (4 if again else 1) * now.sparkSession.sparkContext.defaultParallelism
    # Versions of one stretch of keys meet in one task, where they can be compared.
    spread = units.repartitionByRange(tasks, "world", "min_key")
    visitor = _Visitor(files, folder if before is not None else None, again)
    counts = spread.mapInArrow(visitor, ", ".join(f"{name} long" for name in _COUNTS.names)).toArrow()
    totals = {name: sum(counts.column(name).to_pylist()) for name in _COUNTS.names}
    finish_folder(folder, totals["affected"])
    return totals


def _referrers(side: Column) -> Column:
    """Gather who reaches a range, as text: days may be null, and nulls never equal each other."""
    referrer = f.to_json(f.struct("referrer", "name", "days"), {"ignoreNullFields": "false"})
    return f.array_join(f.sort_array(f.collect_list(f.when(side, referrer))), "\n")


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

    files: Mapping[int, RangeCache]
    folder: Path | None
    """Where to write what differs from before; None if there is nothing to compare with."""
    again: bool

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        units = [_unit(row) for batch in batches for row in batch.to_pylist()]
        present = [unit for unit in units if unit.now]
        new = sum(self.files[unit.world].ensure(unit.folder, unit.info, again=self.again) for unit in present)
        counts = [len(present), new, sum(unit.info.count for unit in present), self._compare(units)]
        yield pa.RecordBatch.from_arrays([pa.array([n], pa.int64()) for n in counts], schema=_COUNTS)

    def _compare(self, units: Sequence[_Unit]) -> int:
        if self.folder is None:
            return 0
        found: dict[int, list[Any]] = {}
        for unit in units:
            if not unit.stayed:
                found.setdefault(unit.world, []).append(self._affected(unit, units))
        context = TaskContext.get()
        return write_affected(self.folder, context.partitionId() if context else 0, found)

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
        return np.unique(hashes)


def _unit(row: Mapping[str, Any]) -> _Unit:
    info = RangeInfo(row["range_id"], row["min_key"], row["max_key"], row["count"])
    return _Unit(row["world"], row["folder"], info, row["now"], row["before"])
