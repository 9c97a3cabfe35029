"""
Uncommitted garbage (seed 001): objects that are stored and that nothing references.

Its safety rests on the order of reads:

1. `survey`, `list_objects`   what is stored
2. `note_uploads`             which uploads may still be linked
3. the snapshot               what is staged (the "GC commit") and what is committed, at one moment

An object moves from an upload to staging to a commit, never back, so reading in the same order cannot miss
it. If it was not yet staged at 3, it was listed while its upload was open or young, and is held for that.
Reading staged entries first would miss what is staged afterwards and listed then.

The two flows of the seed then subtract references from objects:

- Flow 1, clean run: everything on the path of a branch that nothing references.
- Flow 2, optimized run: step 1, what the last run saw staged and nothing references now; step 2, what nothing
  references in the partitions that the last run had not settled.

Both subtract the references of the whole repository. The seed's step 1 subtracts new commits only: it would
delete an object that an old commit has too when a staged copy of it is reset.

**Flow 2 cannot see** an object that came into a settled partition other than through the catalog: uploaded to
an address whose token had expired, or put there by hand. A clean run finds it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.core.decision import CollectorName, HoldReason, Outcome
from ebbtide.core.errors import MetadataError, NotFound
from ebbtide.core.instant import NEVER, to_micros
from ebbtide.core.manifest import Manifest, Tally
from ebbtide.engine.run_folder import RunFolder
from ebbtide.engine.spark.progress import OnProgress, no_progress, watch
from ebbtide.engine.tables.contracts import LISTED, REFERENCED, UPLOADS, labels
from ebbtide.engine.tables.digest import hash_addresses, without
from ebbtide.engine.tables.row_counts import record_counts
from ebbtide.storage.store import Store, StoreSpec, open_store
from ebbtide.targets.repository.inventory import inventory
from ebbtide.targets.repository.live_objects import Scope, check_references_are_listed, referenced
from ebbtide.targets.repository.model import STAGED, RangeInfo, Snapshot
from ebbtide.targets.repository.protocol import Layout, VersionedRepository
from ebbtide.targets.repository.range_cache import RangeCache
from ebbtide.targets.repository.ranges import range_infos
from ebbtide.targets.repository.rules import SweepRules
from ebbtide.targets.repository.sweeps import (
    SIDE_BY_SIDE,
    BranchState,
    Survey,
    Sweep,
    last_unsettled,
    save_state,
    states_from_json,
    states_to_json,
    survey,
)
from ebbtide.targets.repository.world import ONLY_WORLD, WORLD_VERDICTS, World

_UPLOADS = pa.schema([("address", pa.string()), ("expires", pa.timestamp("us", tz="UTC"))])
_PREFIX = "prefix string"
_STAGED = "range_id string, min_key string, max_key string, count long, path string"
_LISTED = pa.schema(
    [
        ("hash", pa.int64()),
        ("address", pa.string()),
        ("size", pa.int64()),
        ("last_modified", pa.timestamp("us", tz="UTC")),
    ]
)
_MICROSECOND = timedelta(microseconds=1)
STATES = "states.json"


@dataclass(frozen=True)
class Listed:
    """What was read before the snapshot."""

    survey: Survey
    everything: DataFrame
    """The hashes of everything that was listed."""
    objects: DataFrame
    """The data objects among it."""
    uploads: DataFrame
    at: datetime
    """When the listing began."""


def read_listing(
    spark: SparkSession,
    repository: VersionedRepository,
    rules: SweepRules,
    folder: Path,
    on_progress: OnProgress = no_progress,
) -> Listed:
    """List what is stored, then note which uploads are open; the snapshot must be taken after this."""
    began = repository.now()
    spec, layout, namespace = repository.store_spec(), repository.layout, repository.info().namespace
    found = survey(repository, rules)
    with watch(spark, "listing", on_progress):
        prefixes = swept_prefixes(spark, found)
        LISTED.write(list_objects(prefixes, spec, layout, namespace), folder / "listed")
    listed = LISTED.read(spark, folder / "listed")
    everything = listed.select("hash").unionByName(list_levels(spark, found, spec))
    uploads = note_uploads(spark, repository, folder / "uploads")
    return Listed(found, everything, listed.where("address is not null"), uploads, began)


def note_uploads(spark: SparkSession, repository: VersionedRepository, folder: Path) -> DataFrame:
    """Write down, page by page, which addresses may still be linked and until when."""
    folder.mkdir(parents=True)
    noted = 0
    with pq.ParquetWriter(folder / "uploads.parquet", _UPLOADS) as writer:
        for page in repository.open_uploads():
            writer.write_table(page.cast(_UPLOADS))
            noted += page.num_rows
    record_counts(folder, noted)
    return UPLOADS.read(spark, folder)


def check_history(repository: VersionedRepository, listed: Listed, snapshot: Snapshot) -> None:
    """Stop if a commit is missing that an earlier run saw: references may be lost."""
    for sweep in listed.survey.sweeps:
        if sweep.newest_commit is not None and sweep.newest_commit not in snapshot.commits:
            raise MetadataError(
                f"commit {sweep.newest_commit}, which an earlier run saw, is missing from the catalog",
                why="a catalog that was restored from an older copy does not know what was written since,"
                " and all of that would look like garbage",
                fix="restore a newer copy of the catalog; or bring back what the namespace still has, and"
                f" accept the rest as lost, with '{repository.command} recover {repository.name}'",
            )


def swept_prefixes(spark: SparkSession, found: Survey) -> DataFrame:
    """Return every partition that a survey names, and the other folders that may hold live objects."""
    prefixes = [sweep.path + name + "/" for sweep in found.sweeps for name in sweep.partitions]
    return spark.createDataFrame([(prefix,) for prefix in [*prefixes, *found.foreign_folders]], _PREFIX)


def list_objects(prefixes: DataFrame, store: StoreSpec, layout: Layout, namespace: str) -> DataFrame:
    """List prefixes; only data objects by the layout, which alone may be garbage, have an address."""
    found = inventory(prefixes, store, namespace, merged=True)
    # It will be deleted by its address, so that must be exactly its key.
    own = (f.col("key") == f.col("address")) & f.col("key").rlike(layout.object_pattern)
    return LISTED.check(found.withColumn("address", f.when(own, f.col("key"))))


def list_levels(spark: SparkSession, found: Survey, store: StoreSpec) -> DataFrame:
    """Return the hashes of the files in the folders on the way down to the partitions."""
    levels = spark.createDataFrame([(level,) for level in found.foreign_levels], _PREFIX)
    return levels.repartition(max(1, len(found.foreign_levels))).mapInArrow(_LevelLister(store), "hash long")


@dataclass(frozen=True)
class _LevelLister:
    """Lists the files of single folders, without subfolders, on an executor."""

    store: StoreSpec

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        store = open_store(self.store)
        for batch in batches:
            for prefix in batch.column("prefix").to_pylist():
                names = [prefix + name for name in store.children(prefix) if not name.endswith("/")]
                yield pa.RecordBatch.from_pydict({"hash": pa.array(hash_addresses(names))})


def clean_run(listed: DataFrame, referenced: DataFrame) -> DataFrame:
    """Flow 1, step 5: subtract what is referenced from what is listed."""
    return without(listed, referenced)


def optimized_run(
    spark: SparkSession,
    sweeps: Sequence[Sweep],
    world: World,
    listed: DataFrame,
    referenced: DataFrame,
) -> DataFrame:
    """Flow 2: old entries that are no longer staged, and new entries that nothing references."""
    old = old_entries(formerly_staged(spark, sweeps, world.files), listed, referenced, world.store)
    return new_entries(listed, referenced).unionByName(old)


def old_entries(formerly: DataFrame, listed: DataFrame, referenced: DataFrame, store: StoreSpec) -> DataFrame:
    """
    Flow 2, step 1: subtract what is referenced from the last run's GC commit.

    The rest was not listed this time, so the store is asked for each object.
    """
    dropped = without(without(formerly, referenced), listed)
    return dropped.dropDuplicates(["hash"]).mapInArrow(_Stat(store), LISTED.schema)


def new_entries(listed: DataFrame, referenced: DataFrame) -> DataFrame:
    """Flow 2, step 2: subtract what is referenced from what is listed in unsettled partitions."""
    return without(listed, referenced)


def formerly_staged(spark: SparkSession, sweeps: Sequence[Sweep], files: RangeCache) -> DataFrame:
    """Read the GC commits of the last runs: the staged addresses on the path of each branch."""
    rows = [
        (info.id, info.min_key, info.max_key, info.count, sweep.path)
        for sweep in sweeps
        for info in _gc_commit(files, sweep)
    ]
    ranges = spark.createDataFrame(rows, _STAGED)
    return ranges.repartition(max(1, min(len(rows), 64))).mapInArrow(
        _StagedReader(files), "hash long, address string"
    )


def _gc_commit(files: RangeCache, sweep: Sweep) -> list[RangeInfo]:
    if sweep.before is None or sweep.before.gc_commit is None:
        return []
    return range_infos(files.decoder, STAGED, sweep.before.gc_commit)


@dataclass(frozen=True)
class _StagedReader:
    """Reads ranges of GC commits on an executor."""

    files: RangeCache

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
    """Asks the store about single objects on an executor; one that is gone is not garbage."""

    store: StoreSpec

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        store = open_store(self.store)
        for batch in batches:
            found = [row for row in batch.to_pylist() if _describe(store, row)]
            if found:
                yield pa.RecordBatch.from_pylist(found, schema=_LISTED)


def _describe(store: Store, row: dict[str, Any]) -> bool:
    """Add size and time of its object to a row; return False if there is none."""
    try:
        info = store.stat(row["address"])
    except NotFound:
        return False
    row.update(size=info.size, last_modified=info.last_modified)
    return True


def garbage_verdicts(
    garbage: DataFrame, uploads: DataFrame, grace: timedelta | Column, branch: Column, world: Column
) -> DataFrame:
    """
    Flow 1, steps 6 and 7. Say until when each unreferenced object is held.

    That is the end of the grace period, which counts from its last write, or of the upload token that was
    given out for its address, whichever is later.
    """
    wait = grace if isinstance(grace, Column) else f.lit(grace // _MICROSECOND)
    ripe = f.timestamp_micros(f.least(f.unix_micros("last_modified") + wait, f.lit(to_micros(NEVER))))
    held = garbage.join(uploads, "address", "left")
    uploading = f.col("expires") > ripe
    written = f.date_format("last_modified", "yyyy-MM-dd'T'HH:mm:ss'Z'")
    return WORLD_VERDICTS.check(
        held.select(
            world.cast("int").alias("world"),
            "hash",
            "address",
            f.when(uploading, f.col("expires")).otherwise(ripe).alias("deadline"),
            f.when(uploading, str(HoldReason.UPLOADING)).otherwise(str(HoldReason.NOT_YET)).alias("hold"),
            f.concat(f.lit("last written "), written).alias("holder"),
            f.array().cast("array<string>").alias("names"),
            f.array(f.lit(str(CollectorName.UNCOMMITTED))).alias("rules"),
            labels(branch=branch).alias("labels"),
            f.col("size"),
            f.col("last_modified").alias("created"),
            f.lit(str(CollectorName.UNCOMMITTED)).alias("collector"),
        )
    )


@dataclass(frozen=True)
class Swept:
    """What a sweep found: verdicts on the garbage, and how many objects there are."""

    verdicts: DataFrame
    known: int


def sweep(
    spark: SparkSession,
    listed: Listed,
    ranges: DataFrame,
    world: World,
    rules: SweepRules,
    layout: Layout,
    removed: DataFrame,
    reaped: Callable[[], DataFrame],
    folder: Path,
) -> Swept:
    """Run the preflight, then the flow of each branch."""
    scope = Scope.of(listed.survey, layout)
    REFERENCED.write(referenced(ranges, {ONLY_WORLD: world}, scope), folder / "referenced")
    found = REFERENCED.read(spark, folder / "referenced")
    check_references_are_listed(found, listed.everything, removed, ranges, world, folder / "unmet", reaped)
    hashes = found.select("hash")
    optimized = [one for one in listed.survey.sweeps if not one.is_clean]
    if optimized:
        garbage = optimized_run(spark, optimized, world, listed.objects, hashes)
        # Of the partitions that were not listed only the referenced objects are known.
        known = hashes.distinct().count()
    else:
        garbage = clean_run(listed.objects, hashes)
        known = listed.objects.count()
    branch = f.regexp_extract("address", layout.object_pattern, 1)
    return Swept(garbage_verdicts(garbage, listed.uploads, rules.grace, branch, f.lit(ONLY_WORLD)), known)


def states_after(
    layout: Layout,
    found: Survey,
    listed_at: datetime,
    snapshot: Snapshot,
    waiting: Mapping[str, str],
    run_id: int,
    uploads: timedelta,
) -> dict[str, BranchState]:
    """
    Flow 1, step 8; flow 2, step 5. Return the states that the next run may use, if this one succeeds.

    `waiting` has, by branch id, the oldest partition with garbage that is still held.
    """
    staged = {one.branch_id: one for one in snapshot.staged}
    heads = {branch_id: snapshot.branches[name] for name, branch_id in snapshot.branch_ids.items()}
    newest = max(snapshot.commits.values(), key=lambda commit: (commit.created, commit.id)).id
    states = {}
    for one in found.sweeps:
        gc_commit = staged.get(one.branch_id)
        states[one.path] = BranchState(
            branch_id=one.branch_id,
            gc_commit=gc_commit.metarange_id if gc_commit else None,
            staged=gc_commit.count if gc_commit else 0,
            last_partition=last_unsettled(
                layout, one.partitions, waiting.get(one.branch_id), listed_at, uploads
            ),
            newest_commit=heads.get(one.branch_id, newest),
            run_id=run_id,
            optimized_runs=one.before.optimized_runs + 1 if one.before else 0,
            finished=one.branch_id not in heads and not one.partitions,
        )
    return states


def waiting_partitions(verdicts: DataFrame, now: datetime, layout: Layout) -> dict[str, str]:
    """Return, for each branch, the oldest partition with garbage that is still held."""
    pattern = layout.object_pattern
    held = verdicts.where(
        (f.col("collector") == str(CollectorName.UNCOMMITTED)) & (f.unix_micros("deadline") > to_micros(now))
    )
    oldest = held.groupBy(f.regexp_extract("address", pattern, 1).alias("branch_id")).agg(
        f.max(f.regexp_extract("address", pattern, 2)).alias("partition")
    )
    return {row["branch_id"]: row["partition"] for row in oldest.toArrow().to_pylist()}


def keep_states(folder: Path, states: dict[str, BranchState]) -> dict[str, Any]:
    """Write the states beside the plan until it is applied; the manifest records their hash."""
    text = states_to_json(states)
    (folder / STATES).write_text(text, encoding="utf-8")
    return {"states": hashlib.sha256(text.encode()).hexdigest()}


def save_states(store: Store, folder: RunFolder, manifest: Manifest, outcomes: Mapping[str, Tally]) -> None:
    """
    Write the states to the paths of the branches, when the run has succeeded.

    If an item was left alone because it became referenced, its partition is not settled and no state is
    written.
    """
    try:
        data = (folder.path / STATES).read_bytes()
    except OSError:
        data = b""
    if hashlib.sha256(data).hexdigest() != manifest.snapshot["states"]:
        raise MetadataError(
            f"run {manifest.run_id} succeeded, but its {STATES} is missing or was altered",
            why="the next run would rely on it",
            fix="nothing has to be done: without it the next run lists what this one has listed",
        )
    if outcomes.get(Outcome.CHANGED):
        return
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        list(pool.map(lambda item: save_state(store, *item), states_from_json(data.decode()).items()))


def described(listed: Listed) -> dict[str, Any]:
    """Return for the manifest which branches were listed completely, and why."""
    sweeps = listed.survey.sweeps
    reasons = Counter(one.why_clean for one in sweeps if one.is_clean)
    return {
        "swept_branches": len(sweeps),
        "clean_runs": sum(reasons.values()),
        "clean_because": [f"{why} (branches: {count})" for why, count in reasons.most_common(10)],
        "listed_partitions": sum(len(one.partitions) for one in sweeps),
    }
