"""
The two flows of seed 001, in its own order of subtraction; the reads before them have an order of their own.

Flow 1, clean run: everything on the branch path that nothing references.
Flow 2, optimized run: step 1, what the last run saw staged and nothing references now; step 2, what nothing
references in the partitions that the last run had not settled.

Both subtract the references of the whole repository. The seed's step 1 subtracts new commits only: it would
delete an object that an old commit has too, when a staged copy of it is reset.

**What flow 2 cannot see** is an object that came into a settled partition by another way than the catalog's:
uploaded to an address whose token had expired, or put there by hand. A clean run finds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from ebbtide.core.errors import NotFound
from ebbtide.engine.tables.antijoin import without
from ebbtide.engine.tables.contracts import LISTED
from ebbtide.storage.store import Store, StoreSpec, open_store
from ebbtide.targets.lake.catalog.model import RangeInfo
from ebbtide.targets.lake.catalog.ranges import STAGED, read_metarange
from ebbtide.targets.lake.metadata.reference_files import ReferenceFiles
from ebbtide.targets.lake.uncommitted.sweeps import Sweep

_STAGED = "range_id string, min_key string, max_key string, count long, path string"


def clean_run(listed: DataFrame, referenced: DataFrame) -> DataFrame:
    """Flow 1, step 5: subtract what is referenced from what is listed."""
    return without(listed, referenced)


def optimized_run(
    spark: SparkSession,
    sweeps: Sequence[Sweep],
    files: ReferenceFiles,
    listed: DataFrame,
    referenced: DataFrame,
) -> DataFrame:
    """Flow 2: old entries that are staged no longer, and new entries that nothing references."""
    old = old_entries(formerly_staged(spark, sweeps, files), listed, referenced, files.store)
    return new_entries(listed, referenced).unionByName(old)


def old_entries(formerly: DataFrame, listed: DataFrame, referenced: DataFrame, store: StoreSpec) -> DataFrame:
    """
    Flow 2, step 1: subtract what is referenced from the last run's GC commit.

    What is left is not listed this time, so the store is asked what it has of it.
    """
    dropped = without(without(formerly, referenced), listed)
    return dropped.dropDuplicates(["hash"]).mapInArrow(_Stat(store), LISTED.schema)


def new_entries(listed: DataFrame, referenced: DataFrame) -> DataFrame:
    """Flow 2, step 2: subtract what is referenced from what is listed down to the last read partition."""
    return without(listed, referenced)


def formerly_staged(spark: SparkSession, sweeps: Sequence[Sweep], files: ReferenceFiles) -> DataFrame:
    """Read the last runs' GC commits: the addresses on each branch's own path that were staged then."""
    rows = [
        (info.id, info.min_key, info.max_key, info.count, sweep.path)
        for sweep in sweeps
        for info in _gc_commit(open_store(files.store), sweep)
    ]
    ranges = spark.createDataFrame(rows, _STAGED)
    return ranges.repartition(max(1, min(len(rows), 64))).mapInArrow(
        _StagedReader(files), "hash long, address string"
    )


def _gc_commit(store: Store, sweep: Sweep) -> list[RangeInfo]:
    if sweep.before is None or sweep.before.gc_commit is None:
        return []
    return read_metarange(store, STAGED, sweep.before.gc_commit)


@dataclass(frozen=True)
class _StagedReader:
    """Reads ranges of GC commits on an executor."""

    files: ReferenceFiles

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            for row in batch.to_pylist():
                info = RangeInfo(row["range_id"], row["min_key"], row["max_key"], row["count"])
                rows = self.files.rows(STAGED, info).select(["hash", "address"])
                yield from _on_path(rows, row["path"]).to_batches()


def _on_path(rows: Any, path: str) -> Any:
    return rows.filter(pa.compute.starts_with(rows.column("address"), path))


@dataclass(frozen=True)
class _Stat:
    """Asks the store about single objects on an executor; one that is not there is no garbage."""

    store: StoreSpec

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        store = open_store(self.store)
        for batch in batches:
            found = [row for row in batch.to_pylist() if _describe(store, row)]
            if found:
                yield pa.RecordBatch.from_pylist(found, schema=_LISTED)


_LISTED = pa.schema(
    [
        ("hash", pa.int64()),
        ("address", pa.string()),
        ("size", pa.int64()),
        ("last_modified", pa.timestamp("us", tz="UTC")),
    ]
)


def _describe(store: Store, row: dict[str, Any]) -> bool:
    """Add to a row what the store says of its object; tell whether it is there."""
    try:
        info = store.stat(row["address"])
    except NotFound:
        return False
    row.update(size=info.size, last_modified=info.last_modified)
    return True
