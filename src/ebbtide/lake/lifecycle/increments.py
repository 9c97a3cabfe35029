"""
Incremental runs: standings that cannot have changed are kept, all others are added up again.

An address's standing is a pure function of the range rows that name it: a range, and how the rules treat
who reaches it. If no row that names an address has come or gone since, its standing is what it was. So the
rows of then and now are compared, whatever caused the difference (a commit, a reset, a branch deleted, a
staged copy that is gone), and every address in a range of a row that came *or went* is added up again from
all ranges there are now. Nothing is derived from a log of changes, and no earlier run need have succeeded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ebbtide.lake.catalog.model import RangeInfo
from ebbtide.lake.lifecycle.affected import addresses_in, write_sorted
from ebbtide.lake.lifecycle.reference_files import ReferenceFiles
from ebbtide.lake.lifecycle.references import references
from ebbtide.lake.lifecycle.standings import standings
from ebbtide.lake.lifecycle.world import World
from ebbtide.tables.contracts import AFFECTED, STANDINGS
from ebbtide.tables.session import FEW

IsNew = Callable[[ReferenceFiles, str, RangeInfo], bool]


@dataclass(frozen=True)
class Decoded:
    """How many ranges a run uses, how many of them it had to decode, and how many entries they have."""

    ranges: int
    new: int
    entries: int


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
        # A few are sent to where the many are; shuffling those would take longer than all else.
        again = self.affected.hint("broadcast" if self.count <= FEW else "shuffle_hash")
        return earlier.join(again, ["world", "hash"], "left_anti").unionByName(self.rows)


def decode_ranges(ranges: DataFrame, worlds: Mapping[int, World], *, again: bool = False) -> Decoded:
    """Decode the ranges that no run has decoded before, or all of them `again`, and count them."""
    return _counted(ranges, worlds, partial(_decode, again=again))


def refreshed(
    ranges: DataFrame,
    worlds: Mapping[int, World],
    before: DataFrame | None,
    decoded: Decoded,
    scratch: Path,
    *,
    most_changed: float = 0.5,
) -> Refreshed:
    """
    Add up the standings that may differ from those added up over the ranges of before.

    With more than `most_changed` of all entries in changed ranges, adding up everything is the shorter way.
    """
    everything = Refreshed(standings(references(ranges, worlds)), None, 0)
    if before is None:
        return everything
    changed = changed_ranges(ranges, before)
    known = _counted(changed, worlds, _is_lost)
    # A range that went may be in no store any more; without its file nobody knows what it named.
    if known.new or known.entries > most_changed * decoded.entries:
        return everything
    if not known.ranges:
        return Refreshed(STANDINGS.read(ranges.sparkSession), AFFECTED.read(ranges.sparkSession), 0)
    scratch.mkdir(parents=True, exist_ok=True)
    file = scratch / "affected.arrow"
    affected = addresses_in(changed, worlds).localCheckpoint()
    count = write_sorted(affected, file)
    return Refreshed(standings(references(ranges, worlds, among=file)), affected, count)


def changed_ranges(now: DataFrame, before: DataFrame) -> DataFrame:
    """Give the rows that came and those that went; a range that is reached in another way is both."""
    before = before.select(*now.columns)
    return now.subtract(before).union(before.subtract(now)).localCheckpoint()


def _counted(ranges: DataFrame, worlds: Mapping[int, World], is_new: IsNew) -> Decoded:
    """Visit each range once, on the executors, and add up what is found."""
    units = ranges.select("world", "folder", "range_id", "min_key", "max_key", "count").distinct()
    spread = units.repartition(4 * ranges.sparkSession.sparkContext.defaultParallelism, "range_id")
    visitor = _Visitor({number: world.files for number, world in worlds.items()}, is_new)
    found = spread.mapInArrow(visitor, "ranges long, new long, entries long")
    sums = [f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in found.columns]
    return Decoded(**found.agg(*sums).toArrow().to_pylist()[0])


@dataclass(frozen=True)
class _Visitor:
    """Visits ranges on an executor, and asks of each whether it is new."""

    files: Mapping[int, ReferenceFiles]
    is_new: IsNew

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            rows = batch.to_pylist()
            new = 0
            for row in rows:
                info = RangeInfo(row["range_id"], row["min_key"], row["max_key"], row["count"])
                new += self.is_new(self.files[row["world"]], row["folder"], info)
            entries = sum(row["count"] for row in rows)
            yield pa.RecordBatch.from_pydict({"ranges": [len(rows)], "new": [new], "entries": [entries]})


def _decode(files: ReferenceFiles, folder: str, info: RangeInfo, *, again: bool) -> bool:
    return files.ensure(folder, info, again=again)


def _is_lost(files: ReferenceFiles, folder: str, info: RangeInfo) -> bool:
    del folder
    return not files.has(info)
