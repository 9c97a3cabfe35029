"""Jobs on a registry: plan and apply a purge, and plan and apply the emptying of the bin."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from pyspark.sql import DataFrame, SparkSession

from ebbtide.engine.applying import Applied, ApplyOptions, Target, apply_plan, check_plan
from ebbtide.engine.deleting import Attempt, Deleter
from ebbtide.engine.fencing import unfenced_afterwards
from ebbtide.engine.freezing import FreezeOptions, OnStep, Subject, make_plan, no_step
from ebbtide.engine.layout import RunFolder, run_folder
from ebbtide.errors import EbbtideError, NotFound
from ebbtide.ledger.actors import SYSTEM, current_user
from ebbtide.ledger.locks import target_lock
from ebbtide.ledger.runs import RunState
from ebbtide.plan.manifest import Manifest
from ebbtide.registry.base import Capabilities
from ebbtide.registry.purge.abilities import probed
from ebbtide.registry.purge.acting import ImageActor
from ebbtide.registry.purge.emptying import BinActor, BinPlanner, BinTarget
from ebbtide.registry.purge.looking import Looker
from ebbtide.registry.purge.order import PurgeOrder, read_order
from ebbtide.registry.purge.planning import RegistryPlanner
from ebbtide.registry.purge.renewing import FOUND_RUNNING, renewed_marks
from ebbtide.registry.purge.shop import RegistryShop
from ebbtide.registry.purge.target import RegistryTarget, planned_repositories
from ebbtide.registry.records.model import Role
from ebbtide.registry.recycling.discarding import OwnCollector
from ebbtide.rules.images.policy import RECYCLE_BIN
from ebbtide.rules.instant import system_clock
from ebbtide.tables.contracts import PLAN
from ebbtide.tables.progress import OnProgress, no_progress

PURGE, BIN = "registry", "bin"
"""The collectors: what has expired in a registry, and what has expired in its bin."""
_YOUNG = timedelta(days=1)


def looker_of(shop: RegistryShop, spark: SparkSession, on_progress: OnProgress = no_progress) -> Looker:
    """Make what scans the registry."""
    return Looker(
        spark,
        shop.spec,
        shop.uid,
        shop.records,
        shop.root,
        shop.clock,
        shop.purged_since,
        on_progress,
    )


def plan_registry(
    spark: SparkSession,
    shop: RegistryShop,
    order: PurgeOrder,
    *,
    now: datetime,
    options: FreezeOptions,
    on_progress: OnProgress = no_progress,
    on_step: OnStep = no_step,
) -> Manifest:
    """Plan what is to go: scan, renew, judge, freeze; nothing in the registry is changed."""
    dated = order.dated(now)
    dated.check_running(now)
    looker = looker_of(shop, spark, on_progress)

    def renew(found: DataFrame) -> int:
        renewals = list(renewed_marks(found, dated.policies, now))
        seen = {before.target.key: before.assigned for before, _ in renewals}
        shop.records.put_marks(shop.uid, [after for _, after in renewals], SYSTEM, FOUND_RUNNING, seen)
        return len(renewals)

    def probe(repositories: list[str]) -> dict[str, Capabilities]:
        with shop.opened() as registry:
            return probed(registry, repositories)

    planner = RegistryPlanner(
        spark,
        dated,
        now,
        look=lambda folder: looker.look(dated.policies, folder),
        marks=looker.marks,
        renew=renew,
        probe=probe,
        on_progress=on_progress,
        on_step=on_step,
    )
    subject = _subject(shop, PURGE, dated.to_json(), dated.hash, now)
    with target_lock(shop.root, shop.uid, f"ebb plan {shop.spec.url}"):
        return make_plan(
            spark,
            shop.root,
            shop.ledger,
            subject,
            planner.decide,
            made_at=shop.clock(),
            options=options,
            on_progress=on_progress,
            on_step=on_step,
        )


def plan_bin(
    spark: SparkSession,
    shop: RegistryShop,
    *,
    now: datetime,
    options: FreezeOptions,
    on_progress: OnProgress = no_progress,
    on_step: OnStep = no_step,
) -> Manifest:
    """Plan what is to go from the bin for good."""
    planner = BinPlanner(spark, shop.spec, on_step)
    policy = json.dumps({"bin": "each image goes at the date that it got when it was set aside"})
    with target_lock(shop.root, shop.uid, f"ebb plan {shop.spec.url} --bin"):
        return make_plan(
            spark,
            shop.root,
            shop.ledger,
            _subject(shop, BIN, policy, BIN, now),
            planner.decide,
            made_at=shop.clock(),
            options=options,
            on_progress=on_progress,
            on_step=on_step,
        )


def _subject(shop: RegistryShop, collector: str, policy: str, policy_hash: str, now: datetime) -> Subject:
    url = shop.spec.url
    return Subject(url, shop.uid, url, collector, policy, policy_hash, now)


def check_registry(shop: RegistryShop, manifest: Manifest, options: ApplyOptions) -> None:
    """Refuse, before Spark starts, a plan that must not be applied."""
    check_plan(manifest, _target(shop, manifest, no_progress), options, shop.clock())


def apply_registry(
    spark: SparkSession,
    shop: RegistryShop,
    manifest: Manifest,
    *,
    options: ApplyOptions,
    on_progress: OnProgress = no_progress,
    on_step: OnStep = no_step,
) -> Applied:
    """Do what a plan says, as far as it still holds, and note in the log what was done."""
    target = _target(shop, manifest, on_progress)
    with (
        target_lock(shop.root, shop.uid, f"ebb apply {manifest.run_id}"),
        # Nothing is fenced, but tasks are waited for: one that deletes on must not outlive the lock.
        unfenced_afterwards(spark, target, manifest),
    ):
        if shop.ledger.run(manifest.run_id).state is not RunState.SUCCEEDED:
            check_registry(shop, manifest, options)
        by = _actor(shop, manifest)
        try:
            applied = apply_plan(
                spark,
                shop.root,
                shop.ledger,
                manifest,
                target,
                clock=shop.clock,
                options=options,
                on_progress=on_progress,
                on_step=on_step,
            )
        except EbbtideError as broken:
            _note(shop, manifest, f"{broken.what} ({broken.why})", by)
            raise
        finally:
            shutil.rmtree(run_folder(shop.root, manifest.run_id).scratch, ignore_errors=True)
        if not applied.already_applied:
            if manifest.collector == PURGE:
                free_layouts(spark, shop, manifest)
            done = ", ".join(f"{tally.objects} {name}" for name, tally in sorted(applied.outcomes.items()))
            _note(shop, manifest, done or "nothing", by)
    return applied


def _actor(shop: RegistryShop, manifest: Manifest) -> str:
    """
    Say who acts: the purge itself or, where somebody asked for a delete, whoever applies that.

    A plan may lie there until another one applies it, so the role is looked up here too.
    """
    if manifest.collector != PURGE or read_order(manifest.policy).wanted is None:
        return SYSTEM
    shop.records.require(shop.uid, Role.IMAGE_WRITER, current_user(), f"delete by run {manifest.run_id}")
    return current_user()


def _note(shop: RegistryShop, manifest: Manifest, what: str, by: str) -> None:
    """Write into the log what a run did (requirement 10.0); the outcomes have every image."""
    shop.records.note_purge(shop.uid, manifest.run_id, f"{manifest.collector}: {what}", by)
    wanted = None if manifest.collector != PURGE else read_order(manifest.policy).wanted
    for named in () if wanted is None else wanted.named:
        image = f"{named.repository}:{named.tag}" if named.tag else f"{named.repository}@{named.digest}"
        shop.records.note_image(shop.uid, by, image, f"delete (run {manifest.run_id}): {what}")


def free_layouts(spark: SparkSession, shop: RegistryShop, manifest: Manifest) -> None:
    """
    Free the bytes of what was removed from image layouts, which have no collector of their own.

    Blobs of the last day stay: whoever pushes an image writes its blobs before its manifest.
    """
    with shop.opened() as registry:
        if not isinstance(registry, OwnCollector):
            return
        plan = PLAN.read(spark, run_folder(shop.root, manifest.run_id).plan)
        for repository in planned_repositories(plan):
            with suppress(NotFound):
                registry.remove_unneeded_blobs(repository, system_clock() - _YOUNG)


def _target(shop: RegistryShop, manifest: Manifest, on_progress: OnProgress) -> Target:
    if manifest.collector == BIN:
        return BinTarget(lambda attempt: BinActor(shop.spec, attempt))
    order = read_order(manifest.policy)
    policy = order.policies.the(RECYCLE_BIN)

    def make_deleter(attempt: Attempt) -> Deleter:
        return ImageActor(shop.spec, attempt, policy, manifest.run_id, shop.clock())

    def verify(
        spark: SparkSession, planned: Manifest, repositories: list[str], folder: RunFolder
    ) -> DataFrame:
        return looker_of(shop, spark, on_progress).verdicts(order, planned.now, repositories, folder)

    return RegistryTarget(
        current=lambda: replace(order, policies=shop.records.policies(shop.uid)),
        verify=verify,
        make_deleter=make_deleter,
        check_running=lambda: order.check_running(shop.clock()),
    )
