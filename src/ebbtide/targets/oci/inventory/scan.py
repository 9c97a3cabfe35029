"""
A scan of a registry: all its tags and manifests, with the times that Ebbtide records, as a new snapshot.

Anything that cannot be read stops the whole scan, and then there is no snapshot. An incomplete list would
make images look untagged. So what an earlier scan knew and the list lacks is asked for by name: if it exists,
the list cannot be trusted. The steps are the same for every registry; the driver does them for small ones,
Spark for others.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from ebbtide.core.errors import AlreadyExists, BadInput, MetadataError, NotFound, SafetyStop
from ebbtide.core.instant import Clock, system_clock
from ebbtide.engine.spark.progress import OnProgress, no_progress
from ebbtide.engine.tables.row_counts import counted_rows
from ebbtide.targets.oci.bin.entry import is_bin
from ebbtide.targets.oci.client.address import repository_of
from ebbtide.targets.oci.client.registry import Ability, Capabilities, RegistrySpec, open_registry
from ebbtide.targets.oci.inventory.driver_scan import DriverScanner
from ebbtide.targets.oci.inventory.queries import KINDS_WITHOUT_CHILDREN
from ebbtide.targets.oci.inventory.scanner import (
    DEFAULT_LIMITS,
    Discovery,
    History,
    Limits,
    ScanCounts,
    Scanner,
    Scope,
    Table,
    TagListing,
    TooMany,
)
from ebbtide.targets.oci.inventory.snapshots import Snapshot
from ebbtide.targets.oci.inventory.spark_scan import SparkScanner, SparkSteps
from ebbtide.targets.oci.inventory.timestamps import Timestamps
from ebbtide.targets.oci.model import WHOLE, Adoption
from ebbtide.targets.oci.policies.policy import Policies


def find_scope(spec: RegistrySpec, earlier: Snapshot | None, repositories: Iterable[str] | None) -> Scope:
    """List the repositories of the address, or take the named ones; those of the bin are left out."""
    whole = repositories is None and not repository_of(spec.url)
    with closing(open_registry(spec)) as registry:
        found = set(registry.repositories() if repositories is None else repositories)
    ordinary = tuple(sorted(name for name in found if not is_bin(name)))
    if not whole and not ordinary:
        raise BadInput("there is no repository to scan", why="the recycle bin is not scanned")
    known = sorted(earlier.scanned.keys() - found) if whole and earlier is not None else []
    return Scope(ordinary, tuple(known), whole)


def check_catalog(scope: Scope, earlier: Snapshot | None) -> None:
    """Stop if a registry that held images lists no repository: registries are not emptied overnight."""
    if not scope.listed and earlier is not None and earlier.image_count:
        raise _doubt("the registry lists no repository at all", f"it held {earlier.image_count} manifests")


def check_lists(listing: TagListing[Any]) -> None:
    """Stop if a tag exists that its list lacks, for others may be missing too, or if no listed tag exists."""
    if listing.left_out is not None:
        repository, tag = listing.left_out
        raise MetadataError(
            f"the list of tags of {repository} is not whole",
            why=f"it leaves out {tag}, which is there",
            fix="scan again; if it stays so, the registry or a proxy before it cuts its lists short",
        )
    if listing.listed and not listing.count:
        raise MetadataError(
            "every tag that the registry lists is gone when it is asked for",
            why="a proxy answers instead of it, or it is damaged",
            fix="check the address; nothing was recorded",
        )


def check_tags(scope: Scope, listing: TagListing[Any], earlier_count: int) -> None:
    """Stop if all known tags are gone, which no registry would do by itself."""
    if listing.count or not earlier_count:
        return
    if scope.whole:
        raise _doubt("the registry has no tag at all", f"it had {earlier_count}")
    if listing.absent.issuperset(scope.names):
        raise _doubt(f"the registry does not know {', '.join(scope.names[:3])}", "it had tags")


def check_manifests(lost: tuple[str, str] | None) -> None:
    """Stop if a tag exists and its manifest does not: what the manifest needs cannot be known."""
    if lost is not None:
        repository, tag = lost
        raise MetadataError(
            f"the tag {repository} {tag} stands for a manifest that is not there",
            why="what the manifest needs cannot be known",
            fix="scan again, if it was just moved; else push the image again or delete the tag",
        )


def _doubt(what: str, why: str) -> SafetyStop:
    return SafetyStop(
        what,
        why=f"{why} at the last scan",
        fix="check the address and the rights of this user; if it is so, allow an empty registry",
    )


@dataclass(frozen=True)
class UnknownKind:
    """Manifests of a repository with a kind that Ebbtide does not understand."""

    repository: str
    media_type: str
    count: int

    @property
    def may_need_manifests(self) -> bool:
        """Return True if they may point at unknown manifests, as an index does."""
        return self.media_type not in KINDS_WITHOUT_CHILDREN

    def __str__(self) -> str:
        """Describe them, and the consequence."""
        what = f"{self.count} of the manifests of {self.repository} are of the kind {self.media_type!r}"
        if self.may_need_manifests:
            return f"{what}, which Ebbtide does not understand: no manifest of this repository is deleted"
        return f"{what}, which Ebbtide does not understand: they are not deleted"


def unknown_kinds(counts: Mapping[tuple[str, str], int]) -> list[UnknownKind]:
    """Return the kinds that are not understood, by repository and kind."""
    return [UnknownKind(*name, count) for name, count in sorted(counts.items())]


def listing_warnings(scope: Scope, listing: TagListing[Any]) -> Iterator[str]:
    """Warn about repositories that are known and not listed."""
    for name in scope.known:
        gone = name in listing.absent
        yield f"{name} is gone" if gone else f"{name} is there, but the registry does not list it any more"


def tag_warnings(repositories: Sequence[str]) -> Iterator[str]:
    """Warn about repositories that have lost all their tags."""
    yield from (f"{name} had tags at the last scan and has none now" for name in repositories)


def referrer_warnings(able: Capabilities | None) -> Iterator[str]:
    """Warn that new signatures may not have been seen."""
    if able is not None and able.referrers_api in (Ability.DENIED, Ability.UNKNOWN):
        yield "the registry does not say what refers to an image: new signatures without a tag are not seen"


_SCRATCH = "scratch"


@dataclass(frozen=True)
class CompletedScan:
    """A completed scan."""

    snapshot: Snapshot
    folder: Path
    at: datetime
    """When the last answer had arrived: what is new in this scan has this time."""
    repositories: int
    tags: int
    images: int
    """Of the scanned repositories, like the tags; the snapshot may contain others too."""
    read: int
    """How many manifests had to be read, because no earlier scan knew them."""
    gone: int
    """How many manifests that an earlier scan knew no longer exist."""
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
) -> CompletedScan:
    """
    Scan the repositories of an address into a new folder, which is removed again if anything fails.

    `events` is a folder with the table EVENTS: the notifications since the earlier scan; older ones do no
    harm. The clock is read once, after the last answer, since what a scan sees may have happened until then.
    Rows of the earlier snapshot about other repositories are kept. A registry that has lost all its
    repositories or tags raises SafetyStop, unless that is allowed. Policies are assigned in adopted
    repositories; without `adoption` in all.
    """
    named = None if repositories is None else tuple(repositories)
    scan_run = _ScanRun(spec, folder, policies, earlier, named, clock, adoption, allow_empty=allow_empty)
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise AlreadyExists(
            f"there is a snapshot in {folder} already", fix="scan into a new folder"
        ) from None
    try:
        if _fits_driver(earlier, events, limits):
            try:
                with closing(open_registry(spec)) as registry:
                    return scan_run.run(DriverScanner(spark, registry, earlier, events, limits, on_progress))
            except TooMany:
                pass  # no answer is reused: answers of two moments must not be mixed
        steps = SparkSteps(spark, spec, folder / _SCRATCH, limits, on_progress)
        done = scan_run.run(SparkScanner(steps, earlier, events))
        shutil.rmtree(steps.scratch)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return done


def _fits_driver(earlier: Snapshot | None, events: Path | None, limits: Limits) -> bool:
    """Return True if what is known already is little enough for the driver."""
    known = 0 if earlier is None else earlier.image_count + earlier.tag_count
    return max(known, 0 if events is None else counted_rows(events)) <= limits.few


@dataclass(frozen=True)
class _ScanRun:
    """What is to be scanned, and the steps; the tables are those of the scanner."""

    spec: RegistrySpec
    folder: Path
    policies: Policies
    earlier: Snapshot | None
    repositories: tuple[str, ...] | None
    clock: Clock
    adoption: Adoption | None
    allow_empty: bool

    def run(self, scanner: Scanner[Table]) -> CompletedScan:
        """Do the steps, one after the other."""
        scope = find_scope(self.spec, self.earlier, self.repositories)
        if not self.allow_empty:
            check_catalog(scope, self.earlier)
        history = scanner.history(scope)
        listing = scanner.list_tags(scope, history)
        check_lists(listing)
        if not self.allow_empty:
            check_tags(scope, listing, history.tag_count)
        there = tuple(name for name in scope.names if name not in listing.absent)
        able = self._abilities(there)
        found = scanner.find_manifests(history, listing, _discovery(able, there))
        check_manifests(found.lost)
        counts = scanner.counts(history, found)
        _check_known(scope, history, listing, counts)
        odd = unknown_kinds(counts.kinds)
        now = self.clock()
        scanned = {} if self.earlier is None else dict(self.earlier.scanned)
        held = frozenset(kind.repository for kind in odd if kind.may_need_manifests)
        timestamps = Timestamps(self.policies, scanned, held, now, self._adopted(scope))
        gone = listing.absent.intersection(scope.known)
        # A copy: the time of this scan must not count as the previous scan of what it found.
        times = {} if scope.whole else dict(scanned)
        times |= {name: now for name in scope.names if name not in gone}
        snapshot = scanner.write(self.folder, scope, history, found, timestamps, times)
        return CompletedScan(
            snapshot,
            self.folder,
            now,
            repositories=len(scope.names) - len(gone),
            tags=counts.tags,
            images=counts.images,
            read=counts.read,
            gone=history.image_count - (counts.images - counts.read),
            warnings=(
                *listing_warnings(scope, listing),
                *tag_warnings(counts.without_tags),
                *referrer_warnings(able),
                *map(str, odd),
            ),
        )

    def _adopted(self, scope: Scope) -> frozenset[str] | None:
        if self.adoption is None or self.adoption.covers(WHOLE):
            return None
        return frozenset(filter(self.adoption.covers, scope.names))

    def _abilities(self, repositories: tuple[str, ...]) -> Capabilities | None:
        """Probe one existing repository; the whole registry supports what it supports."""
        if not repositories:
            return None
        with closing(open_registry(self.spec)) as registry:
            return registry.capabilities(repositories[0])


def _discovery(able: Capabilities | None, there: tuple[str, ...]) -> Discovery:
    """Return how untagged manifests can be found."""
    if able is None:
        return Discovery()
    if able.untagged_listing is Ability.YES:
        return Discovery(untagged_in=there)
    return Discovery(referrers=able.referrers_api is Ability.YES)


def _check_known(
    scope: Scope, history: History[Table], listing: TagListing[Table], counts: ScanCounts
) -> None:
    """Stop if a named repository is unknown to the registry and to earlier scans."""
    if not scope.whole and not counts.images and not history.image_count and listing.absent:
        names = ", ".join(sorted(listing.absent)[:3])
        raise NotFound(f"the registry has no {names}", fix="check the name")
