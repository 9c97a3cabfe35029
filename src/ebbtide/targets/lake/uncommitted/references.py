"""
What is referenced: the hashes of all addresses that any commit or any staging of the repository names.

The seed subtracts the references of one branch. A merge makes another branch point into this one's path, and
a copy makes staging point at what an old commit has: so it is always the whole repository's, all its commits
and all that is staged. Ranges are decoded once for all runs, so this costs little more than reading hashes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from ebbtide.targets.lake.catalog.model import RangeInfo
from ebbtide.targets.lake.catalog.partitions import BRANCHES, repository_path
from ebbtide.targets.lake.catalog.ranges import METADATA
from ebbtide.targets.lake.metadata.reference_files import ReferenceFiles
from ebbtide.targets.lake.metadata.world import World
from ebbtide.targets.lake.uncommitted.sweeps import Survey

_MOST_BUFFERED = 4_000_000
_BEHIND_ALL = "\U0010ffff"
_ROWS = pa.schema([("world", pa.int32()), ("hash", pa.int64()), ("within", pa.bool_())])


@dataclass(frozen=True)
class Scope:
    """Which addresses a listing must have met, if they are there."""

    everything: bool = True
    """The whole namespace was listed."""
    repo_uid: str = ""
    last_partitions: Mapping[str, str | None] = field(default_factory=dict)
    """By branch id: down to which partition it was listed; None means all."""

    @classmethod
    def of(cls, found: Survey, repo_uid: str) -> Scope:
        """Give the scope of a survey."""
        last = {
            sweep.branch_id: sweep.before.last_partition if sweep.before else None for sweep in found.sweeps
        }
        return cls(found.everything, repo_uid, last)

    def within(self, addresses: Any) -> Any:
        """Say of each address whether it lies in the scope."""
        if self.everything:
            full, metadata = pc.match_substring(addresses, "://"), pc.starts_with(addresses, METADATA)
            return np.asarray(pc.invert(pc.or_(full, metadata)))
        place = re.escape(repository_path(self.repo_uid) + BRANCHES)
        found = pc.extract_regex(addresses, f"^{place}(?P<branch>[^/]+)/(?P<partition>[^/]+)/")
        branches = found.field("branch").dictionary_encode()
        lasts = [self._last(branch_id) for branch_id in branches.dictionary.to_pylist()]
        last = pa.array(lasts, pa.string()).take(branches.indices)
        return np.asarray(pc.and_(found.is_valid(), pc.less_equal(found.field("partition"), last)))

    def _last(self, branch_id: str) -> str:
        """Give a text up to which partitions were listed: before all if none was, behind all if all were."""
        if branch_id not in self.last_partitions:
            return ""
        last = self.last_partitions[branch_id]
        return _BEHIND_ALL if last is None else last


def referenced(ranges: DataFrame, worlds: Mapping[int, World], scope: Scope) -> DataFrame:
    """Give the hash of every address that anything references: world, hash, within (the scope)."""
    units = ranges.select("world", "folder", "range_id", "min_key", "max_key", "count")
    once = units.dropDuplicates(["world", "folder", "range_id"])
    files = {number: world.files for number, world in worlds.items()}
    cores = ranges.sparkSession.sparkContext.defaultParallelism
    columns = "world int, hash long, within boolean"
    return once.repartition(2 * cores, "range_id").mapInArrow(_HashReader(files, scope), columns)


@dataclass(frozen=True)
class _HashReader:
    """Reads hashes of ranges on an executor, and hands each distinct one on once, or a few times."""

    files: Mapping[int, ReferenceFiles]
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
