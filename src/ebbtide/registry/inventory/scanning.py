"""
A scan of a registry: all its tags and manifests, with the times that Ebbtide records, as a new snapshot.

Anything that cannot be read stops the scan as a whole, and then there is no snapshot.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.errors import AlreadyExists, NotFound
from ebbtide.registry.base import Ability, Capabilities, RegistrySpec
from ebbtide.registry.client.opening import open_registry
from ebbtide.registry.inventory.asking import UntaggedLister
from ebbtide.registry.inventory.columns import EVENTS, WANTED
from ebbtide.registry.inventory.dating import dated_images, dated_tags
from ebbtide.registry.inventory.events import PUSH
from ebbtide.registry.inventory.listing import (
    Scope,
    Tagged,
    check_catalog,
    check_lost,
    check_tags,
    find_scope,
    find_tags,
)
from ebbtide.registry.inventory.manifests import KEY, Leads, find_manifests
from ebbtide.registry.inventory.snapshots import Snapshot, write_snapshot
from ebbtide.registry.inventory.steps import DEFAULT_LIMITS, Limits, Steps
from ebbtide.registry.inventory.warning import about_lists, about_referrers, about_tags, odd_kinds
from ebbtide.registry.tables import IMAGES, TAGS
from ebbtide.rules.images.policies import Policies
from ebbtide.rules.instant import Clock, system_clock
from ebbtide.tables.contracts import Contract
from ebbtide.tables.failures import own_errors
from ebbtide.tables.progress import OnProgress, no_progress, watch

_SCRATCH = "scratch"


@dataclass(frozen=True)
class Scanned:
    """A scan that is done."""

    snapshot: Snapshot
    folder: Path
    at: datetime
    """When the last answer had come: what is new in this scan has this time."""
    repositories: int
    tags: int
    images: int
    """Of the repositories that were scanned, as the tags are; the snapshot may hold others too."""
    read: int
    """How many manifests had to be read, because no earlier scan knew them."""
    gone: int
    """How many manifests that an earlier scan knew are not there any more."""
    warnings: tuple[str, ...] = ()


def scan(
    spark: SparkSession,
    spec: RegistrySpec,
    folder: Path,
    *,
    policies: Policies,
    earlier: Snapshot | None = None,
    events: DataFrame | None = None,
    repositories: Iterable[str] | None = None,
    allow_empty: bool = False,
    clock: Clock = system_clock,
    limits: Limits = DEFAULT_LIMITS,
    on_progress: OnProgress = no_progress,
) -> Scanned:
    """
    Scan the repositories of an address into a new folder, which is removed again if anything fails.

    `events` are what was told since the earlier scan, as the contract EVENTS; more do no harm. The clock is
    asked once, after the last answer has come, since what a scan has seen may have happened until then. What
    the earlier snapshot knows of repositories that are not scanned is taken over. A registry that has lost
    all its repositories or tags raises SafetyStop, unless that is allowed.
    """
    steps = Steps(spark, spec, folder / _SCRATCH, limits, on_progress)
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise AlreadyExists(
            f"there is a snapshot in {folder} already", fix="scan into a new folder"
        ) from None
    try:
        done = _scan(
            steps, folder, policies, earlier, events, repositories, allow_empty=allow_empty, clock=clock
        )
        shutil.rmtree(steps.scratch)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return done


@dataclass(frozen=True)
class _Before:
    """What was known before of the repositories that are scanned."""

    images: DataFrame
    tags: DataFrame
    image_count: int
    tag_count: int
    events: DataFrame


@dataclass(frozen=True)
class _Found:
    """What a scan has found; tags and manifests are those that are there."""

    tags: DataFrame
    manifests: DataFrame
    absent: frozenset[str]
    warnings: tuple[str, ...]
    held: frozenset[str]
    """Repositories in which something may need any manifest."""


def _scan(
    steps: Steps,
    folder: Path,
    policies: Policies,
    earlier: Snapshot | None,
    events: DataFrame | None,
    repositories: Iterable[str] | None,
    *,
    allow_empty: bool,
    clock: Clock,
) -> Scanned:
    scope = find_scope(steps.spec, earlier, repositories)
    if not allow_empty:
        check_catalog(scope, earlier)
    before = _before(steps, scope, earlier, events)
    tagged = find_tags(steps, scope, before.tags)
    if not allow_empty:
        check_tags(scope, tagged, before.tag_count)
    found = _found(steps, scope, before, tagged)
    now = clock()
    snapshot = _write(steps, folder, scope, policies, earlier, before, found, now)
    return _summary(scope, snapshot, folder, before, found, now)


def _before(steps: Steps, scope: Scope, earlier: Snapshot | None, events: DataFrame | None) -> _Before:
    """Gather what is known of the repositories in scope."""
    told = EVENTS.check(events) if events is not None else steps.empty(_ddl(EVENTS))
    names = steps.spark.createDataFrame([(name,) for name in scope.names], "repository string")
    told = told.join(names, "repository", "left_semi")
    if earlier is None:
        return _Before(IMAGES.read(steps.spark), TAGS.read(steps.spark), 0, 0, told)
    images, tags = scope.inside(earlier.images), scope.inside(earlier.tags)
    if scope.whole:
        return _Before(images, tags, earlier.image_count, earlier.tag_count, told)
    with own_errors():
        return _Before(images, tags, images.count(), tags.count(), told)


def _found(steps: Steps, scope: Scope, before: _Before, tagged: Tagged) -> _Found:
    """Find the manifests of all tags, and all others that can be known of."""
    there = [name for name in scope.names if name not in tagged.absent]
    able = _abilities(steps.spec, there)
    lists_all = able is not None and able.untagged_listing is Ability.YES
    asks = able is not None and able.referrers_api is Ability.YES and not lists_all
    pushed = before.events.where((f.col("action") == PUSH) & (f.col("digest") != "")).select(*KEY)
    wanted = tagged.rows.select(*KEY).unionByName(pushed)
    if lists_all:
        wanted = wanted.unionByName(_untagged(steps, there))
    leads = Leads(referrers=asks, odd_children=not lists_all)
    known = before.images if before.image_count else None
    manifests = find_manifests(steps, wanted, known, leads).where("not missing")
    tags = tagged.rows.join(manifests, KEY, "left_semi")
    check_lost(steps, tagged.rows.join(manifests, KEY, "left_anti"))
    odd = odd_kinds(manifests)
    warnings = (
        *about_lists(scope, tagged),
        *(about_tags(before.tags, tags) if before.tag_count else ()),
        *about_referrers(able),
        *map(str, odd),
    )
    held = frozenset(kind.repository for kind in odd if kind.may_need_manifests)
    return _Found(tags, manifests, tagged.absent, warnings, held)


def _abilities(spec: RegistrySpec, repositories: Sequence[str]) -> Capabilities | None:
    """Probe one repository that is there; what it can do its registry can."""
    if not repositories:
        return None
    with closing(open_registry(spec)) as registry:
        return registry.capabilities(repositories[0])


def _untagged(steps: Steps, repositories: Sequence[str]) -> DataFrame:
    rows = steps.spark.createDataFrame([(name,) for name in repositories], "repository string")
    dealt = rows.repartition(min(len(repositories), steps.tasks))
    return dealt.mapInArrow(UntaggedLister(steps.spec), WANTED)


def _write(
    steps: Steps,
    folder: Path,
    scope: Scope,
    policies: Policies,
    earlier: Snapshot | None,
    before: _Before,
    found: _Found,
    now: datetime,
) -> Snapshot:
    """Date all that was found, add what is known of other repositories, and write the snapshot."""
    scanned = {} if earlier is None else dict(earlier.scanned)
    tags = dated_tags(found.tags, before.tags, before.events, scanned=scanned, policies=policies, now=now)
    images = dated_images(
        found.manifests,
        found.tags,
        before.images,
        before.tags,
        before.events,
        held=found.held,
        policies=policies,
        now=now,
    )
    images, tags = IMAGES.check(images), TAGS.check(tags)
    if earlier is not None and not scope.whole:
        images = images.unionByName(scope.outside(earlier.images))
        tags = tags.unionByName(scope.outside(earlier.tags))
    gone = found.absent.intersection(scope.known)
    times = {name: at for name, at in scanned.items() if not scope.whole}
    times |= {name: now for name in scope.names if name not in gone}
    with watch(steps.spark, "writing the snapshot", steps.on_progress):
        return write_snapshot(steps.spark, folder, images, tags, times)


def _summary(
    scope: Scope, snapshot: Snapshot, folder: Path, before: _Before, found: _Found, now: datetime
) -> Scanned:
    """Count what was found; a repository that nobody has ever heard of is an error."""
    with own_errors():
        read = found.manifests.where("fresh").count()
        images = snapshot.image_count if scope.whole else found.manifests.count()
        tags = snapshot.tag_count if scope.whole else found.tags.count()
    if not scope.whole and not images and not before.image_count and found.absent:
        raise NotFound(f"the registry has no {', '.join(sorted(found.absent)[:3])}", fix="check the name")
    return Scanned(
        snapshot,
        folder,
        now,
        repositories=len(scope.names) - len(found.absent.intersection(scope.known)),
        tags=tags,
        images=images,
        read=read,
        gone=before.image_count - (images - read),
        warnings=found.warnings,
    )


def _ddl(contract: Contract) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in contract.schema)
