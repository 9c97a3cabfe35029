"""
Incremental runs: verdicts that cannot have changed are kept, all others are computed again.

The verdict on an address is a pure function of the range rows that name it and of how the rules treat the
referrers of those ranges. The ranges of the last run and of this one are compared, whatever caused a
difference (a commit, a reset, a deleted branch, a staged copy that is gone). Every address that an added *or
removed* row names is computed again, from all ranges of this run; all other verdicts stay. Nothing is derived
from a log of changes, and no earlier run has to have succeeded.

A range changed if it was added or removed, or if its referrers changed. Each of its rows affects the address
that it names, unless the same row is in an unchanged range with the same referrers: then one row more or less
makes no difference. So a commit that rewrites a range to change one key affects the addresses of that key,
and not those of ten thousand others.
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
from ebbtide.engine.spark.failures import own_errors
from ebbtide.engine.spark.latency import is_small
from ebbtide.engine.verdicts import laid_over
from ebbtide.targets.repository.address_verdicts import reference_verdicts
from ebbtide.targets.repository.affected import affected_table, finish_folder, make_folder, write_affected
from ebbtide.targets.repository.lifecycle import references
from ebbtide.targets.repository.model import RangeInfo
from ebbtide.targets.repository.range_cache import RangeCache
from ebbtide.targets.repository.world import World

_MOST_COMPARED = 4
"""A changed range is compared with this many unchanged ones; more of them would save little more."""
_ROW = ["key", "address", "created", "size", "doubtful"]
_COUNTS = pa.schema([(name, pa.int64()) for name in ("ranges", "new", "entries", "affected")])


@dataclass(frozen=True)
class RangeChanges:
    """How many ranges a run uses, how many of them it decoded, and what differs from the last run."""

    ranges: int
    new: int
    entries: int
    affected: int | None
    """How many addresses may differ; None if there is nothing to compare with, or too many do."""
    folder: Path
    """The folder of the affected addresses."""


@dataclass(frozen=True)
class UpdatedVerdicts:
    """Verdicts that were computed again: on the affected addresses, or on all of them."""

    rows: DataFrame
    affected: DataFrame | None
    count: int
    """How many addresses are affected."""

    def laid_over(self, earlier: DataFrame) -> DataFrame:
        """Return all verdicts: the earlier ones, except where they were computed again."""
        if self.affected is None:
            return self.rows
        return laid_over(earlier, self.affected, self.count, self.rows, ("world", "hash"))


def compare_ranges(
    ranges: DataFrame,
    before: DataFrame | None,
    worlds: Mapping[int, World],
    folder: Path,
    *,
    again: bool = False,
    few: bool = False,
    most_changed: float = 0.5,
) -> RangeChanges:
    """
    Decode the ranges that are not in the cache, or all of them `again`, and compare with the last run.

    If `few` entries are known to be all, one task reads them: dividing them would be a job of its own.
    If more than the fraction `most_changed` of all entries is affected, computing everything is faster.
    """
    try:
        with own_errors():
            counts = _compare_ranges(ranges, before, worlds, folder, again=again, few=few)
    except MetadataError:
        if before is None:
            raise
        # A range of the last run may be gone from the store. Computing everything does not need it.
        return compare_ranges(ranges, None, worlds, folder, again=again, few=few)
    few = before is not None and counts["affected"] <= most_changed * counts["entries"]
    affected = counts.pop("affected")
    return RangeChanges(**counts, affected=affected if few else None, folder=folder)


def updated_verdicts(ranges: DataFrame, worlds: Mapping[int, World], seen: RangeChanges) -> UpdatedVerdicts:
    """Compute the verdicts on the affected addresses, or on all of them."""
    if seen.affected is None:
        every = references(ranges, worlds, few=is_small(seen.entries))
        return UpdatedVerdicts(reference_verdicts(every), None, 0)
    affected = affected_table(ranges.sparkSession, seen.folder)
    among = references(ranges, worlds, among=seen.folder)
    return UpdatedVerdicts(reference_verdicts(among, affected), affected, seen.affected)


def _compare_ranges(
    now: DataFrame,
    before: DataFrame | None,
    worlds: Mapping[int, World],
    folder: Path,
    *,
    again: bool,
    few: bool,
) -> dict[str, int]:
    """Decode new ranges, or all of them `again`; write affected addresses to a folder, and count."""
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
    # Versions of the same range of keys meet in one task, where they can be compared.
    spread = units.repartitionByRange(1 if few else tasks, "world", "min_key")
    visitor = _RangeComparer(files, folder if before is not None else None, again)
    counts = spread.mapInArrow(visitor, ", ".join(f"{name} long" for name in _COUNTS.names)).toArrow()
    totals = {name: sum(counts.column(name).to_pylist()) for name in _COUNTS.names}
    finish_folder(folder, totals["affected"])
    return totals


def _referrers(side: Column) -> Column:
    """Return the referrers of a range as text: days may be null, and nulls never equal each other."""
    referrer = f.to_json(f.struct("referrer", "name", "days"), {"ignoreNullFields": "false"})
    return f.array_join(f.sort_array(f.collect_list(f.when(side, referrer))), "\n")


@dataclass(frozen=True)
class _ComparedRange:
    """A range with its referrers now and in the last run; an empty text means none."""

    world: int
    folder: str
    info: RangeInfo
    now: str
    before: str

    @property
    def stayed(self) -> bool:
        return self.now == self.before

    def makes_irrelevant(self, other: _ComparedRange) -> bool:
        """Return True if a row of this range makes the same row of a changed range irrelevant."""
        return (
            self.stayed
            and self.world == other.world
            and self.now in (other.now, other.before)
            and self.info.min_key <= other.info.max_key
            and other.info.min_key <= self.info.max_key
        )


@dataclass(frozen=True)
class _RangeComparer:
    """Decodes and compares ranges on an executor."""

    files: Mapping[int, RangeCache]
    folder: Path | None
    """Where to write affected addresses; None if there is nothing to compare with."""
    again: bool

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        units = [_compared_range(row) for batch in batches for row in batch.to_pylist()]
        present = [unit for unit in units if unit.now]
        new = sum(self.files[unit.world].ensure(unit.folder, unit.info, again=self.again) for unit in present)
        counts = [len(present), new, sum(unit.info.count for unit in present), self._compare(units)]
        yield pa.RecordBatch.from_arrays([pa.array([n], pa.int64()) for n in counts], schema=_COUNTS)

    def _compare(self, units: Sequence[_ComparedRange]) -> int:
        if self.folder is None:
            return 0
        found: dict[int, list[Any]] = {}
        for unit in units:
            if not unit.stayed:
                found.setdefault(unit.world, []).append(self._affected(unit, units))
        context = TaskContext.get()
        return write_affected(self.folder, context.partitionId() if context else 0, found)

    def _affected(self, unit: _ComparedRange, units: Sequence[_ComparedRange]) -> Any:
        """Return the hashes of the addresses that a changed range affects."""
        files = self.files[unit.world]
        # A range whose referrers changed counts as both removed and added: all its rows are affected.
        if unit.now and unit.before:
            hashes = files.hashes(unit.folder, unit.info)
        else:
            rows = files.rows(unit.folder, unit.info)
            staying = [other for other in units if other.makes_irrelevant(unit)]
            # Large ranges have most in common with a new version.
            for other in nlargest(_MOST_COMPARED, staying, key=lambda other: other.info.count):
                known = files.rows(other.folder, other.info).select(_ROW)
                rows = rows.join(known, _ROW, join_type="left anti")
            hashes = np.asarray(rows.column("hash"))
        return np.unique(hashes)


def _compared_range(row: Mapping[str, Any]) -> _ComparedRange:
    info = RangeInfo(row["range_id"], row["min_key"], row["max_key"], row["count"])
    return _ComparedRange(row["world"], row["folder"], info, row["now"], row["before"])
