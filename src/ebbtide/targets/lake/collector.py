"""
The collector of a repository: lifecycle, uncommitted objects, retention, and what runs leave beside the data.

The lifecycle job of seed 000 in its five parts:

1. extract data from the policy        `policy_table`, `current_rules`
2. find potential commits              `potential_commits`, `commit_ties`, `range_table`
3. find deduplications                 `deduplicated`
4. find addresses to be removed        `decisions_at`
5. delete                              `engine.apply`, from a plan that people have seen

The flows of seed 001 are in `uncommitted.flows`; step 8 of the first, to save what the next run builds on, is
`save_states`, when a run has succeeded. A repository that was deleted has a collector of its own,
`retired.collector`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.core.bin_label import items_of, label_of
from ebbtide.core.decision import CollectorName
from ebbtide.core.errors import NotFound, PolicyError, StalePlan, StoreError
from ebbtide.core.manifest import Manifest
from ebbtide.engine.actor import Actor, Attempt, store_deleter
from ebbtide.engine.apply import Applied
from ebbtide.engine.cluster_check import Reach, StoreReach
from ebbtide.engine.collector import Collected, Collector, Identity, Policy, Run
from ebbtide.engine.layout import OnStep, RunFolder, run_folder
from ebbtide.engine.recycle import Recycler
from ebbtide.engine.restore import Restorer, check_not_restored_since, restored_since
from ebbtide.engine.spark.failures import own_errors
from ebbtide.engine.tables.contracts import NEWLY_REFERENCED, PLAN
from ebbtide.storage.store import StoreSpec
from ebbtide.targets.lake.bin import BIN_ROOT, LakeBin, days_in_bin, gate_holder, lake_bin
from ebbtide.targets.lake.catalog.model import Repository
from ebbtide.targets.lake.kind import SCHEME
from ebbtide.targets.lake.lifecycle.outputs import has_policy, write_addresses, write_policy, write_stats
from ebbtide.targets.lake.lifecycle.policies import PolicyRun, policy_table
from ebbtide.targets.lake.metadata.world import world_of
from ebbtide.targets.lake.planning import Planner
from ebbtide.targets.lake.rulebook import Rulebook, current_rulebook, parse_rulebook
from ebbtide.targets.lake.uncommitted.planning import save_states
from ebbtide.targets.lake.verification import newly_referenced
from ebbtide.targets.lake.witness import witnessed
from ebbtide.targets.lake.workshop import Workshop


@dataclass(frozen=True)
class RepositoryCollector(Collector):
    """Collects what the rules of a repository let go."""

    shop: Workshop
    repository: str
    rulebook: Rulebook
    """The rules to plan by; at apply, those that the plan was made by."""
    full: bool = False
    """Trust no cache: read everything again."""

    @classmethod
    def of_plan(cls, shop: Workshop, plan: Manifest) -> RepositoryCollector:
        """Return the collector that made a plan."""
        return cls(shop, plan.target.removeprefix(SCHEME), parse_rulebook(plan.policy, plan.collector))

    @property
    def name(self) -> str:
        """The collectors that are asked, in one word."""
        return self.rulebook.name

    @property
    def identity(self) -> Identity:
        """The repository as it was when it was first looked at."""
        return Identity(f"{SCHEME}{self.repository}", self._found.uid, self._found.namespace)

    @cached_property
    def _found(self) -> Repository:
        return self.shop.catalog.repository(self.repository)

    @property
    def store(self) -> StoreSpec:
        """Where the repository's objects are."""
        return witnessed(self.shop.catalog.store(self.repository))

    def policy(self) -> Policy:
        """Return the rules, and for how long the bin keeps what they let go."""
        days = days_in_bin(self.shop.ledger, self._found.uid, self.rulebook)
        return Policy(self.rulebook.text, self.rulebook.hash, days)

    def reach(self) -> Reach:
        """Reach the repository's store."""
        return StoreReach(self.store)

    def check_ready(self) -> None:
        """Raise if the store does not answer."""
        self.shop.catalog.store(self.repository)

    def before_plan(self) -> tuple[str, ...]:
        """Finish an interrupted restore."""
        Restorer(LakeBin(self.shop, self.repository)).finish_interrupted()
        return ()

    def collect(self, run: Run) -> Collected:
        """Read the repository's metadata, and what the store lists if that is needed."""
        planner = Planner(
            run.spark, self.shop, self._found, self.rulebook, run.now, self.full, run.on_progress, run.on_step
        )
        return planner.collect(run.folder)

    def after_plan(self, spark: SparkSession, plan: Manifest, on_step: OnStep) -> None:
        """Write the outputs that seed 000 names beside the data."""
        self._write_outputs(spark, plan)
        on_step("outputs written")

    def check(self, plan: Manifest) -> None:
        """Check also that the catalog has not lost any commit."""
        self.check_unchanged(plan)
        self.shop.catalog.check_history(self.repository)

    def check_unchanged(self, plan: Manifest) -> None:
        """Stop if this is no longer the repository, the namespace or the rules that were planned."""
        catalog, repository = self.shop.catalog, self.shop.catalog.repository(self.repository)
        if repository.uid != plan.target_uid:
            raise _stale(f"{plan.target} is now another repository of the same name")
        if repository.namespace != plan.namespace:
            raise _stale(f"{plan.target} moved from {plan.namespace} to {repository.namespace}")
        catalog.check_owner(self.repository)
        if self.sequence() < plan.snapshot["sequence"]:
            raise _stale(f"the catalog of {plan.target} is older than the one that was planned from")
        try:
            current = current_rulebook(catalog, self.repository, self.rulebook)
        except PolicyError as broken:
            what = f"the rules of {plan.target} were removed or can no longer be read: {broken.what}"
            raise _stale(what) from broken
        if current.hash != plan.policy_hash:
            raise _stale(f"the policy of {plan.target} was changed")
        days = days_in_bin(self.shop.ledger, repository.uid, current)
        if days != (plan.recycling.days if plan.recycling else None):
            raise _stale(f"for how long {plan.target} sets aside what it deletes was changed")
        check_not_restored_since(self.shop.ledger, plan)

    def sequence(self) -> int:
        """Return the repository's change counter."""
        return self.shop.catalog.sequence(self.repository)

    def newly_referenced(self, spark: SparkSession, plan: Manifest, folder: RunFolder) -> DataFrame:
        """Find planned items that something came to need; nothing is read if nothing changed."""
        if self.sequence() == plan.snapshot["sequence"]:
            return NEWLY_REFERENCED.read(spark)
        rules = self.rulebook
        snapshot = self.shop.catalog.snapshot(self.repository)
        world = world_of(snapshot, self.store, rules.policy, plan.now, rules.retention)
        return newly_referenced(spark, world, rules, folder)

    def fence(self, plan: Manifest) -> int:
        """Close the repository's gate: what re-verification found stays true while a batch is deleted."""
        return self.shop.catalog.close_gate(self.repository, gate_holder(plan))

    def unfence(self, plan: Manifest) -> None:
        """Open the gate again; a repository that was deleted has none."""
        with suppress(NotFound):
            self.shop.catalog.open_gate(self.repository, gate_holder(plan))

    def actor(self, plan: Manifest, attempt: Attempt) -> Actor:
        """
        Move data objects into the bin if the plan says so, or else delete them.

        Never metadata: commits are read as long as the repository is there. The label is written before the
        first item of a batch is moved, so that whatever lies in the bin says what it is.
        """
        label = label_of(plan, attempt.now())
        if label is None:
            return store_deleter(self.store, attempt)
        lake_bin(self.shop.catalog, self.repository).write(label)
        return Recycler(self.store, attempt, items_of(BIN_ROOT, label.folder))

    def before_apply(self, spark: SparkSession, plan: Manifest) -> None:
        """Write the outputs if the planner was killed before it did."""
        self._write_outputs(spark, plan, again=True)

    def after_apply(
        self,
        spark: SparkSession,  # noqa: ARG002 (what is written is small)
        plan: Manifest,
        applied: Applied,
        on_step: OnStep,
    ) -> None:
        """Leave beside the data what the run did, and what the next one may build on."""
        try:
            self._write_statistics(plan, applied)
        except StoreError as broken:
            raise StoreError(
                f"run {plan.run_id} succeeded, but its statistics could not be written: {broken}",
                fix=f"apply it again ('ebb apply {plan.run_id}'): that writes them and deletes no more",
            ) from broken
        on_step("statistics written")

    def _write_statistics(self, plan: Manifest, applied: Applied) -> None:
        store, ledger = self.shop.catalog.store(self.repository), self.shop.ledger
        if self.rulebook.lifecycle is not None:
            # The day on which it ended, not today: applying a finished run again must not count it twice.
            finished = ledger.run(plan.run_id).finished_at or self.shop.clock()
            write_stats(store, plan, applied.outcomes.values(), finished)
        # What was restored since is to be found again, in partitions that this run had settled.
        if self.rulebook.uncommitted is not None and not restored_since(ledger, plan.target_uid, plan.run_id):
            save_states(store, run_folder(self.shop.root, plan.run_id), plan, applied.outcomes)

    def _write_outputs(self, spark: SparkSession, plan: Manifest, *, again: bool = False) -> None:
        """Write a lifecycle plan beside the data; the policy goes last: where it is, the addresses are."""
        store = self.shop.catalog.store(self.repository)
        if self.rulebook.lifecycle is None or (again and has_policy(store, plan.run_id)):
            return
        if plan.waves:
            with own_errors():
                rows = PLAN.read(spark, run_folder(self.shop.root, plan.run_id).plan)
                found = rows.where(f.col("collector") == str(CollectorName.LIFECYCLE))
                write_addresses(found, witnessed(store), plan.run_id, plan.made_at, rehearsal=plan.rehearsal)
        row = PolicyRun(plan.run_id, plan.now, self.rulebook.lifecycle, succeeded=False)
        write_policy(store, plan.run_id, policy_table([row]), rehearsal=plan.rehearsal)


def _stale(what: str) -> StalePlan:
    return StalePlan(what, why="the plan was made for something else", fix="make a new plan")
