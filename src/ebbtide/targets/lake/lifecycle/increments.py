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

from ebbtide.core.errors import MetadataError
from ebbtide.engine.layers import laid_over
from ebbtide.engine.spark.failures import own_errors
from ebbtide.targets.lake.lifecycle.references import references
from ebbtide.targets.lake.lifecycle.standings import standings
from ebbtide.targets.lake.lifecycle.visiting import visit_ranges
from ebbtide.targets.lake.metadata.affected import affected_table
from ebbtide.targets.lake.metadata.world import World


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
