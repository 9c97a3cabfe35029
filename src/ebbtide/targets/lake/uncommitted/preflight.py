"""
The preflight: every address that a reference names must be in the listing, or nothing is deleted.

If one is not, the catalog and the store disagree about names, and then what looks unreferenced may be what
those references mean; or data is lost already, and this run must not lose more. What Ebbtide itself deleted
is expected to be missing. What was uploaded after its partition was listed is looked for once more. What was
dropped since the references were read, and reaped, is asked for last of all: the reaper says so before it
deletes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ebbtide.core.errors import LiveObjectMissing, NotFound
from ebbtide.engine.tables.antijoin import without
from ebbtide.storage.store import StoreSpec, open_store
from ebbtide.targets.lake.lifecycle.references import references
from ebbtide.targets.lake.metadata.affected import note_affected
from ebbtide.targets.lake.metadata.world import ONLY_WORLD, World

MOST_NAMED = 100


def check_references_are_listed(
    found: DataFrame,
    listed: DataFrame,
    buried: DataFrame,
    ranges: DataFrame,
    world: World,
    folder: Path,
    reaped: Callable[[], DataFrame],
) -> None:
    """Stop if an address within the listing's scope is referenced, and neither listed, buried nor reaped."""
    unmet = without(without(found.where("within"), listed), buried)
    missing = _named(unmet, ranges, world, folder)
    # Asked only now: whatever the reaper had deleted before that look is in its queue, as fenced or gone.
    if missing and (left := _named(without(unmet, reaped()), ranges, world, folder)):
        raise _stop(left)


def _named(unmet: DataFrame, ranges: DataFrame, world: World, folder: Path) -> list[str]:
    """Name the unmet addresses that are really not there, or the first of them."""
    if not note_affected(unmet, folder):
        return []
    missing = _missing(ranges, {ONLY_WORLD: world}, folder).limit(MOST_NAMED + 1).toArrow()
    return [str(row["name"]) for row in missing.to_pylist()]


def _missing(ranges: DataFrame, worlds: Mapping[int, World], folder: Path) -> DataFrame:
    """Look for the unmet addresses one by one, and name those that are really not there."""
    named = references(ranges, worlds, among=folder)
    once = named.groupBy("hash").agg(f.min(f.struct("key", "holder", "address")).alias("at")).select("at.*")
    return once.mapInArrow(_Looker(worlds[ONLY_WORLD].store), "name string")


def _stop(missing: list[str]) -> LiveObjectMissing:
    first = missing[:MOST_NAMED]
    count = f"more than {MOST_NAMED}" if len(missing) > MOST_NAMED else str(len(missing))
    return LiveObjectMissing(
        f"what is referenced is not all in the store: {count} missing",
        why="either the catalog and the store disagree about names, or data is lost already;"
        " what looks like garbage may be what is missed",
        fix="if a run was interrupted ('ebb runs' shows it), finish it first with 'ebb apply': it may have"
        " deleted them; else find out what became of them before anything is deleted",
        details=first,
    )


@dataclass(frozen=True)
class _Looker:
    """Asks the store about single objects on an executor."""

    store: StoreSpec

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        store = open_store(self.store)
        for batch in batches:
            for row in batch.to_pylist():
                try:
                    store.stat(row["address"])
                except NotFound:
                    name = f"{row['key']} {row['holder']}: {row['address']}"
                    yield pa.RecordBatch.from_pydict({"name": pa.array([name], pa.string())})
