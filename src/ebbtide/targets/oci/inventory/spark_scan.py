"""
A scan on Spark: nothing that grows with the registry is ever collected in one place.

Manifests are searched round by round, from those that tags stand for to all that they reference. They never
change, so one that is known from an earlier scan is not read again. Known manifests that nothing references
any more are checked for existence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.engine.spark.failures import own_errors
from ebbtide.engine.spark.progress import OnProgress, no_progress, watch
from ebbtide.engine.tables.contracts import Contract
from ebbtide.engine.tables.counted import read_counted, write_counted
from ebbtide.targets.oci.client.manifest import MEDIA_TYPES
from ebbtide.targets.oci.client.registry import RegistrySpec
from ebbtide.targets.oci.inventory.events import PUSH
from ebbtide.targets.oci.inventory.queries import (
    LISTED_TAGS,
    LISTED_TAGS_ARROW,
    MANIFEST_NAMES,
    MANIFEST_NAMES_ARROW,
    MANIFESTS,
    MANIFESTS_ARROW,
    RESOLVED_TAGS,
    RESOLVED_TAGS_ARROW,
    ListingTask,
    Query,
    QueryTask,
    find_manifest,
    list_referrers,
    list_tags,
    list_untagged,
    read_manifest,
    resolve_tag,
)
from ebbtide.targets.oci.inventory.scanner import (
    DEFAULT_LIMITS,
    KEY,
    Discovery,
    Findings,
    History,
    Limits,
    ScanCounts,
    Scope,
    TagListing,
)
from ebbtide.targets.oci.inventory.snapshots import Snapshot, write_snapshot_tables
from ebbtide.targets.oci.inventory.timestamps import (
    IMAGE_HISTORY,
    IMAGES_ARROW,
    TAG_HISTORY,
    TAGS_ARROW,
    Timestamps,
)
from ebbtide.targets.oci.tables import EVENTS, IMAGES, TAGS


@dataclass(frozen=True)
class SparkSteps:
    """Runs the steps of one scan; answers of a registry are written to disk, so that it is asked once."""

    spark: SparkSession
    spec: RegistrySpec
    scratch: Path
    limits: Limits = DEFAULT_LIMITS
    on_progress: OnProgress = no_progress

    @property
    def tasks(self) -> int:
        """The number of tasks for queries."""
        return self.limits.tasks_a_core * self.spark.sparkContext.defaultParallelism

    def asked(self, rows: DataFrame, query: Query, answers: Any, schema: str) -> DataFrame:
        """Run a query for each row, distributed evenly over the tasks; lazy until written."""
        asker = QueryTask(self.spec, query, answers, self.limits.threads)
        return rows.repartition(self.tasks).mapInArrow(asker, schema)

    def listed(self, repositories: Sequence[str], query: Query, answers: Any, schema: str) -> DataFrame:
        """Run a listing query for each repository; lazy until written."""
        if not repositories:
            return self.empty(schema)
        rows = self.spark.createDataFrame([(name,) for name in repositories], "repository string")
        dealt = rows.repartition(min(len(repositories), self.tasks))
        return dealt.mapInArrow(ListingTask(self.spec, query, answers), schema)

    def written(self, step: str, name: str, rows: DataFrame) -> DataFrame:
        """Compute rows, write them to a file, and return them as read back."""
        place = self.scratch / name
        with own_errors(), watch(self.spark, step, self.on_progress):
            write_counted(rows, place)
        return read_counted(self.spark, rows.schema, place)

    def empty(self, schema: str) -> DataFrame:
        """Return a table without rows."""
        return self.spark.createDataFrame([], schema)


@dataclass(frozen=True)
class _Search:
    """What was found so far."""

    steps: SparkSteps
    discovery: Discovery
    known: DataFrame
    done: DataFrame
    number: int = 0


def search_manifests(
    steps: SparkSteps, wanted: DataFrame, known: DataFrame | None, discovery: Discovery
) -> DataFrame:
    """
    Find all manifests, starting from the wanted ones; return rows as in MANIFESTS, including missing ones.

    `known` are the images of an earlier scan, if there was one.
    """
    if known is None:
        return _follow(_Search(steps, discovery, steps.empty(MANIFESTS), steps.empty(MANIFESTS)), wanted).done
    before = known.select(
        *KEY,
        "media_type",
        "size",
        "children",
        "subject",
        "blobs",
        f.lit(False).alias("missing"),
        f.lit(False).alias("fresh"),
    )
    search = _follow(_Search(steps, discovery, before, steps.empty(MANIFESTS)), wanted)
    rest = before.join(search.done, KEY, "left_anti")
    asked = steps.asked(rest.select(*KEY), find_manifest, MANIFEST_NAMES_ARROW, MANIFEST_NAMES)
    there = steps.written("asking what is still there", "still-there", asked)
    # A missing manifest is finished: an index that lists it must not bring it back.
    gone = rest.join(there, KEY, "left_anti").withColumn("missing", f.lit(True))
    return _follow(replace(search, done=search.done.unionByName(gone)), there).done


def _follow(search: _Search, wanted: DataFrame) -> _Search:
    """Find the wanted manifests, then those that they reference, until there are no new ones."""
    steps = search.steps
    while True:
        name = f"{search.number:03d}"
        fresh = wanted.select(*KEY).distinct().join(search.done, KEY, "left_anti")
        wanted = steps.written("looking for manifests", f"wanted-{name}", fresh)
        with own_errors():
            if wanted.isEmpty():
                return replace(search, number=search.number + 1)
        unknown = wanted.join(search.known, KEY, "left_anti")
        read = steps.asked(unknown, read_manifest, MANIFESTS_ARROW, MANIFESTS)
        taken = search.known.join(wanted, KEY, "left_semi")
        found = steps.written("reading manifests", f"found-{name}", taken.unionByName(read))
        search = replace(search, done=search.done.unionByName(found), number=search.number + 1)
        wanted = _next_manifests(search, found.where("not missing"))


def _next_manifests(search: _Search, found: DataFrame) -> DataFrame:
    """Return what manifests reference: children, and their known or listed referrers."""
    listed = (
        found if search.discovery.follow_odd_children else found.withColumn("children", _children_not_blobs())
    )
    children = listed.select("repository", f.explode("children").alias("digest"))
    subjects = found.select("repository", f.col("digest").alias("subject"))
    known = search.known.where("subject is not null").join(subjects, ["repository", "subject"], "left_semi")
    referenced = children.unionByName(known.select(*KEY))
    if not search.discovery.referrers:
        return referenced
    asked = search.steps.asked(found.select(*KEY), list_referrers, MANIFEST_NAMES_ARROW, MANIFEST_NAMES)
    return referenced.unionByName(asked)


def _children_not_blobs() -> Column:
    """Return the children that are not also among the blobs."""
    return f.array_except("children", f.transform("blobs", lambda blob: blob["digest"]))


def timestamped_tags(
    history: History[DataFrame], found: Findings[DataFrame], timestamps: Timestamps
) -> DataFrame:
    """Return the table TAGS for the tags that were found."""
    name = ["repository", "tag"]
    known = history.tags.select(*name, f.struct(*TAG_HISTORY).alias("before"))
    pushes = history.events.where((f.col("action") == PUSH) & (f.col("tag") != ""))
    newest = pushes.groupBy(*name).agg(f.max(f.struct("at", "digest")).alias("push"))
    rows = found.tags.join(known, name, "left").join(newest, name, "left")
    told = f.when(f.col("push.digest") == f.col("digest"), f.col("push.at"))
    dated = (
        rows.withColumn("pushed", told).drop("push").mapInArrow(timestamps.tags, _schema(TAGS, TAGS_ARROW))
    )
    return TAGS.check(dated)


def timestamped_images(
    history: History[DataFrame], found: Findings[DataFrame], timestamps: Timestamps
) -> DataFrame:
    """Return the table IMAGES for the manifests that exist."""
    known = history.images.select(*KEY, f.struct(*IMAGE_HISTORY).alias("before"))
    rows = found.manifests.join(_manifest_states(history, found), KEY, "left").join(known, KEY, "left")
    return IMAGES.check(rows.mapInArrow(timestamps.images, _schema(IMAGES, IMAGES_ARROW)))


def _manifest_states(history: History[DataFrame], found: Findings[DataFrame]) -> DataFrame:
    """Return for each manifest whether it has a tag, had one, is referenced, and its newest push."""
    manifests = found.manifests
    subjects = manifests.select("repository", f.col("digest").alias("subject"))
    rows = [
        (found.tags, "tagged"),
        (history.tags, "was_tagged"),
        (manifests.select("repository", f.explode("children").alias("digest")), "referenced"),
        (manifests.join(subjects, ["repository", "subject"], "left_semi"), "referenced"),
    ]
    names = ("tagged", "was_tagged", "referenced")
    parts = [
        part.select(*KEY, *[f.lit(name == fact).alias(name) for name in names], _no_time().alias("pushed"))
        for part, fact in rows
    ]
    pushes = history.events.where(f.col("action") == PUSH).withColumn("pushed", f.col("at"))
    parts.append(pushes.select(*KEY, *[f.lit(False).alias(name) for name in names], "pushed"))
    together = parts[0]
    for part in parts[1:]:
        together = together.unionByName(part)
    return together.groupBy(*KEY).agg(*[f.max(name).alias(name) for name in (*names, "pushed")])


def _no_time() -> Column:
    return f.lit(None).cast("timestamp")


def _schema(contract: Contract, columns: Any) -> str:
    """Return the columns that Timestamps makes; a scan leaves the others empty."""
    return ", ".join(f"{name} {contract.schema[name].dataType.simpleString()}" for name in columns.names)


@dataclass(frozen=True)
class SparkScanner:
    """Scans a registry of any size; see :class:`Scanner`."""

    steps: SparkSteps
    earlier: Snapshot | None
    events: Path | None

    def history(self, scope: Scope) -> History[DataFrame]:
        """Return the tables of the previous snapshot and the notifications, restricted to the scope."""
        spark, earlier = self.steps.spark, self.earlier
        told = EVENTS.read(spark) if self.events is None else EVENTS.read(spark, self.events)
        names = spark.createDataFrame([(name,) for name in scope.names], "repository string")
        told = told.join(names, "repository", "left_semi")
        if earlier is None:
            return History(IMAGES.read(spark), TAGS.read(spark), told, 0, 0)
        images, tags = _in_scope(scope, earlier.images), _in_scope(scope, earlier.tags)
        if scope.whole:
            return History(images, tags, told, earlier.image_count, earlier.tag_count)
        with own_errors():
            return History(images, tags, told, images.count(), tags.count())

    def list_tags(self, scope: Scope, history: History[DataFrame]) -> TagListing[DataFrame]:
        """List and resolve on executors; both answers are written to disk, so that each is asked once."""
        steps = self.steps
        answered = steps.listed(scope.names, list_tags, LISTED_TAGS_ARROW, LISTED_TAGS)
        listed = steps.written("listing tags", "listed", answered)
        tags = listed.where("tag is not null").withColumn("listed", f.lit(True))
        unlisted = history.tags.select("repository", "tag").join(tags, ["repository", "tag"], "left_anti")
        wanted = tags.unionByName(unlisted.withColumn("listed", f.lit(False)))
        answered = steps.asked(wanted, resolve_tag, RESOLVED_TAGS_ARROW, RESOLVED_TAGS)
        found = steps.written("asking what tags stand for", "resolved", answered)
        left_out = f.min(f.when(~f.col("listed"), f.struct("repository", "tag"))).alias("left_out")
        with own_errors():
            absent = frozenset(row.repository for row in listed.where("tag is null").collect())
            row = found.agg(f.count("*").alias("count"), left_out).collect()[0]
            some = bool(row["count"]) or not tags.isEmpty()
        return TagListing(
            found.drop("listed"), row["count"], absent, some, row.left_out and tuple(row.left_out)
        )

    def find_manifests(
        self, history: History[DataFrame], listing: TagListing[DataFrame], discovery: Discovery
    ) -> Findings[DataFrame]:
        """Search for manifests round by round on executors."""
        pushed = history.events.where((f.col("action") == PUSH) & (f.col("digest") != "")).select(*KEY)
        untagged = self.steps.listed(
            discovery.untagged_in, list_untagged, MANIFEST_NAMES_ARROW, MANIFEST_NAMES
        )
        wanted = listing.rows.select(*KEY).unionByName(pushed).unionByName(untagged)
        known = history.images if history.image_count else None
        manifests = search_manifests(self.steps, wanted, known, discovery).where("not missing")
        lost = listing.rows.join(manifests, KEY, "left_anti")
        still = self.steps.asked(lost, resolve_tag, RESOLVED_TAGS_ARROW, RESOLVED_TAGS)
        with own_errors():
            first = still.agg(f.min(f.struct("repository", "tag")).alias("name")).collect()[0].name
        tags = listing.rows.join(manifests, KEY, "left_semi")
        return Findings(tags, manifests, first and tuple(first))

    def counts(self, history: History[DataFrame], found: Findings[DataFrame]) -> ScanCounts:
        """Count by repository and kind, and sum on the driver, which has the names of repositories anyway."""
        read = f.count_if("fresh").alias("read")
        kinds = found.manifests.groupBy("repository", "media_type").agg(f.count("*").alias("all"), read)
        bare = history.tags.select("repository").distinct().join(found.tags, "repository", "left_anti")
        with own_errors():
            rows = kinds.collect()
            names = sorted(row.repository for row in bare.collect()) if history.tag_count else []
            tags = found.tags.count()
        odd = {
            (row.repository, row.media_type): row["all"] for row in rows if row.media_type not in MEDIA_TYPES
        }
        images, fresh = (sum(row[name] for row in rows) for name in ("all", "read"))
        return ScanCounts(images, tags, fresh, odd, tuple(names))

    def write(
        self,
        folder: Path,
        scope: Scope,
        history: History[DataFrame],
        found: Findings[DataFrame],
        timestamps: Timestamps,
        times: Mapping[str, datetime],
    ) -> Snapshot:
        """Join, add times and write on executors."""
        images, tags = (
            timestamped_images(history, found, timestamps),
            timestamped_tags(history, found, timestamps),
        )
        if self.earlier is not None and not scope.whole:
            outside = ~f.col("repository").isin(*scope.names)
            images = images.unionByName(self.earlier.images.where(outside))
            tags = tags.unionByName(self.earlier.tags.where(outside))
        with watch(self.steps.spark, "writing the snapshot", self.steps.on_progress):
            return write_snapshot_tables(self.steps.spark, folder, images, tags, times)


def _in_scope(scope: Scope, table: DataFrame) -> DataFrame:
    """Return the rows of the repositories in scope."""
    return table if scope.whole else table.where(f.col("repository").isin(*scope.names))
