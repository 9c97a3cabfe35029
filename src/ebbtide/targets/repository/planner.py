"""
The planner of a repository: one read of its metadata, and the verdicts of each collector on it.

0. `check_owner`, `check_history`   the namespace is this repository's, and no commit is missing
1. `read_listing`                   what is stored, if uncommitted garbage is looked for; this must come first
2. `snapshot`                       what is staged and committed, at one moment
3. `written_ranges`                 the referrers and terms of all ranges; `compare_ranges` decodes new ones
4. verdicts                         of each collector: lifecycle, uncommitted, retention
5. `combined_verdicts`              what any of them lets go may be deleted

Each collector decides alone, and the deadline of an address is the earliest of theirs. It is not "every
reference has lapsed by the rules of some collector": a lifecycle rule may still keep what an old commit no
longer keeps, and the other way round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.core.decision import CollectorName
from ebbtide.engine.collector import Collected, Context
from ebbtide.engine.files import remove_unused
from ebbtide.engine.removed_table import RemovedTable
from ebbtide.engine.run_folder import OnStep, RunFolder, no_step
from ebbtide.engine.spark.progress import OnProgress, no_progress
from ebbtide.engine.tables.contracts import LABELS, VERDICTS, Contract
from ebbtide.engine.verdicts import TOUCHED, Layers
from ebbtide.targets.repository.address_verdicts import reference_verdicts
from ebbtide.targets.repository.increments import RangeChanges, compare_ranges, updated_verdicts
from ebbtide.targets.repository.live_objects import Scope, reaped_hashes, referenced
from ebbtide.targets.repository.memory import Memory, Remembered
from ebbtide.targets.repository.model import RepositoryInfo, Snapshot
from ebbtide.targets.repository.policy import policy_warnings
from ebbtide.targets.repository.protocol import VersionedRepository
from ebbtide.targets.repository.ranges import has_few_entries, written_ranges
from ebbtide.targets.repository.retention import retained_references
from ebbtide.targets.repository.rules import RepositoryRules
from ebbtide.targets.repository.uncommitted import (
    Listed,
    check_history,
    described,
    keep_states,
    read_listing,
    states_after,
    sweep,
    waiting_partitions,
)
from ebbtide.targets.repository.world import ONLY_WORLD, World, world_of

_UNITED = ("names",)
_LARGEST = ("size", "created")


@dataclass(frozen=True)
class Planner:
    """Plans one run over one repository; the caller holds its lock."""

    spark: SparkSession
    context: Context
    repository: VersionedRepository
    info: RepositoryInfo
    """The repository as it was when the plan began."""
    rules: RepositoryRules
    now: datetime
    full: bool = False
    """Trust no cache: decode every range and compute every verdict."""
    on_progress: OnProgress = no_progress
    on_step: OnStep = no_step

    def collect(self, folder: RunFolder) -> Collected:
        """Read the repository in its safe order, and return the verdicts of all collectors."""
        memory = Memory.of(self.context.root, self.info.uid, self.info.namespace)
        begun = memory.begin()
        # Before the snapshot: commits from here on are known to the catalog before they are stored.
        self.repository.check_owner()
        self.repository.check_history()
        listed = self._listed(folder)
        snapshot = self.repository.snapshot()
        if listed is not None:
            check_history(self.repository, listed, snapshot)
        collected = self._verdicts(folder, memory, begun, listed, snapshot)
        self.repository.remember(snapshot)
        return collected

    def _verdicts(
        self, folder: RunFolder, memory: Memory, begun: float, listed: Listed | None, snapshot: Snapshot
    ) -> Collected:
        """Compute the verdicts on what was read."""
        worlds = {ONLY_WORLD: replace(self._world(snapshot), reference_folder=memory.references)}
        ranges = written_ranges(self.spark, worlds, folder.snapshot)
        self.on_step("ranges listed")
        policy = self.rules.lifecycle
        earlier = memory.recall(self.spark, policy) if policy and not self.full else None
        before = earlier.ranges if earlier else None
        few, place = has_few_entries(folder.snapshot), folder.scratch / "affected"
        seen = compare_ranges(ranges, before, worlds, place, again=self.full, few=few)
        self.on_step("ranges decoded")
        collected = Collected(
            Layers(folder.scratch), _described(snapshot, seen), policy_warnings(self.rules.policy)
        )
        if policy:
            kept = self._lifecycle(folder, ranges, worlds, seen, memory, earlier, begun)
            if len(self.rules.collectors) == 1:
                return replace(collected, verdicts=kept)
            collected = replace(collected, verdicts=kept)
        collected = self._all(folder, collected, ranges, worlds, listed, snapshot)
        if not policy:
            remove_unused(memory.references, begun)
        return collected

    def _listed(self, folder: RunFolder) -> Listed | None:
        if self.rules.uncommitted is None:
            return None
        place = folder.scratch / "listing"
        place.mkdir(parents=True)
        listed = read_listing(self.spark, self.repository, self.rules.uncommitted, place, self.on_progress)
        self.on_step("store listed")
        return listed

    def _world(self, snapshot: Snapshot) -> World:
        rules = self.rules
        return world_of(self.repository, snapshot, rules.policy, self.now, rules.retention)

    def _lifecycle(
        self,
        folder: RunFolder,
        ranges: DataFrame,
        worlds: Mapping[int, World],
        seen: RangeChanges,
        memory: Memory,
        earlier: Remembered | None,
        begun: float,
    ) -> Layers:
        """Do steps 2 and 3 of seed 000; step 4 depends on the time and is the engine's."""
        again = updated_verdicts(ranges, worlds, seen)
        policy = self.rules.policy
        kept = memory.keep(
            self.spark, policy, folder.run_id, folder.snapshot, again, earlier, begun, self.on_step
        )
        self.on_step("verdicts kept")
        return kept

    def _all(
        self,
        folder: RunFolder,
        collected: Collected,
        ranges: DataFrame,
        worlds: Mapping[int, World],
        listed: Listed | None,
        snapshot: Snapshot,
    ) -> Collected:
        """Combine the verdicts of several collectors, or of one that is not lifecycle."""
        table = RemovedTable(self.context.root, self.context.ledger, self.info.uid)
        removed = table.folded(self.context.clock())
        parts, known = [], None
        if self.rules.lifecycle:
            touched = collected.verdicts.read(self.spark, TOUCHED)
            parts.append(removed.without_gone(touched))
        if self.rules.retention:
            lapsing = retained_references(ranges, worlds, folder.scratch / "lapsing")
            found = reference_verdicts(lapsing, collector=CollectorName.RETENTION)
            parts.append(removed.without_gone(found.where(f"kind = '{TOUCHED}'")))
        if listed is None:
            known = referenced(ranges, worlds, Scope()).select("hash").distinct().count()
        if listed is not None and self.rules.uncommitted is not None:
            gone = removed.gone(self.spark)
            swept = sweep(
                self.spark,
                listed,
                ranges,
                worlds[ONLY_WORLD],
                self.rules.uncommitted,
                self.repository.layout,
                gone,
                lambda: reaped_hashes(self.spark, self.repository.reaped(), folder.scratch),
                folder.scratch,
            )
            parts.append(swept.verdicts)
            known = swept.known
        place = folder.scratch / "verdicts"
        VERDICTS.write(removed.holding(combined_verdicts(parts)), place, partition_by="kind")
        self.on_step("verdicts written")
        snapshot_read = collected.snapshot | self._states(folder, listed, snapshot, place)
        return replace(
            collected, verdicts=Layers(place), snapshot=snapshot_read, known=known, removed_applied=True
        )

    def _states(
        self, folder: RunFolder, listed: Listed | None, snapshot: Snapshot, place: Any
    ) -> dict[str, Any]:
        """Keep the states for the next run with the plan."""
        rules = self.rules.uncommitted
        if listed is None or rules is None:
            return {}
        uploads = max(rules.grace, self.repository.upload_life)
        layout = self.repository.layout
        found = VERDICTS.read(self.spark, place)
        waiting = waiting_partitions(found, self.now, layout)
        states = states_after(layout, listed.survey, listed.at, snapshot, waiting, folder.run_id, uploads)
        return described(listed) | keep_states(folder.path, states)


def _described(snapshot: Snapshot, seen: RangeChanges) -> dict[str, Any]:
    """Return for the manifest what was read, in a few numbers."""
    return {
        "sequence": snapshot.sequence,
        "taken_at": snapshot.taken_at.isoformat(),
        "branches": len(snapshot.branches),
        "tags": len(snapshot.tags),
        "commits": len(snapshot.commits),
        "staged_entries": sum(staged.count for staged in snapshot.staged),
        "default_branch_head": snapshot.branches.get(snapshot.repository.default_branch),
        "ranges": seen.ranges,
        "ranges_decoded": seen.new,
    }


def combined_verdicts(parts: Sequence[DataFrame], contract: Contract = VERDICTS) -> DataFrame:
    """Return for each address the verdict with the earliest deadline; of equal ones the first collector's."""
    if len(parts) == 1:
        return contract.check(parts[0])
    # Maps cannot be compared; their entries can.
    every = reduce(DataFrame.unionByName, map(contract.check, parts))
    every = every.withColumn("labels", f.sort_array(f.map_entries("labels")))
    keys = [name for name in ("world", "hash") if name in contract.columns]
    chosen = [name for name in contract.columns if name not in (*keys, *_UNITED, *_LARGEST)]
    first = f.min(
        f.struct("deadline", _order().alias("place"), *[name for name in chosen if name != "deadline"])
    )
    added = every.groupBy(*keys).agg(
        first.alias("first"),
        *(f.array_sort(f.array_distinct(f.flatten(f.collect_list(name)))).alias(name) for name in _UNITED),
        *(f.max(name).alias(name) for name in _LARGEST),
    )
    kept = [f.col(name) if name not in chosen else f.col(f"first.{name}") for name in contract.columns]
    found = added.select(*kept).withColumn("labels", f.map_from_entries("labels").cast(LABELS))
    return contract.check(found)


def _order() -> Column:
    """Return the position of the collector."""
    place = f.lit(len(CollectorName))
    for number, collector in enumerate(CollectorName):
        place = f.when(f.col("collector") == str(collector), number).otherwise(place)
    return place
