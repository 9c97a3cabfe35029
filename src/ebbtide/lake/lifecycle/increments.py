"""
Incremental runs: standings that cannot have changed are kept, all others are added up again.

An address's standing is a pure function of the range rows that name it: what a range says, and how the rules
treat who reaches it. The ranges of then and now are compared, whatever caused the difference (a commit, a
reset, a branch deleted, a staged copy that is gone). Every address that a row which came *or went* names is
added up again, from all the ranges there are now; the others are what they were. Nothing is derived from a
log of changes, and no earlier run need have succeeded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ebbtide.errors import MetadataError
from ebbtide.lake.lifecycle.affected import write_sorted
from ebbtide.lake.lifecycle.references import references
from ebbtide.lake.lifecycle.standings import standings
from ebbtide.lake.lifecycle.visiting import visit_ranges
from ebbtide.lake.lifecycle.world import World
from ebbtide.tables.contracts import AFFECTED, STANDINGS, VISITED
from ebbtide.tables.failures import own_errors
from ebbtide.tables.session import FEW


@dataclass(frozen=True)
class Visited:
    """How many ranges a run uses, how many of them it had to decode, and what differs from before."""

    ranges: int
    new: int
    entries: int
    affected: DataFrame | None
    """None if there is nothing to compare with, or too much has changed for a comparison to pay."""


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


def visited(
    ranges: DataFrame,
    before: DataFrame | None,
    worlds: Mapping[int, World],
    scratch: Path,
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
            VISITED.write(visit_ranges(ranges, before, worlds, again=again), scratch)
    except MetadataError:
        if before is None:
            raise
        # A range that went may be in no store any more. What it named is not needed to read everything.
        return visited(ranges, None, worlds, scratch, again=again)
    seen = VISITED.read(ranges.sparkSession, scratch)
    sums = [f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in ("ranges", "new", "entries")]
    counts = seen.agg(*sums, f.count("hash").alias("changed")).toArrow().to_pylist()[0]
    changed = counts.pop("changed")
    few = before is not None and changed <= most_changed * counts["entries"]
    return Visited(**counts, affected=AFFECTED.check(seen.where("hash is not null")) if few else None)


def refreshed(
    ranges: DataFrame, worlds: Mapping[int, World], affected: DataFrame | None, file: Path
) -> Refreshed:
    """Add up the standings of the affected addresses, or all of them; `file` is for executors to look up."""
    if affected is None:
        return Refreshed(standings(references(ranges, worlds)), None, 0)
    count = write_sorted(affected, file)
    if not count:
        return Refreshed(STANDINGS.read(ranges.sparkSession), AFFECTED.read(ranges.sparkSession), 0)
    return Refreshed(standings(references(ranges, worlds, among=file)), affected, count)
