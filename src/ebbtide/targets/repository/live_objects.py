"""
Live objects: which addresses the repository references, and whether they are in the store.

`referenced` returns the hashes of all addresses that any commit or staged entry names. The seed subtracts the
references of one branch. But a merge makes another branch point into the path of this one, and a copy makes
a staged entry point at an object of an old commit: so references are always those of the whole repository.
Ranges are decoded once for all runs, so this costs little more than reading hashes.

`check_references_are_listed` is the preflight: every referenced address must be in the listing, or nothing is
deleted. If one is missing, the catalog and the store disagree about names, and what looks unreferenced may be
what those references mean; or data is lost already, and this run must not lose more. What Ebbtide itself
deleted is expected to be missing. What was uploaded after its partition was listed is looked up once more.
What was dropped and reaped since the references were read is asked for last: the reaper records it before it
deletes.

`check_live` is `ebb lake check`: is every live object in the store?
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from ebbtide.core.errors import LiveObjectMissing, NotFound
from ebbtide.core.instant import to_micros
from ebbtide.engine.tables.counted import read_counted
from ebbtide.engine.tables.digest import hash_addresses, without
from ebbtide.engine.tables.row_counts import record_counts
from ebbtide.storage.store import StoreSpec, open_store
from ebbtide.targets.repository.affected import note_affected
from ebbtide.targets.repository.inventory import inventory
from ebbtide.targets.repository.lifecycle import references
from ebbtide.targets.repository.model import METADATA, RangeInfo
from ebbtide.targets.repository.protocol import Layout
from ebbtide.targets.repository.range_cache import RangeCache
from ebbtide.targets.repository.ranges import range_table
from ebbtide.targets.repository.sweeps import Survey
from ebbtide.targets.repository.world import ONLY_WORLD, World

_MOST_BUFFERED = 4_000_000
_BEHIND_ALL = "\U0010ffff"
_ROWS = pa.schema([("world", pa.int32()), ("hash", pa.int64()), ("within", pa.bool_())])
MOST_NAMED = 100
_PAGE = 50_000
_REAPED = t.StructType([t.StructField("hash", t.LongType())])
_HASHES = pa.schema([pa.field("hash", pa.int64(), nullable=False)])
Fate = Callable[[str], str]
"""Returns what happened to the object of an address, or an empty text."""


@dataclass(frozen=True)
class Scope:
    """Which addresses must be in a listing, if they are in the store."""

    everything: bool = True
    """The whole namespace was listed."""
    partition_pattern: str = ""
    """What is in a partition; see `Layout.partition_pattern`."""
    last_partitions: Mapping[str, str | None] = field(default_factory=dict)
    """By branch id: the last partition that was listed; None if all were."""

    @classmethod
    def of(cls, found: Survey, layout: Layout) -> Scope:
        """Return the scope of a survey."""
        last = {
            sweep.branch_id: sweep.before.last_partition if sweep.before else None for sweep in found.sweeps
        }
        return cls(found.everything, layout.partition_pattern, last)

    def within(self, addresses: Any) -> Any:
        """Return for each address whether it is in the scope."""
        if self.everything:
            full, metadata = pc.match_substring(addresses, "://"), pc.starts_with(addresses, METADATA)
            return np.asarray(pc.invert(pc.or_(full, metadata)))
        found = pc.extract_regex(addresses, self.partition_pattern)
        branches = found.field("branch").dictionary_encode()
        lasts = [self._last(branch_id) for branch_id in branches.dictionary.to_pylist()]
        last = pa.array(lasts, pa.string()).take(branches.indices)
        return np.asarray(pc.and_(found.is_valid(), pc.less_equal(found.field("partition"), last)))

    def _last(self, branch_id: str) -> str:
        """Return the last partition that was listed: "" if none was, a text after all names if all were."""
        if branch_id not in self.last_partitions:
            return ""
        last = self.last_partitions[branch_id]
        return _BEHIND_ALL if last is None else last


def referenced(ranges: DataFrame, worlds: Mapping[int, World], scope: Scope) -> DataFrame:
    """Return the hash of every referenced address: world, hash, within (the scope)."""
    units = ranges.select("world", "folder", "range_id", "min_key", "max_key", "count")
    once = units.dropDuplicates(["world", "folder", "range_id"])
    files = {number: world.files for number, world in worlds.items()}
    cores = ranges.sparkSession.sparkContext.defaultParallelism
    columns = "world int, hash long, within boolean"
    return once.repartition(2 * cores, "range_id").mapInArrow(_HashReader(files, scope), columns)


@dataclass(frozen=True)
class _HashReader:
    """Reads hashes of ranges on an executor, and emits each distinct one once, or a few times."""

    files: Mapping[int, RangeCache]
    scope: Scope

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        found: dict[tuple[int, bool], list[Any]] = {}
        buffered = 0
        for batch in batches:
            for row in batch.to_pylist():
                info = RangeInfo(row["range_id"], row["min_key"], row["max_key"], row["count"])
                rows = self.files[row["world"]].rows(row["folder"], info)
                hashes = np.asarray(rows.column("hash"))
                within = self.scope.within(rows.column("address").combine_chunks())
                for side in (True, False):
                    found.setdefault((row["world"], side), []).append(hashes[within == side])
                buffered += len(hashes)
                if buffered > _MOST_BUFFERED:
                    yield from _distinct(found)
                    found, buffered = {}, 0
        yield from _distinct(found)


def _distinct(found: Mapping[tuple[int, bool], list[Any]]) -> Iterator[Any]:
    for (world, within), parts in found.items():
        hashes = np.unique(np.concatenate(parts))
        columns = [
            pa.repeat(pa.scalar(world, pa.int32()), len(hashes)),
            pa.array(hashes),
            pa.repeat(pa.scalar(within), len(hashes)),
        ]
        yield from pa.table(columns, schema=_ROWS).to_batches(max_chunksize=65_536)


def check_references_are_listed(
    found: DataFrame,
    listed: DataFrame,
    removed: DataFrame,
    ranges: DataFrame,
    world: World,
    folder: Path,
    reaped: Callable[[], DataFrame],
) -> None:
    """Raise LiveObjectMissing if a referenced address in scope is neither listed, removed nor reaped."""
    unmet = without(without(found.where("within"), listed), removed)
    missing = _named(unmet, ranges, world, folder)
    # Asked only now: everything that the reaper had deleted before is in its queue, as fenced or gone.
    if missing and (left := _named(without(unmet, reaped()), ranges, world, folder)):
        raise _stop(left)


def reaped_hashes(spark: SparkSession, addresses: Iterator[str], folder: Path) -> DataFrame:
    """Return the hashes of what something else than a run has deleted on purpose; streams to a file."""
    place = folder / "reaped"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    written = 0
    with pq.ParquetWriter(place / "hashes.parquet", _HASHES) as writer:
        while page := list(islice(addresses, _PAGE)):
            writer.write_table(pa.table([pa.array(hash_addresses(page))], schema=_HASHES))
            written += len(page)
    record_counts(place, written)
    return read_counted(spark, _REAPED, place)


def _named(unmet: DataFrame, ranges: DataFrame, world: World, folder: Path) -> list[str]:
    """Return the names of the unmet addresses that are really missing, or of the first of them."""
    if not note_affected(unmet, folder):
        return []
    missing = _missing(ranges, {ONLY_WORLD: world}, folder).limit(MOST_NAMED + 1).toArrow()
    return [str(row["name"]) for row in missing.to_pylist()]


def _missing(ranges: DataFrame, worlds: Mapping[int, World], folder: Path) -> DataFrame:
    """Look up the unmet addresses one by one, and return the names of those that are missing."""
    named = references(ranges, worlds, among=folder)
    once = named.groupBy("hash").agg(f.min(f.struct("key", "holder", "address")).alias("at")).select("at.*")
    return once.mapInArrow(_Looker(worlds[ONLY_WORLD].store), "name string")


def _stop(missing: list[str]) -> LiveObjectMissing:
    first = missing[:MOST_NAMED]
    count = f"more than {MOST_NAMED}" if len(missing) > MOST_NAMED else str(len(missing))
    return LiveObjectMissing(
        f"{count} referenced objects are missing from the store; stopping before anything is deleted",
        why="either the catalog and the store disagree about names, or data is lost already;"
        " an object that looks like garbage may be a missing one under another name",
        fix="if a run was interrupted ('ebb runs' shows it), finish it first with 'ebb apply': it may have"
        " deleted them; otherwise find out what happened to them before anything is deleted",
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


@dataclass(frozen=True)
class LiveCheck:
    """What a check found."""

    live: int
    listed: int
    missing: tuple[str, ...]
    """The first missing objects, each as 'key referrer: address', and what is known of it."""
    missing_count: int


def check_live(
    spark: SparkSession, world: World, removed: DataFrame, fate: Fate = lambda _address: ""
) -> LiveCheck:
    """List the folders of all live objects on the executors, and find the objects that are missing."""
    worlds = {ONLY_WORLD: world}
    every = references(range_table(spark, worlds), worlds)
    inside = every.where((f.unix_micros("lapse") > to_micros(world.now)) & ~f.col("address").contains("://"))
    named = (
        inside.groupBy("hash")
        .agg(f.min(f.struct("key", "holder", "address")).alias("at"))
        .select("hash", "at.*")
    )
    live = without(named, removed).persist(StorageLevel.DISK_ONLY)
    folders = live.select(_folder("address").alias("prefix")).distinct()
    listed = inventory(folders, world.store, world.namespace, merged=True).persist(StorageLevel.DISK_ONLY)
    missing = without(live, listed)
    first = missing.orderBy("key").limit(MOST_NAMED).toArrow().to_pylist()
    return LiveCheck(
        live=live.count(),
        listed=listed.count(),
        missing=tuple(_described(row, fate(row["address"])) for row in first),
        missing_count=missing.count(),
    )


def _described(row: dict[str, Any], known: str) -> str:
    return f"{row['key']} {row['holder']}: {row['address']}" + (f" ({known})" if known else "")


def _folder(column: str) -> Any:
    return f.regexp_extract(column, "^(.*/)?", 0)
