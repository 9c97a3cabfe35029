"""
Repositories and tags: what the registry lists, and what the tags stand for.

A list that leaves out what is there would make images look as if they had no tag. So what an earlier scan
knew and the list does not have is asked for by its name: if it answers, the list cannot be trusted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ebbtide.errors import BadInput, MetadataError, SafetyStop
from ebbtide.registry.base import RegistrySpec
from ebbtide.registry.client.address import LayoutPath, parse_address
from ebbtide.registry.client.layout_index import MARKER
from ebbtide.registry.client.opening import open_registry
from ebbtide.registry.inventory.asking import TagLister
from ebbtide.registry.inventory.columns import LISTED, RESOLVED, RESOLVED_ARROW
from ebbtide.registry.inventory.questions import what_a_tag_is
from ebbtide.registry.inventory.snapshots import Snapshot
from ebbtide.registry.inventory.steps import Steps
from ebbtide.registry.recycling.naming import is_bin
from ebbtide.tables.failures import own_errors


@dataclass(frozen=True)
class Scope:
    """Which repositories are scanned."""

    listed: tuple[str, ...]
    """Those that the registry lists, or that were named."""
    known: tuple[str, ...] = ()
    """Those that an earlier scan knew and the registry does not list any more."""
    whole: bool = True
    """Whether it is all of the registry; what else is known of it stays as it is."""

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.listed, *self.known)

    def inside(self, table: DataFrame) -> DataFrame:
        """Give the rows of these repositories."""
        return table if self.whole else table.where(f.col("repository").isin(*self.names))

    def outside(self, table: DataFrame) -> DataFrame:
        """Give the rows of all others."""
        return table.where(f.lit(False) if self.whole else ~f.col("repository").isin(*self.names))


@dataclass(frozen=True)
class Tagged:
    """The tags of a scan and what they stand for."""

    rows: DataFrame
    """Columns repository, tag and digest."""
    count: int
    absent: frozenset[str]
    """The repositories that have no list of tags."""


def find_scope(spec: RegistrySpec, earlier: Snapshot | None, repositories: Iterable[str] | None) -> Scope:
    """List the repositories of the address, or take those that are named; the bin's are left out."""
    whole = repositories is None and not _is_one(spec)
    with closing(open_registry(spec)) as registry:
        found = set(registry.repositories() if repositories is None else repositories)
    ordinary = tuple(sorted(name for name in found if not is_bin(name)))
    if not whole and not ordinary:
        raise BadInput("there is no repository to scan", why="the recycle bin is not scanned")
    known = sorted(earlier.scanned.keys() - found) if whole and earlier is not None else []
    return Scope(ordinary, tuple(known), whole)


def _is_one(spec: RegistrySpec) -> bool:
    """Tell whether an address means one repository."""
    address = parse_address(spec.url)
    if isinstance(address, LayoutPath):
        return (address.folder / MARKER).exists()
    return bool(address.repository)


def check_catalog(scope: Scope, earlier: Snapshot | None) -> None:
    """Stop if a registry that held images lists no repository: nobody empties one overnight."""
    if not scope.listed and earlier is not None and earlier.image_count:
        raise _doubt("the registry lists no repository at all", f"it held {earlier.image_count} manifests")


def find_tags(steps: Steps, scope: Scope, earlier: DataFrame) -> Tagged:
    """List the tags of each repository and ask what each stands for; `earlier` are the tags known before."""
    listed = steps.written("listing tags", "listed", _listed(steps, scope.names))
    tags = listed.where("tag is not null").withColumn("listed", f.lit(True))
    unlisted = earlier.select("repository", "tag").join(tags, ["repository", "tag"], "left_anti")
    wanted = tags.unionByName(unlisted.withColumn("listed", f.lit(False)))
    answered = steps.asked(wanted, what_a_tag_is, RESOLVED_ARROW, RESOLVED)
    found = steps.written("asking what tags stand for", "resolved", answered)
    with own_errors():
        absent = frozenset(row.repository for row in listed.where("tag is null").collect())
        count = _checked_count(found)
        if not count and not tags.isEmpty():
            raise MetadataError(
                "every tag that the registry lists is gone when it is asked for",
                why="something stands before it, or it is damaged",
                fix="check the address; nothing was recorded",
            )
    return Tagged(found.drop("listed"), count, absent)


def _listed(steps: Steps, names: Sequence[str]) -> DataFrame:
    if not names:
        return steps.empty(LISTED)
    rows = steps.spark.createDataFrame([(name,) for name in names], "repository string")
    return rows.repartition(min(len(names), steps.tasks)).mapInArrow(TagLister(steps.spec), LISTED)


def _checked_count(found: DataFrame) -> int:
    """Count tags; stop if one is there that its list does not have: others may be left out as well."""
    left_out = f.min(f.when(~f.col("listed"), f.struct("repository", "tag"))).alias("left_out")
    row = found.agg(f.count("*").alias("count"), left_out).collect()[0]
    if row.left_out is not None:
        raise MetadataError(
            f"the list of tags of {row.left_out.repository} is not whole",
            why=f"it leaves out {row.left_out.tag}, which is there",
            fix="scan again; if it stays so, the registry or a proxy before it cuts its lists short",
        )
    return int(row["count"])


def check_tags(scope: Scope, tagged: Tagged, earlier_count: int) -> None:
    """Stop if all tags that were known are gone, and no registry would do that by itself."""
    if tagged.count or not earlier_count:
        return
    if scope.whole:
        raise _doubt("the registry has no tag at all", f"it had {earlier_count}")
    if tagged.absent.issuperset(scope.names):
        raise _doubt(f"the registry does not know {', '.join(scope.names[:3])}", "it had tags")


def check_lost(steps: Steps, tags: DataFrame) -> None:
    """Stop if a tag is still there and its manifest is not: what that needs cannot be known."""
    with own_errors():
        still = steps.asked(tags, what_a_tag_is, RESOLVED_ARROW, RESOLVED).limit(1).collect()
    for row in still:
        raise MetadataError(
            f"the tag {row.repository} {row.tag} stands for a manifest that is not there",
            why="what the manifest needs cannot be known",
            fix="scan again, if it was just moved; else push the image again or delete the tag",
        )


def _doubt(what: str, why: str) -> SafetyStop:
    return SafetyStop(
        what,
        why=f"{why} at the last scan",
        fix="check the address and the rights of this user; if it is so, allow an empty registry",
    )
