"""
The collector of a repository: lifecycle, uncommitted objects, retention, and files written beside the data.

The lifecycle job of seed 000 has five parts:

1. extract data from the policy        `policy_table`, `current_rules`
2. find potential commits              `potential_commits`, `commit_referrers`, `range_table`
3. find deduplications                 `reference_verdicts`
4. find addresses to be removed        `decisions_at`
5. delete                              `engine.apply`, from a plan that people have seen

The flows of seed 001 are in `uncommitted`; step 8 of the first, to save the state for the next run, is
`save_states`, when a run has succeeded. A deleted repository has its own collector, `deleted_repository`.

Re-verification at apply finds what became referenced after the plan's snapshot, and reads only the
difference. Ranges are immutable, so anything new is in a range that the plan did not see, or in a range with
a new referrer (a new branch or tag on an old commit, a revert, a staged copy). Only those are read. Which
references take a planned item out depends on the collector that found it: for lifecycle those that have not
lapsed by the plan's own policy and time, for retention those that are kept longer, for uncommitted any.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.core.bin_label import items_of, label_of
from ebbtide.core.decision import CollectorName
from ebbtide.core.errors import NotFound, PolicyError, StalePlan, StoreError
from ebbtide.core.instant import format_instant, to_micros
from ebbtide.core.manifest import Manifest
from ebbtide.engine.actor import Actor, Attempt, store_deleter
from ebbtide.engine.apply import Applied
from ebbtide.engine.cluster_check import Reach, StoreReach
from ebbtide.engine.collector import Collected, Collector, Context, Identity, Policy, Run
from ebbtide.engine.recycle import Recycler
from ebbtide.engine.restore import check_not_restored_since, restored_since
from ebbtide.engine.run_folder import OnStep, RunFolder, run_folder
from ebbtide.engine.run_tables import read_plan
from ebbtide.engine.spark.failures import own_errors
from ebbtide.engine.tables.contracts import NEWLY_REFERENCED, RANGES
from ebbtide.targets.repository.lifecycle import policy_table, references
from ebbtide.targets.repository.model import METADATA, RepositoryInfo
from ebbtide.targets.repository.outputs import has_policy, write_addresses, write_policy, write_stats
from ebbtide.targets.repository.planner import Planner
from ebbtide.targets.repository.policy import PolicyRun
from ebbtide.targets.repository.protocol import VersionedRepository
from ebbtide.targets.repository.ranges import has_few_entries, written_ranges
from ebbtide.targets.repository.retention import kept_ranges, read_kept
from ebbtide.targets.repository.rules import RepositoryRules, current_rules, parse_rules
from ebbtide.targets.repository.uncommitted import save_states
from ebbtide.targets.repository.world import ONLY_WORLD, World, world_of

_SAME_RANGE = ["folder", "range_id"]
_NO_FENCE = (
    "this repository has no fence: apply checks for new references before each batch, and cannot keep out"
    " those that are made while it deletes the batch"
)


@dataclass(frozen=True)
class RepositoryCollector(Collector):
    """Collects what the rules of a repository no longer keep."""

    context: Context
    repository: VersionedRepository
    rules: RepositoryRules
    """The rules to plan by; at apply, those that the plan was made by."""
    full: bool = False
    """Trust no cache: read everything again."""

    @classmethod
    def of_plan(
        cls, context: Context, repository: VersionedRepository, plan: Manifest
    ) -> RepositoryCollector:
        """Return the collector that made a plan."""
        return cls(context, repository, parse_rules(plan.policy, plan.collector))

    @property
    def name(self) -> str:
        """The names of the collectors, joined."""
        return self.rules.name

    @property
    def identity(self) -> Identity:
        """The repository as it was when it was first looked at."""
        return Identity(self.repository.url, self._info.uid, self._info.namespace)

    @cached_property
    def _info(self) -> RepositoryInfo:
        return self.repository.info()

    def policy(self) -> Policy:
        """Return the rules, and for how long the bin keeps deleted items."""
        days = bin_days(self.context, self._info.uid, self.rules)
        return Policy(self.rules.text, self.rules.hash, days)

    def reach(self) -> Reach:
        """Reach the repository's store."""
        return StoreReach(self.repository.store_spec())

    def check_ready(self) -> None:
        """Raise if the store does not answer."""
        self.repository.store()

    def before_plan(self) -> tuple[str, ...]:
        """Finish an interrupted restore; warn if the repository has no fence."""
        self.repository.finish_interrupted_restore(self.context)
        return () if self.repository.has_fence else (_NO_FENCE,)

    def estimate(self) -> int | None:
        """Return the number of entries; where the store is listed too, only an earlier plan can tell."""
        return self.repository.estimate() if self.rules.uncommitted is None else None

    def collect(self, run: Run) -> Collected:
        """Read the repository's metadata, and list the store if that is needed."""
        planner = Planner(
            run.spark,
            self.context,
            self.repository,
            self._info,
            self.rules,
            run.now,
            self.full,
            run.on_progress,
            run.on_step,
        )
        return planner.collect(run.folder)

    def after_plan(self, spark: SparkSession, plan: Manifest, on_step: OnStep) -> None:
        """Write the outputs of seed 000 beside the data."""
        self._write_outputs(spark, plan)
        on_step("outputs written")

    def check(self, plan: Manifest) -> None:
        """Check that the plan is not stale, and that no commit was lost."""
        self.check_unchanged(plan)
        self.repository.check_history()

    def check_unchanged(self, plan: Manifest) -> None:
        """Raise StalePlan if the repository, its namespace or its rules are not those of the plan."""
        found = self.repository.info()
        if found.uid != plan.target_uid:
            raise _stale(f"{plan.target} is now another repository of the same name")
        if found.namespace != plan.namespace:
            raise _stale(f"{plan.target} moved from {plan.namespace} to {found.namespace}")
        self.repository.check_owner()
        if self.sequence() < plan.snapshot["sequence"]:
            raise _stale(f"the catalog of {plan.target} is older than the one that was planned from")
        try:
            current = current_rules(self.repository, self.rules)
        except PolicyError as broken:
            what = f"the rules of {plan.target} were removed or can no longer be read: {broken.what}"
            raise _stale(what) from broken
        if current.hash != plan.policy_hash:
            raise _stale(f"the policy of {plan.target} was changed")
        days = bin_days(self.context, found.uid, current)
        if days != (plan.recycling.days if plan.recycling else None):
            raise _stale(f"for how long {plan.target} keeps deleted objects in its bin was changed")
        check_not_restored_since(self.context.ledger, plan)

    def sequence(self) -> int:
        """Return the repository's change counter."""
        return self.repository.sequence()

    def newly_referenced(self, spark: SparkSession, plan: Manifest, folder: RunFolder) -> DataFrame | None:
        """Find planned items that became referenced; nothing is read if nothing changed."""
        if self.sequence() == plan.snapshot["sequence"]:
            return None
        rules = self.rules
        snapshot = self.repository.snapshot()
        world = world_of(self.repository, snapshot, rules.policy, plan.now, rules.retention)
        return newly_referenced(spark, world, rules, folder)

    def fence(self, plan: Manifest) -> int:
        """Close the repository to new references, so that re-verification stays true for a batch."""
        return self.repository.close_fence(fence_holder(plan))

    def unfence(self, plan: Manifest) -> None:
        """Open the fence again; a repository that was deleted has none."""
        with suppress(NotFound):
            self.repository.open_fence(fence_holder(plan))

    def actor(self, plan: Manifest, attempt: Attempt) -> Actor:
        """
        Move data objects into the bin if the plan says so, or else delete them.

        Metadata is never deleted: commits are read as long as the repository exists. The label is written
        before the first item of a batch is moved, so that everything in the bin has a label.
        """
        label, store = label_of(plan, attempt.now()), self.repository.store_spec()
        if label is None:
            return store_deleter(store, attempt, not_below=METADATA)
        contents = self.repository.bin()
        contents.write(label)
        return Recycler(store, attempt, items_of(contents.root, label.folder), METADATA)

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
        """Write the statistics of the run beside the data, and the states for the next run."""
        try:
            self._write_statistics(plan, applied)
        except StoreError as broken:
            raise StoreError(
                f"run {plan.run_id} succeeded, but its statistics could not be written: {broken}",
                fix=f"apply it again ('ebb apply {plan.run_id}'): that writes them and deletes no more",
            ) from broken
        on_step("statistics written")

    def _write_statistics(self, plan: Manifest, applied: Applied) -> None:
        store, ledger = self.repository.store(), self.context.ledger
        if self.rules.lifecycle is not None:
            # The day on which it ended, not today: applying a finished run again must not count it twice.
            finished = ledger.run(plan.run_id).finished_at or self.context.clock()
            write_stats(store, plan, applied.outcomes.values(), finished)
        # Objects that were restored since must be found again, in partitions that this run had settled.
        if self.rules.uncommitted is not None and not restored_since(ledger, plan.target_uid, plan.run_id):
            save_states(store, run_folder(self.context.root, plan.run_id), plan, applied.outcomes)

    def _write_outputs(self, spark: SparkSession, plan: Manifest, *, again: bool = False) -> None:
        """Write a lifecycle plan beside the data; the policy is written last and so proves the addresses."""
        store = self.repository.store()
        if self.rules.lifecycle is None or (again and has_policy(store, plan.run_id)):
            return
        if plan.batches:
            with own_errors():
                rows = read_plan(spark, run_folder(self.context.root, plan.run_id))
                found = rows.where(f.col("collector") == str(CollectorName.LIFECYCLE))
                spec = self.repository.store_spec()
                write_addresses(found, spec, plan.run_id, plan.made_at, rehearsal=plan.rehearsal)
        row = PolicyRun(plan.run_id, plan.now, self.rules.lifecycle, succeeded=False)
        write_policy(store, plan.run_id, policy_table([row]), rehearsal=plan.rehearsal)


def identity_of(repository: VersionedRepository) -> Identity:
    """Return the identity of a repository as it is now."""
    found = repository.info()
    return Identity(repository.url, found.uid, found.namespace)


def bin_days(context: Context, target_uid: str, rules: RepositoryRules) -> int | None:
    """
    Return for how many days a run keeps items in the recycle bin; None if it deletes them for good.

    The longest of the target's setting and the rules of its policy counts, for all items of the run: several
    rules may have matched an object, and none has if it is garbage.
    """
    said = [context.ledger.recycling_days(target_uid), rules.policy.recycle_days]
    return max((days for days in said if days is not None), default=None)


def fence_holder(plan: Manifest) -> str:
    """Return the name of a run for the fence; the time tells runs of two ledgers with one number apart."""
    return f"{plan.run_id}@{format_instant(plan.made_at)}"


def _stale(what: str) -> StalePlan:
    return StalePlan(what, why="the plan was made for something else", fix="make a new plan")


def newly_referenced(
    spark: SparkSession, world: World, rules: RepositoryRules, folder: RunFolder
) -> DataFrame:
    """Return the planned items that a reference keeps now and that none kept at the plan's snapshot."""
    place = folder.scratch / "ranges"
    now = written_ranges(spark, {ONLY_WORLD: world}, place)
    few = has_few_entries(place)
    planned = RANGES.read(spark, folder.snapshot)
    keepers = {
        CollectorName.LIFECYCLE: _lifecycle_keepers,
        CollectorName.UNCOMMITTED: _uncommitted_keepers,
        CollectorName.RETENTION: _retention_keepers,
    }
    plan = read_plan(spark, folder)
    found = [
        keepers[one](now, planned, world, few=few)
        .select("hash", "key", "holder", "why")
        .join(
            plan.where(f.col("collector") == str(one)).select("hash").hint("shuffle_hash"),
            "hash",
            "left_semi",
        )
        for one in rules.collectors
    ]
    keeper = (
        reduce(DataFrame.unionByName, found)
        .groupBy("hash")
        .agg(f.min(f.struct("key", "holder", "why")).alias("by"))
    )
    reason = f.concat_ws(" ", "by.key", "by.holder")
    why = f.concat(f.lit("referenced since the plan was made: "), reason, f.lit(" ("), f.col("by.why"))
    return NEWLY_REFERENCED.check(keeper.select("hash", f.concat(why, f.lit(")")).alias("reason")))


def _lifecycle_keepers(now: DataFrame, planned: DataFrame, world: World, *, few: bool) -> DataFrame:
    """Return references that have not lapsed, in ranges with a referrer that the plan did not see."""
    # `days` may hold nulls, which never equal each other in a join; as text they do.
    treatment = f.to_json(f.struct(f.col("days")), {"ignoreNullFields": "false"})
    seen = planned.select(*_SAME_RANGE, "referrer", treatment.alias("treatment")).distinct()
    new = now.withColumn("treatment", treatment).join(
        seen, [*_SAME_RANGE, "referrer", "treatment"], "left_anti"
    )
    found = references(new, {ONLY_WORLD: world}, few=few)
    return found.where(f.unix_micros("lapse") > to_micros(world.now))


def _uncommitted_keepers(now: DataFrame, planned: DataFrame, world: World, *, few: bool) -> DataFrame:
    """Return all references in ranges that the plan did not see."""
    new = now.join(planned.select(*_SAME_RANGE).distinct(), _SAME_RANGE, "left_anti")
    return references(new, {ONLY_WORLD: world}, few=few)


def _retention_keepers(
    now: DataFrame,
    planned: DataFrame,
    world: World,
    *,
    few: bool,  # noqa: ARG001 (ranges are not divided by key)
) -> DataFrame:
    """Return references in ranges that a commit keeps at the plan's time and none kept at its snapshot."""
    kept = f.unix_micros("until") > to_micros(world.now)
    seen = kept_ranges(planned).where(kept).select(*_SAME_RANGE)
    new = kept_ranges(now).where(kept).join(seen, _SAME_RANGE, "left_anti")
    return read_kept(new, {ONLY_WORLD: world.files})
