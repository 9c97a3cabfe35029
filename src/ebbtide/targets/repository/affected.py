"""
Affected addresses: those whose references may differ from the last run.

Each task that finds some writes them twice: as a table for Spark to join, and sorted, so that executors can
map the files and look up hashes without holding all of them in memory. When all tasks are done the driver
records how many there are (`finish_folder`); an executor that finds another number stops.
"""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from ebbtide.core.errors import MetadataError
from ebbtide.engine.spark.session import FEW
from ebbtide.engine.tables.contracts import AFFECTED
from ebbtide.engine.tables.row_counts import record_counts

_MOST_BITS = 26
_TOTAL = "_total"
_HASHES = pa.schema([("world", pa.int32()), ("hash", pa.int64())])


def write_affected(folder: Path, part: int, found: Mapping[int, Sequence[Any]]) -> int:
    """Write the hashes that one task found, by world, and return their number; repeating it is harmless."""
    worlds = {world: np.unique(np.concatenate(parts)) for world, parts in sorted(found.items())}
    count = sum(map(len, worlds.values()))
    if not count:
        return 0
    numbers = np.repeat(np.array(list(worlds), dtype=np.int32), [len(hashes) for hashes in worlds.values()])
    table = pa.table([pa.array(numbers), pa.array(np.concatenate(list(worlds.values())))], schema=_HASHES)
    with _appearing(_sorted(folder) / f"{part:05d}.arrow") as file, pa.ipc.new_file(file, _HASHES) as writer:
        writer.write_table(table)
    with _appearing(_table(folder) / f"{part:05d}.parquet") as file:
        pq.write_table(table, file)
    return count


@contextmanager
def _appearing(file: Path) -> Iterator[Any]:
    """Rename a file into place when it is complete; until then a dot in its name hides it from Spark."""
    fresh = file.with_name(f".{file.name}.{uuid4().hex}")
    with pa.OSFile(str(fresh), "wb") as out:
        yield out
    fresh.replace(file)


def make_folder(folder: Path) -> None:
    """Create empty folders for what tasks will find."""
    for part in (_sorted(folder), _table(folder)):
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)


def finish_folder(folder: Path, noted: int) -> None:
    """Record how many addresses all tasks have written; MetadataError unless all of them are found."""
    record_counts(_table(folder), noted)
    _sorted(folder).joinpath(_TOTAL).write_text(str(noted), encoding="utf-8")


def note_affected(found: DataFrame, folder: Path) -> int:
    """Write the addresses of a table (world, hash) from the executors, and return their number."""
    make_folder(folder)
    noted = found.select("world", "hash").mapInArrow(_Noting(folder), "noted long")
    count: int = sum(noted.toArrow().column("noted").to_pylist())
    finish_folder(folder, count)
    return count


@dataclass(frozen=True)
class _Noting:
    """Writes affected addresses on an executor."""

    folder: Path

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        found: dict[int, list[Any]] = {}
        for batch in batches:
            worlds, hashes = (np.asarray(batch.column(name)) for name in ("world", "hash"))
            for world in np.unique(worlds):
                found.setdefault(int(world), []).append(hashes[worlds == world])
        context = TaskContext.get()
        noted = write_affected(self.folder, context.partitionId() if context else 0, found)
        yield pa.RecordBatch.from_pydict({"noted": pa.array([noted], pa.int64())})


def _sorted(folder: Path) -> Path:
    return folder / "sorted"


def _table(folder: Path) -> Path:
    return folder / "table"


def affected_table(spark: SparkSession, folder: Path) -> DataFrame:
    """Return all affected addresses; one that several tasks found occurs several times."""
    return AFFECTED.read(spark, _table(folder))


def is_affected(folder: Path, world: int, hashes: Any) -> Any:
    """Return for each hash whether it belongs to an affected address of a world."""
    wanted, sieve = _of_world(folder, world)
    found = sieve[hashes & (len(sieve) - 1)]
    # The few hashes that pass the sieve are looked up; the others are certainly not affected.
    passed = np.flatnonzero(found)
    if len(passed):
        found[passed] = False
        for part in wanted:
            places = np.minimum(np.searchsorted(part, hashes[passed]), len(part) - 1)
            found[passed] |= part[places] == hashes[passed]
    return found


@lru_cache(4)
def _of_world(folder: Path, world: int) -> tuple[list[Any], Any]:
    """Return the affected hashes of a world as sorted arrays, and a sieve of their lowest bits."""
    sides = [(np.searchsorted(w, world), np.searchsorted(w, world, side="right")) for w, _ in _files(folder)]
    parts = [hashes[start:stop] for (_, hashes), (start, stop) in zip(_files(folder), sides, strict=True)]
    wanted = [part for part in parts if len(part)]
    if sum(map(len, wanted)) <= FEW:
        # Few hashes are faster to look up in one array; many stay in the mapped files.
        wanted = [np.unique(np.concatenate(wanted))] if wanted else []
    sieve = np.zeros(1 << min(_MOST_BITS, (16 * sum(map(len, wanted))).bit_length()), dtype=bool)
    for part in wanted:
        sieve[part & (len(sieve) - 1)] = True
    return wanted, sieve


@lru_cache(2)
def _files(folder: Path) -> list[tuple[Any, Any]]:
    """Map all sorted files, and return the worlds and the hashes of each."""
    found = []
    for file in sorted(_sorted(folder).glob("*.arrow")):
        table = pa.ipc.open_file(pa.memory_map(str(file))).read_all().combine_chunks()
        found.append((np.asarray(table.column("world")), np.asarray(table.column("hash"))))
    _check_total(folder, sum(len(hashes) for _, hashes in found))
    return found


def _check_total(folder: Path, found: int) -> None:
    """Raise MetadataError if this executor does not find all addresses: they would look unaffected."""
    try:
        noted = int((_sorted(folder) / _TOTAL).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        noted = -1
    if found != noted:
        raise MetadataError(
            f"{socket.gethostname()} finds {found} affected addresses in {folder}, and"
            f" {noted if noted >= 0 else 'an unknown number of'} were written",
            why="a host that does not share the state root would take live data for unreferenced",
            fix="put 'root' on storage that every executor mounts at the same path, or use a local master",
        )
