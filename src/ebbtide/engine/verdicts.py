"""
Verdicts: how they are stored in layers, and what they decide at a moment.

A verdict does not depend on the time: it has an item's deadline and what holds it until then. Verdicts are
stored as a base, and as rows that replace some rows of the base. A run keeps links to both, so that its cost
depends on what changed. An item whose deadline has come is due, every other one is held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.core.decision import Decision
from ebbtide.core.errors import MetadataError
from ebbtide.core.instant import NEVER, to_micros
from ebbtide.engine.spark.session import FEW
from ebbtide.engine.tables.contracts import VERDICTS
from ebbtide.engine.tables.row_counts import link_table

TOUCHED = "touched"
"""A rule matches a reference to the item."""
UNTOUCHED = "untouched"
"""No rule does; only the hash is known, for counting."""
GONE = "gone"
"""Nothing references the item any more."""


@dataclass(frozen=True)
class Layers:
    """The folders of verdicts: the base, and the rows that replace some of its rows."""

    base: Path
    since: Path | None = None
    since_rows: int = 0

    def read(self, spark: SparkSession, *kinds: str) -> DataFrame:
        """Return all verdicts of some kinds."""
        of_kind = f.col("kind").isin(list(kinds))
        base = VERDICTS.read(spark, self.base).where(of_kind)
        if self.since is None:
            return base
        since = VERDICTS.read(spark, self.since)
        return laid_over(base, since, self.since_rows, since.where(of_kind))

    def linked(self, folder: Path) -> Layers:
        """Link the verdicts into another folder, without those that no rule touches."""
        for layer in (self.base, self.since):
            # Without the rows that replace some of its own, a base would be outdated.
            if layer is not None and not layer.is_dir():
                raise MetadataError(f"verdicts {layer.name!r} are missing", fix="plan again with --full")
        link_table(self.base, folder / "base", below=f"kind={TOUCHED}/")
        if self.since is not None:
            link_table(self.since, folder / "since")
        return layers_in(folder, self.since_rows)


def layers_in(folder: Path, since_rows: int = 0) -> Layers:
    """Return the verdicts that were linked into a folder."""
    since = folder / "since"
    return Layers(folder / "base", since if since.is_dir() else None, since_rows)


def laid_over(
    earlier: DataFrame, changed: DataFrame, count: int, rows: DataFrame, keys: Sequence[str] = ("hash",)
) -> DataFrame:
    """Replace the verdicts of the changed items (about `count`) with new rows."""
    # A few hashes are sent to all executors, because shuffling the verdicts would take longest.
    hashes = changed.select(*keys).hint("broadcast" if count <= FEW else "shuffle_hash")
    return earlier.join(hashes, list(keys), "left_anti").unionByName(rows)


def decisions_at(verdicts: DataFrame, now: datetime | Column) -> DataFrame:
    """Add the decision to each verdict; an item that is due has no hold."""
    due = is_due(now)
    return verdicts.withColumns(
        {
            "decision": f.when(due, str(Decision.DUE)).otherwise(str(Decision.HELD)),
            "hold": f.when(~due, f.col("hold")),
            "holder": f.when(~due, f.col("holder")),
        }
    )


def is_due(now: datetime | Column) -> Column:
    """Return whether the deadline of a verdict has come."""
    moment = now if isinstance(now, Column) else f.lit(to_micros(now))
    ends = f.unix_micros("deadline")
    # `NEVER` is not due, not even at the end of the calendar.
    return (ends <= moment) & (ends < to_micros(NEVER))
