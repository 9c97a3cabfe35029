"""A scan on Spark: nothing that grows with the registry is ever in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ebbtide.engine.spark.failures import own_errors
from ebbtide.engine.spark.progress import watch
from ebbtide.targets.oci.documents import MEDIA_TYPES
from ebbtide.targets.oci.inventory.columns import (
    EVENTS,
    LISTED,
    LISTED_ARROW,
    RESOLVED,
    RESOLVED_ARROW,
    WANTED,
    WANTED_ARROW,
)
from ebbtide.targets.oci.inventory.dater import Dater
from ebbtide.targets.oci.inventory.dating import dated_images, dated_tags
from ebbtide.targets.oci.inventory.engine import KEY, Before, Counts, Found, Leads, Scope, Tagged
from ebbtide.targets.oci.inventory.events import PUSH
from ebbtide.targets.oci.inventory.manifests import find_manifests
from ebbtide.targets.oci.inventory.questions import what_a_tag_is, what_has_no_tag, which_tags_it_has
from ebbtide.targets.oci.inventory.snapshots import Snapshot, write_frames
from ebbtide.targets.oci.inventory.steps import Steps
from ebbtide.targets.oci.tables import IMAGES, TAGS


@dataclass(frozen=True)
class OnSpark:
    """Scans a registry of any size; see :class:`Engine`."""

    steps: Steps
    earlier: Snapshot | None
    events: Path | None

    def before(self, scope: Scope) -> Before[DataFrame]:
        """Gather what is known, where it is."""
        spark, earlier = self.steps.spark, self.earlier
        told = EVENTS.read(spark) if self.events is None else EVENTS.read(spark, self.events)
        names = spark.createDataFrame([(name,) for name in scope.names], "repository string")
        told = told.join(names, "repository", "left_semi")
        if earlier is None:
            return Before(IMAGES.read(spark), TAGS.read(spark), told, 0, 0)
        images, tags = _inside(scope, earlier.images), _inside(scope, earlier.tags)
        if scope.whole:
            return Before(images, tags, told, earlier.image_count, earlier.tag_count)
        with own_errors():
            return Before(images, tags, told, images.count(), tags.count())

    def tagged(self, scope: Scope, before: Before[DataFrame]) -> Tagged[DataFrame]:
        """List and ask on executors; both answers are written down, so that each is had once."""
        steps = self.steps
        answered = steps.listed(scope.names, which_tags_it_has, LISTED_ARROW, LISTED)
        listed = steps.written("listing tags", "listed", answered)
        tags = listed.where("tag is not null").withColumn("listed", f.lit(True))
        unlisted = before.tags.select("repository", "tag").join(tags, ["repository", "tag"], "left_anti")
        wanted = tags.unionByName(unlisted.withColumn("listed", f.lit(False)))
        answered = steps.asked(wanted, what_a_tag_is, RESOLVED_ARROW, RESOLVED)
        found = steps.written("asking what tags stand for", "resolved", answered)
        left_out = f.min(f.when(~f.col("listed"), f.struct("repository", "tag"))).alias("left_out")
        with own_errors():
            absent = frozenset(row.repository for row in listed.where("tag is null").collect())
            row = found.agg(f.count("*").alias("count"), left_out).collect()[0]
            some = bool(row["count"]) or not tags.isEmpty()
        return Tagged(found.drop("listed"), row["count"], absent, some, row.left_out and tuple(row.left_out))

    def found(self, before: Before[DataFrame], tagged: Tagged[DataFrame], leads: Leads) -> Found[DataFrame]:
        """Search for manifests round by round on executors."""
        pushed = before.events.where((f.col("action") == PUSH) & (f.col("digest") != "")).select(*KEY)
        untagged = self.steps.listed(leads.untagged_in, what_has_no_tag, WANTED_ARROW, WANTED)
        wanted = tagged.rows.select(*KEY).unionByName(pushed).unionByName(untagged)
        known = before.images if before.image_count else None
        manifests = find_manifests(self.steps, wanted, known, leads).where("not missing")
        lost = tagged.rows.join(manifests, KEY, "left_anti")
        still = self.steps.asked(lost, what_a_tag_is, RESOLVED_ARROW, RESOLVED)
        with own_errors():
            first = still.agg(f.min(f.struct("repository", "tag")).alias("name")).collect()[0].name
        tags = tagged.rows.join(manifests, KEY, "left_semi")
        return Found(tags, manifests, first and tuple(first))

    def counts(self, before: Before[DataFrame], found: Found[DataFrame]) -> Counts:
        """Count by repository and kind, and add up here: the names of repositories are here already."""
        read = f.count_if("fresh").alias("read")
        kinds = found.manifests.groupBy("repository", "media_type").agg(f.count("*").alias("all"), read)
        bare = before.tags.select("repository").distinct().join(found.tags, "repository", "left_anti")
        with own_errors():
            rows = kinds.collect()
            names = sorted(row.repository for row in bare.collect()) if before.tag_count else []
            tags = found.tags.count()
        odd = {
            (row.repository, row.media_type): row["all"] for row in rows if row.media_type not in MEDIA_TYPES
        }
        images, fresh = (sum(row[name] for row in rows) for name in ("all", "read"))
        return Counts(images, tags, fresh, odd, tuple(names))

    def write(
        self,
        folder: Path,
        scope: Scope,
        before: Before[DataFrame],
        found: Found[DataFrame],
        dater: Dater,
        times: Mapping[str, datetime],
    ) -> Snapshot:
        """Join, date and write on executors."""
        images, tags = dated_images(before, found, dater), dated_tags(before, found, dater)
        if self.earlier is not None and not scope.whole:
            outside = ~f.col("repository").isin(*scope.names)
            images = images.unionByName(self.earlier.images.where(outside))
            tags = tags.unionByName(self.earlier.tags.where(outside))
        with watch(self.steps.spark, "writing the snapshot", self.steps.on_progress):
            return write_frames(self.steps.spark, folder, images, tags, times)


def _inside(scope: Scope, table: DataFrame) -> DataFrame:
    """Give the rows of the repositories in scope."""
    return table if scope.whole else table.where(f.col("repository").isin(*scope.names))
