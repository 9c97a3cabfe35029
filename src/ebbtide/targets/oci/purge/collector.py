"""
The collector of a registry: what its policies let go, and what a user asks to delete.

A registry cannot be closed to its users, so nothing is fenced. Instead all repositories of the plan are
scanned and evaluated again before every batch; what would not go any more stays. Changes between that and the
delete are seen by the actor, which reads each tag once more and rechecks the tags of the repository, and
recycled images can be restored.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.core.errors import EbbtideError, NotFound, StalePlan
from ebbtide.core.instant import system_clock
from ebbtide.core.manifest import Manifest
from ebbtide.engine.actor import Actor, Attempt
from ebbtide.engine.apply import Applied
from ebbtide.engine.cluster_check import Reach
from ebbtide.engine.collector import Collected, Collector, Identity, Policy, Run
from ebbtide.engine.run_folder import OnStep, RunFolder, run_folder
from ebbtide.engine.run_tables import read_plan
from ebbtide.engine.tables.contracts import NEWLY_REFERENCED
from ebbtide.engine.tables.digest import address_hash
from ebbtide.state.users import SYSTEM, current_user
from ebbtide.targets.oci.bin.contents import OwnCollector
from ebbtide.targets.oci.client.address import repository_of
from ebbtide.targets.oci.context import RegistryContext, RegistryReach
from ebbtide.targets.oci.inventory.snapshots import snapshot_name
from ebbtide.targets.oci.kind import PURGE
from ebbtide.targets.oci.model import GOES
from ebbtide.targets.oci.policies.policy import RECYCLE_BIN
from ebbtide.targets.oci.purge.actor import ImageActor
from ebbtide.targets.oci.purge.adoption import not_adopted, policy_shares
from ebbtide.targets.oci.purge.identity import identify
from ebbtide.targets.oci.purge.plan import RegistryPlanner
from ebbtide.targets.oci.purge.policy import PurgePolicy, read_purge_policy
from ebbtide.targets.oci.purge.scans import RegistryScans
from ebbtide.targets.oci.records.model import Role
from ebbtide.targets.oci.running_source import RunningSource, applied_source, planned_source, read_source
from ebbtide.targets.oci.tables import IMAGE_VERDICTS

_YOUNG = timedelta(days=1)


@dataclass
class PurgeCollector(Collector):
    """Collects the images of a registry that have expired, or that a user asks to delete."""

    context: RegistryContext
    purge_policy: PurgePolicy
    """The policy of the purge; at apply, that of the plan."""
    source: RunningSource | None = None
    """The source of running images, and who chose it; None at apply."""
    adopt: bool = False
    """Whether what the policies do to a registry that was never planned is confirmed."""
    _batches: int = field(default=0)
    """How many batches were acted on: each is verified again."""
    _scanned: Path | None = None
    """The folder of the scan that verified the batch at work."""
    _applied_policy: PurgePolicy | None = None

    name = PURGE
    in_order = True
    """The rows of a manifest belong together."""

    @classmethod
    def of_plan(cls, context: RegistryContext, plan: Manifest) -> PurgeCollector:
        """Return the collector that made a plan."""
        return cls(context, read_purge_policy(plan.policy))

    @property
    def identity(self) -> Identity:
        """The registry."""
        return self.context.identity

    def policy(self) -> Policy:
        """Return the policy: image policies, running images, and the delete request."""
        return Policy(self.purge_policy.to_json(), self.purge_policy.hash)

    def reach(self) -> Reach:
        """Reach the registry."""
        return RegistryReach(self.context.spec)

    def before_plan(self) -> tuple[str, ...]:
        """Determine which registry it is."""
        return identify(self.context, current_user(), "make a plan")

    def check_ready(self) -> None:
        """Raise if the registry does not answer."""
        with self.context.opened():
            pass

    def collect(self, run: Run) -> Collected:
        """Scan, renew the policies of running images, and evaluate; no image in the registry is changed."""
        self.purge_policy.check_running(run.now)
        # What is deleted by name or age was asked for; the policies of the others do nothing then.
        if self.purge_policy.request is None:
            self._check_adopted(run)
        collected = self._planner(run).collect(run.folder)
        adopted = {"adopted_by": current_user()} if self.adopt else {}
        return replace(collected, snapshot=collected.snapshot | adopted)

    def _check_adopted(self, run: Run) -> None:
        """
        Stop the first plan for a registry unless a user confirms what its policies do.

        Images that no rule matches fall under Default, so a registry without rules would be emptied within
        days.
        """
        records, uid, url = self.context.records, self.context.uid, self.context.spec.url
        if records.adoption(uid).covers(repository_of(url)):
            return
        planner, folder = self._planner(run), RunFolder(run.folder.scratch / "survey")
        scan = planner.scan(folder)
        planner.learn(scan, folder)
        shares = policy_shares(planner.judge(scan, folder))
        if not self.adopt:
            raise not_adopted(url, self.purge_policy, shares)
        records.adopt(uid, current_user(), repository_of(url), [share.plain() for share in shares])

    def _planner(self, run: Run) -> RegistryPlanner:
        scans = RegistryScans(run.spark, self.context, run.on_progress)
        return RegistryPlanner(self.purge_policy, run.now, scans, self.source, run.on_step)

    def check(self, plan: Manifest) -> None:
        """Check also that it is the same registry, and that the user may do what was asked for."""
        check_same_registry(self.context, plan)
        self.check_unchanged(plan)
        if self.purge_policy.request is not None:
            # Another user may apply the plan later, so the role is checked here too.
            what = f"delete by run {plan.run_id}"
            self.context.records.require(self.context.uid, Role.IMAGE_WRITER, current_user(), what)

    def check_unchanged(self, plan: Manifest) -> None:
        """Stop if the policies have changed, or the list of running images is too old by now."""
        current = replace(self.purge_policy, policies=self.context.records.policies(self.context.uid))
        if current.hash != plan.policy_hash:
            raise StalePlan(
                f"the policies of {plan.target} were changed",
                why="the plan was made for something else",
                fix="plan again",
            )
        self._policy_at_apply(plan).check_running(self.context.clock())

    def _policy_at_apply(self, plan: Manifest) -> PurgePolicy:
        """
        Return the policy at apply: with the registry's own source of running images if that differs.

        A user with the role may apply a plan as it is. For all others the registry's source counts, and so do
        the running images that the plan knew.
        """
        # Asked for once, and only when needed: a run that was applied before needs no list of what runs.
        if self._applied_policy is None:
            self._applied_policy = self._with_running(plan)
        return self._applied_policy

    def _with_running(self, plan: Manifest) -> PurgePolicy:
        source = applied_source(self.context, planned_source(plan.snapshot))
        if source is None:
            return self.purge_policy
        found = read_source(self.context, source, self.context.clock)
        known = () if self.purge_policy.running is None else self.purge_policy.running.references
        running = replace(found, references=(*found.references, *known))
        return replace(self.purge_policy, running=running).dated(self.context.clock())

    def sequence(self) -> int:
        """Return another number after each batch, so that each batch is verified again."""
        return self._batches

    def fence(self, plan: Manifest) -> int:  # noqa: ARG002 (nothing is fenced)
        """Do nothing: a registry cannot be fenced."""
        return self._batches

    def unfence(self, plan: Manifest) -> None:  # noqa: ARG002 (nothing is fenced)
        """Count the batch: something may have changed by now."""
        self._batches += 1

    def newly_referenced(self, spark: SparkSession, plan: Manifest, folder: RunFolder) -> DataFrame:
        """Find the planned manifests that would not go, or not in that way, if the plan were made now."""
        rows = read_plan(spark, folder).select(
            "address", f.coalesce("version", f.lit("")).alias("tag"), f.col("action").alias("planned")
        )
        scans = RegistryScans(spark, self.context)
        repositories = planned_repositories(rows)
        place = folder.scratch / snapshot_name(system_clock())
        found, self._scanned = scans.verdicts(self._policy_at_apply(plan), plan.now, repositories, place)
        now = IMAGE_VERDICTS.check(found).select(
            f.concat_ws("@", "repository", "digest").alias("address"), "tag", "decision", "held_by"
        )
        # What is not there any more has no verdict: the actor finds it absent, or that the tag moved.
        differs = (f.col("decision") != f.col("planned")) | ~f.col("decision").isin(*GOES)
        why = f.concat(f.lit("it would stay now: "), f.coalesce(f.get("held_by", 0), f.lit("not due")))
        return NEWLY_REFERENCED.check(
            rows.join(now, ["address", "tag"])
            .where(differs)
            .groupBy(address_hash("address").alias("hash"))
            .agg(f.min(why).alias("reason"))
        )

    def actor(self, plan: Manifest, attempt: Attempt) -> Actor:
        """Recycle or delete tags and manifests."""
        policy = self.purge_policy.policies.the(RECYCLE_BIN)
        reason = "rehearsal" if plan.rehearsal else ""
        if self._scanned is None:
            raise StalePlan("the registry was not scanned before the batch", fix="apply again")
        now, scanned = self.context.clock(), self._scanned
        return ImageActor(self.context.spec, attempt, policy, plan.run_id, now, scanned, reason)

    def after_apply(self, spark: SparkSession, plan: Manifest, applied: Applied, on_step: OnStep) -> None:  # noqa: ARG002 (there is nothing to interrupt)
        """Free the bytes of image layouts, and write into the log what was done."""
        if applied.already_applied:
            return
        self._free_layouts(spark, plan)
        self._note(plan, outcome_words(applied))

    def after_failure(self, plan: Manifest, error: EbbtideError) -> None:
        """Write into the log how far the run came."""
        self._note(plan, f"{error.what} ({error.why})")

    def _note(self, plan: Manifest, what: str) -> None:
        """Write into the log what a run did (requirement 10.0); the outcomes have every image."""
        request, records = self.purge_policy.request, self.context.records
        by = SYSTEM if request is None else current_user()
        records.note_purge(self.context.uid, plan.run_id, f"{plan.collector}: {what}", by)
        for named in () if request is None else request.named:
            image = f"{named.repository}:{named.tag}" if named.tag else f"{named.repository}@{named.digest}"
            records.note_image(self.context.uid, by, image, f"delete (run {plan.run_id}): {what}")

    def _free_layouts(self, spark: SparkSession, plan: Manifest) -> None:
        """
        Free the bytes of what was removed from image layouts, which have no garbage collection of their own.

        Blobs of the last day stay: a client that pushes an image writes its blobs before its manifest.
        """
        with self.context.opened() as registry:
            if not isinstance(registry, OwnCollector):
                return
            rows = read_plan(spark, run_folder(self.context.root, plan.run_id))
            for repository in planned_repositories(rows):
                with suppress(NotFound):
                    registry.remove_unneeded_blobs(repository, system_clock() - _YOUNG)


def check_same_registry(context: RegistryContext, plan: Manifest) -> None:
    """Stop if a plan was made for another registry at the same name."""
    identify(context, current_user(), f"apply run {plan.run_id}")
    if context.uid != plan.target_uid:
        raise StalePlan(
            f"{plan.target} is recorded as another registry than when run {plan.run_id} was planned",
            why="other pins, roles and policies count for it now",
            fix="plan again",
        )


def outcome_words(applied: Applied) -> str:
    """Return in a few words what a run did."""
    done = (f"{tally.objects} {name}" for name, tally in sorted(applied.outcomes.items()))
    return ", ".join(done) or "nothing"


def planned_repositories(rows: DataFrame) -> list[str]:
    """Return the repositories of a plan."""
    named = rows.select(f.substring_index("address", "@", 1).alias("repository")).distinct()
    return sorted(row.repository for row in named.toLocalIterator())
