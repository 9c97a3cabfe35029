"""
A scan of a registry: all its tags and manifests, with the times that Ebbtide records, as a new snapshot.

Anything that cannot be read stops the scan as a whole, and then there is no snapshot. The steps are the same
for any registry; where there are few images the driver does them, else Spark.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pyspark.sql import SparkSession

from ebbtide.core.errors import AlreadyExists, NotFound
from ebbtide.core.instant import Clock, system_clock
from ebbtide.engine.spark.progress import OnProgress, no_progress
from ebbtide.engine.tables.row_counts import counted_rows
from ebbtide.targets.oci.adoption import WHOLE, Adoption
from ebbtide.targets.oci.base import Ability, Capabilities, RegistrySpec
from ebbtide.targets.oci.client.opening import open_registry
from ebbtide.targets.oci.inventory.dater import Dater
from ebbtide.targets.oci.inventory.engine import Before, Counts, Engine, Leads, Scope, Table, Tagged, TooMany
from ebbtide.targets.oci.inventory.listing import (
    check_catalog,
    check_lists,
    check_lost,
    check_tags,
    find_scope,
)
from ebbtide.targets.oci.inventory.on_driver import OnDriver
from ebbtide.targets.oci.inventory.on_spark import OnSpark
from ebbtide.targets.oci.inventory.snapshots import Snapshot
from ebbtide.targets.oci.inventory.steps import DEFAULT_LIMITS, Limits, Steps
from ebbtide.targets.oci.inventory.warning import about_lists, about_referrers, about_tags, odd_kinds
from ebbtide.targets.oci.policies.policy import Policies

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
    events: Path | None = None,
    repositories: Iterable[str] | None = None,
    allow_empty: bool = False,
    adoption: Adoption | None = None,
    clock: Clock = system_clock,
    limits: Limits = DEFAULT_LIMITS,
    on_progress: OnProgress = no_progress,
) -> Scanned:
    """
    Scan the repositories of an address into a new folder, which is removed again if anything fails.

    `events` is a folder with the table EVENTS: what was told since the earlier scan; more does no harm. The
    clock is asked once, after the last answer has come, since what a scan has seen may have happened until
    then. What the earlier snapshot knows of repositories that are not scanned is taken over. A registry that
    has lost all its repositories or tags raises SafetyStop, unless that is allowed. Policies are assigned in
    repositories that were adopted; without `adoption` that is all of them.
    """
    named = None if repositories is None else tuple(repositories)
    errand = _Errand(spec, folder, policies, earlier, named, clock, adoption, allow_empty=allow_empty)
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise AlreadyExists(
            f"there is a snapshot in {folder} already", fix="scan into a new folder"
        ) from None
    try:
        if _are_few(earlier, events, limits):
            try:
                with closing(open_registry(spec)) as registry:
                    return errand.run(OnDriver(spark, registry, earlier, events, limits, on_progress))
            except TooMany:
                pass  # nothing of it is used: what is asked now must not be mixed with what was asked before
        steps = Steps(spark, spec, folder / _SCRATCH, limits, on_progress)
        done = errand.run(OnSpark(steps, earlier, events))
        shutil.rmtree(steps.scratch)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return done


def _are_few(earlier: Snapshot | None, events: Path | None, limits: Limits) -> bool:
    """Tell whether what is known before is little enough for the driver."""
    known = 0 if earlier is None else earlier.image_count + earlier.tag_count
    return max(known, 0 if events is None else counted_rows(events)) <= limits.few


@dataclass(frozen=True)
class _Errand:
    """What is to be scanned, and the steps of it; the tables are those of the engine."""

    spec: RegistrySpec
    folder: Path
    policies: Policies
    earlier: Snapshot | None
    repositories: tuple[str, ...] | None
    clock: Clock
    adoption: Adoption | None
    allow_empty: bool

    def run(self, engine: Engine[Table]) -> Scanned:
        """Do the steps, one after the other."""
        scope = find_scope(self.spec, self.earlier, self.repositories)
        if not self.allow_empty:
            check_catalog(scope, self.earlier)
        before = engine.before(scope)
        tagged = engine.tagged(scope, before)
        check_lists(tagged)
        if not self.allow_empty:
            check_tags(scope, tagged, before.tag_count)
        there = tuple(name for name in scope.names if name not in tagged.absent)
        able = self._abilities(there)
        found = engine.found(before, tagged, _leads(able, there))
        check_lost(found.lost)
        counts = engine.counts(before, found)
        _check_known(scope, before, tagged, counts)
        odd = odd_kinds(counts.kinds)
        now = self.clock()
        scanned = {} if self.earlier is None else dict(self.earlier.scanned)
        held = frozenset(kind.repository for kind in odd if kind.may_need_manifests)
        dater = Dater(self.policies, scanned, held, now, self._adopted(scope))
        gone = tagged.absent.intersection(scope.known)
        # A copy: what this scan notes of itself must not date what it has found.
        times = {} if scope.whole else dict(scanned)
        times |= {name: now for name in scope.names if name not in gone}
        snapshot = engine.write(self.folder, scope, before, found, dater, times)
        return Scanned(
            snapshot,
            self.folder,
            now,
            repositories=len(scope.names) - len(gone),
            tags=counts.tags,
            images=counts.images,
            read=counts.read,
            gone=before.image_count - (counts.images - counts.read),
            warnings=(
                *about_lists(scope, tagged),
                *about_tags(counts.without_tags),
                *about_referrers(able),
                *map(str, odd),
            ),
        )

    def _adopted(self, scope: Scope) -> frozenset[str] | None:
        if self.adoption is None or self.adoption.covers(WHOLE):
            return None
        return frozenset(filter(self.adoption.covers, scope.names))

    def _abilities(self, repositories: tuple[str, ...]) -> Capabilities | None:
        """Probe one repository that is there; what it can do its registry can."""
        if not repositories:
            return None
        with closing(open_registry(self.spec)) as registry:
            return registry.capabilities(repositories[0])


def _leads(able: Capabilities | None, there: tuple[str, ...]) -> Leads:
    """Say how manifests without a tag can be found."""
    if able is None:
        return Leads()
    if able.untagged_listing is Ability.YES:
        return Leads(untagged_in=there)
    return Leads(referrers=able.referrers_api is Ability.YES)


def _check_known(scope: Scope, before: Before[Table], tagged: Tagged[Table], counts: Counts) -> None:
    """Stop if nobody has ever heard of a repository that was asked for."""
    if not scope.whole and not counts.images and not before.image_count and tagged.absent:
        names = ", ".join(sorted(tagged.absent)[:3])
        raise NotFound(f"the registry has no {names}", fix="check the name")
