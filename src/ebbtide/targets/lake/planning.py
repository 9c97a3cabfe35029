"""
Planning a run over a repository: one read of its metadata, and what each collector makes of it.

0. `check_identity`    the namespace is this repository's, and its commits are all known
1. `read_listing`      what is stored, if uncommitted garbage is looked for; it must come first
2. `snapshot`          what is staged and committed, in one transaction of the catalog
3. `range_table`       who reaches which ranges, and until when; `visited` decodes those that are new
4. standings           of each collector: lifecycle, uncommitted, retention
5. `together`          what any of them lets go may go
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ebbtide.core.decision import CollectorName
from ebbtide.engine.collector import Collected
from ebbtide.engine.layers import TOUCHED, Layers
from ebbtide.engine.layout import OnStep, RunFolder, no_step
from ebbtide.engine.removed_table import RemovedTable
from ebbtide.engine.sealed import remove_unused
from ebbtide.engine.spark.progress import OnProgress, no_progress
from ebbtide.engine.tables.contracts import STANDINGS
from ebbtide.targets.lake.catalog.model import Repository, Snapshot
from ebbtide.targets.lake.lifecycle.increments import Visited, refreshed, visited
from ebbtide.targets.lake.lifecycle.memory import Memory, Remembered
from ebbtide.targets.lake.lifecycle.policies import policy_warnings
from ebbtide.targets.lake.lifecycle.standings import standings
from ebbtide.targets.lake.metadata.ranges import written_ranges
from ebbtide.targets.lake.metadata.world import ONLY_WORLD, World, world_of
from ebbtide.targets.lake.reaper.reaped import reaped_hashes
from ebbtide.targets.lake.retention.references import retained_references
from ebbtide.targets.lake.rulebook import Rulebook
from ebbtide.targets.lake.together import together
from ebbtide.targets.lake.uncommitted.planning import (
    described,
    keep_states,
    states_after,
    sweep,
    waiting_partitions,
)
from ebbtide.targets.lake.uncommitted.reading import Listed, check_history, read_listing
from ebbtide.targets.lake.uncommitted.references import Scope, referenced
from ebbtide.targets.lake.witness import witnessed
from ebbtide.targets.lake.workshop import Workshop


@dataclass(frozen=True)
class Planner:
    """Plans one run over one repository; the caller holds its lock."""

    spark: SparkSession
    shop: Workshop
    repository: Repository
    rulebook: Rulebook
    now: datetime
    full: bool = False
    """Trust no cache: decode every range and add up every standing."""
    on_progress: OnProgress = no_progress
    on_step: OnStep = no_step

    def collect(self, folder: RunFolder) -> Collected:
        """Read what there is, in its order, and give the standings of all that a collector touches."""
        memory = Memory.of(self.shop.root, self.repository.uid, self.repository.namespace)
        begun = memory.begin()
        # Before the snapshot: what is committed from here on is known to the catalog before it is stored.
        self.shop.catalog.check_identity(self.repository.name)
        listed = self._listed(folder)
        snapshot = self.shop.catalog.snapshot(self.repository.name)
        if listed is not None:
            check_history(listed, snapshot)
        collected = self._judged(folder, memory, begun, listed, snapshot)
        self.shop.catalog.remember_history(snapshot)
        return collected

    def _judged(
        self, folder: RunFolder, memory: Memory, begun: float, listed: Listed | None, snapshot: Snapshot
    ) -> Collected:
        """Judge what was read."""
        worlds = {ONLY_WORLD: replace(self._world(snapshot), reference_folder=memory.references)}
        ranges = written_ranges(self.spark, worlds, folder.snapshot)
        self.on_step("ranges listed")
        policy = self.rulebook.lifecycle
        earlier = memory.recall(self.spark, policy) if policy and not self.full else None
        before = earlier.ranges if earlier else None
        seen = visited(ranges, before, worlds, folder.scratch / "affected", again=self.full)
        self.on_step("ranges decoded")
        collected = Collected(
            Layers(folder.scratch), _described(snapshot, seen), policy_warnings(self.rulebook.policy)
        )
        if policy:
            kept = self._lifecycle(folder, ranges, worlds, seen, memory, earlier, begun)
            if len(self.rulebook.collectors) == 1:
                return replace(collected, standings=kept)
            collected = replace(collected, standings=kept)
        collected = self._all(folder, collected, ranges, worlds, listed, snapshot)
        if not policy:
            remove_unused(memory.references, begun)
        return collected

    def _listed(self, folder: RunFolder) -> Listed | None:
        if self.rulebook.uncommitted is None:
            return None
        place = folder.scratch / "listing"
        place.mkdir(parents=True)
        listed = read_listing(
            self.spark,
            self.shop.catalog,
            self.repository,
            self.rulebook.uncommitted,
            place,
            self.shop.clock(),
            self.on_progress,
        )
        self.on_step("store listed")
        return listed

    def _world(self, snapshot: Snapshot) -> World:
        store = witnessed(self.shop.catalog.store(self.repository.name))
        return world_of(snapshot, store, self.rulebook.policy, self.now, self.rulebook.retention)

    def _lifecycle(
        self,
        folder: RunFolder,
        ranges: DataFrame,
        worlds: Mapping[int, World],
        seen: Visited,
        memory: Memory,
        earlier: Remembered | None,
        begun: float,
    ) -> Layers:
        """Do steps 2 and 3 of seed 000; step 4 is the engine's, which knows the time."""
        again = refreshed(ranges, worlds, seen)
        policy = self.rulebook.policy
        kept = memory.keep(
            self.spark, policy, folder.run_id, folder.snapshot, again, earlier, begun, self.on_step
        )
        self.on_step("standings kept")
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
        """Put the standings of several collectors together, or of one that is not lifecycle."""
        table = RemovedTable(self.shop.root, self.shop.ledger, self.repository.uid)
        removed = table.folded(self.shop.clock())
        parts, known = [], None
        if self.rulebook.lifecycle:
            touched = collected.standings.read(self.spark, TOUCHED)
            parts.append(removed.without_gone(touched))
        if self.rulebook.retention:
            lapsing = retained_references(ranges, worlds, folder.scratch / "lapsing")
            found = standings(lapsing, collector=CollectorName.RETENTION)
            parts.append(removed.without_gone(found.where(f"kind = '{TOUCHED}'")))
        if listed is None:
            known = referenced(ranges, worlds, Scope()).select("hash").distinct().count()
        if listed is not None and self.rulebook.uncommitted is not None:
            gone = removed.gone(self.spark)
            swept = sweep(
                self.spark,
                listed,
                ranges,
                worlds[ONLY_WORLD],
                self.rulebook.uncommitted,
                self.repository.uid,
                gone,
                lambda: reaped_hashes(self.spark, self.shop.catalog, self.repository.uid, folder.scratch),
                folder.scratch,
            )
            parts.append(swept.standings)
            known = swept.known
        place = folder.scratch / "standings"
        STANDINGS.write(removed.holding(together(parts)), place, partition_by="kind")
        self.on_step("standings written")
        snapshot_read = collected.snapshot | self._states(folder, listed, snapshot, place)
        return replace(
            collected, standings=Layers(place), snapshot=snapshot_read, known=known, without_buried=True
        )

    def _states(
        self, folder: RunFolder, listed: Listed | None, snapshot: Snapshot, place: Any
    ) -> dict[str, Any]:
        """Keep with the plan what the next run may build on."""
        rules = self.rulebook.uncommitted
        if listed is None or rules is None:
            return {}
        uploads = max(rules.grace, self.shop.catalog.token_life)
        found = STANDINGS.read(self.spark, place)
        waiting = waiting_partitions(found, self.now, self.repository.uid)
        states = states_after(listed.survey, listed.at, snapshot, waiting, folder.run_id, uploads)
        return described(listed) | keep_states(folder.path, states)


def _described(snapshot: Snapshot, seen: Visited) -> dict[str, Any]:
    """Write down in the manifest what was read, short enough for a person."""
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
