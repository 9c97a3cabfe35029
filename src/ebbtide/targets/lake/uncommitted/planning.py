"""Planning for uncommitted garbage: subtract, check, and say how far the next run has to read."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.core.decision import CollectorName, Outcome
from ebbtide.core.errors import MetadataError
from ebbtide.core.instant import to_micros
from ebbtide.core.manifest import Manifest, Tally
from ebbtide.engine.layout import RunFolder
from ebbtide.engine.tables.contracts import REFERENCED
from ebbtide.storage.store import Store
from ebbtide.targets.lake.catalog.model import Snapshot
from ebbtide.targets.lake.catalog.partitions import object_pattern
from ebbtide.targets.lake.metadata.world import ONLY_WORLD, World
from ebbtide.targets.lake.rulebook import SweepRules
from ebbtide.targets.lake.uncommitted.flows import clean_run, optimized_run
from ebbtide.targets.lake.uncommitted.preflight import check_references_are_listed
from ebbtide.targets.lake.uncommitted.reading import Listed
from ebbtide.targets.lake.uncommitted.references import Scope, referenced
from ebbtide.targets.lake.uncommitted.standings import garbage_standings
from ebbtide.targets.lake.uncommitted.state import (
    BranchState,
    last_unsettled,
    save_state,
    states_from_json,
    states_to_json,
)
from ebbtide.targets.lake.uncommitted.sweeps import SIDE_BY_SIDE, Survey

STATES = "states.json"


@dataclass(frozen=True)
class Swept:
    """What a sweep found: standings of the garbage, and how many objects there are."""

    standings: DataFrame
    known: int


def sweep(
    spark: SparkSession,
    listed: Listed,
    ranges: DataFrame,
    world: World,
    rules: SweepRules,
    uid: str,
    buried: DataFrame,
    reaped: Callable[[], DataFrame],
    folder: Path,
) -> Swept:
    """Run the flow that each branch is in for, after the preflight has shown that the two sides agree."""
    scope = Scope.of(listed.survey, uid)
    REFERENCED.write(referenced(ranges, {ONLY_WORLD: world}, scope), folder / "referenced")
    found = REFERENCED.read(spark, folder / "referenced")
    check_references_are_listed(found, listed.everything, buried, ranges, world, folder / "unmet", reaped)
    hashes = found.select("hash")
    optimized = [one for one in listed.survey.sweeps if not one.is_clean]
    if optimized:
        garbage = optimized_run(spark, optimized, world.files, listed.objects, hashes)
        # Of the partitions that are not listed nothing is known but what references say.
        known = hashes.distinct().count()
    else:
        garbage = clean_run(listed.objects, hashes)
        known = listed.objects.count()
    branch = f.regexp_extract("address", object_pattern(uid), 1)
    return Swept(garbage_standings(garbage, listed.uploads, rules.grace, branch, f.lit(ONLY_WORLD)), known)


def states_after(
    found: Survey,
    listed_at: datetime,
    snapshot: Snapshot,
    waiting: Mapping[str, str],
    run_id: int,
    uploads: timedelta,
) -> dict[str, BranchState]:
    """
    Flow 1, step 8; flow 2, step 5. Say what the next run may build on, if this one succeeds.

    `waiting` has, by branch id, the oldest partition with garbage that may not go yet.
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
            last_partition=last_unsettled(one.partitions, waiting.get(one.branch_id), listed_at, uploads),
            newest_commit=heads.get(one.branch_id, newest),
            run_id=run_id,
            optimized_runs=one.before.optimized_runs + 1 if one.before else 0,
            finished=one.branch_id not in heads and not one.partitions,
        )
    return states


def waiting_partitions(standings: DataFrame, now: datetime, uid: str) -> dict[str, str]:
    """Find, for each branch, the oldest partition with garbage that may not go yet."""
    pattern = object_pattern(uid)
    held = standings.where(
        (f.col("collector") == str(CollectorName.UNCOMMITTED)) & (f.unix_micros("deadline") > to_micros(now))
    )
    oldest = held.groupBy(f.regexp_extract("address", pattern, 1).alias("branch_id")).agg(
        f.max(f.regexp_extract("address", pattern, 2)).alias("partition")
    )
    return {row["branch_id"]: row["partition"] for row in oldest.toArrow().to_pylist()}


def keep_states(folder: Path, states: dict[str, BranchState]) -> dict[str, Any]:
    """Keep the states with the plan until it is applied; what the manifest says of them shows any change."""
    text = states_to_json(states)
    (folder / STATES).write_text(text, encoding="utf-8")
    return {"states": hashlib.sha256(text.encode()).hexdigest()}


def save_states(store: Store, folder: RunFolder, manifest: Manifest, outcomes: Mapping[str, Tally]) -> None:
    """
    Leave on each branch's path what the next run may build on, when this one has succeeded.

    A run that left something alone because something came to refer to it has not settled its partition.
    """
    try:
        data = (folder.path / STATES).read_bytes()
    except OSError:
        data = b""
    if hashlib.sha256(data).hexdigest() != manifest.snapshot["states"]:
        raise MetadataError(
            f"run {manifest.run_id} succeeded, but its {STATES} is missing or was altered",
            why="the next run would build on it",
            fix="nothing need be done: without it the next run lists everything that this one has",
        )
    if outcomes.get(Outcome.CHANGED):
        return
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        list(pool.map(lambda item: save_state(store, *item), states_from_json(data.decode()).items()))


def described(listed: Listed) -> dict[str, Any]:
    """Write down in the manifest which branches were listed whole, and why."""
    sweeps = listed.survey.sweeps
    reasons = Counter(one.why_clean for one in sweeps if one.is_clean)
    return {
        "swept_branches": len(sweeps),
        "clean_runs": sum(reasons.values()),
        "clean_because": [f"{why} (branches: {count})" for why, count in reasons.most_common(10)],
        "listed_partitions": sum(len(one.partitions) for one in sweeps),
    }
