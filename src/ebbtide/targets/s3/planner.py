"""
The planner of a bucket: reads its inventory, evaluates the rules, and writes a verdict per item.

The address of a verdict is the key. Batches and tasks are divided between addresses, so that one task has all
planned versions of a key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.core.decision import HoldReason
from ebbtide.core.instant import NEVER, to_micros
from ebbtide.engine.collector import Collected
from ebbtide.engine.removed_items import RemovedItems
from ebbtide.engine.run_folder import OnStep, RunFolder, no_step
from ebbtide.engine.spark.progress import OnProgress, no_progress, watch
from ebbtide.engine.summary import Part
from ebbtide.engine.tables.contracts import VERDICTS, condition
from ebbtide.engine.tables.digest import address_hash
from ebbtide.engine.verdicts import TOUCHED, UNTOUCHED, Layers
from ebbtide.storage.store import StoreSpec
from ebbtide.targets.s3.bin import with_restored
from ebbtide.targets.s3.context import EffectiveRules
from ebbtide.targets.s3.evaluation.key_intervals import BucketSetting
from ebbtide.targets.s3.evaluation.verdicts import (
    REPLACES,
    RESTORED_UNTIL,
    evaluate,
    replaced_warning,
    with_replaced,
)
from ebbtide.targets.s3.inventory.listing import list_bucket
from ebbtide.targets.s3.inventory.report import read_report
from ebbtide.targets.s3.model import (
    BIN_ROOT,
    UPLOAD,
    Action,
    Hold,
    Protected,
    Versioning,
    bucket_name,
    frees_bytes,
)
from ebbtide.targets.s3.nested import excluded_locations, lakes_in_inventory, merge_protected
from ebbtide.targets.s3.rules.warnings import configuration_warnings


def _parts(bucket: str) -> tuple[Part, ...]:
    """
    Return the parts that the breaker measures: everything that was listed, and the current versions alone.

    There are often many old versions, so that a plan for all current objects would be a small part of the
    whole. Delete markers and uploads have no ETag.
    """
    reach = f"that the rules of s3://{bucket} can reach"
    current = "condition.is_latest and condition.etag is not null"
    return Part(f"versions, delete markers and uploads {reach}"), Part(f"current versions {reach}", current)


@dataclass(frozen=True)
class BucketPlanner:
    """Plans one run over a bucket; the caller holds its lock."""

    spark: SparkSession
    spec: StoreSpec
    rules: EffectiveRules
    now: datetime
    report: str | None = None
    """The S3 Inventory report to read; None to list the bucket."""
    on_progress: OnProgress = no_progress
    on_step: OnStep = no_step
    removed: RemovedItems = field(default_factory=RemovedItems)
    """The removed items; those that were restored from the bin are held."""

    def collect(self, folder: RunFolder) -> Collected:
        """Read the inventory, evaluate the rules, and write a verdict per item."""
        versions, warnings = self.inventory(folder)
        self.on_step("bucket listed")
        protected = merge_protected(self.rules.protected, lakes_in_inventory(self.spec, versions))
        place = folder.scratch / "verdicts"
        with watch(self.spark, "evaluating rules", self.on_progress):
            replaced = self._write(self.verdicts(versions, protected), place)
        self.on_step("verdicts written")
        return Collected(
            Layers(place),
            self._read(protected),
            (*replaced, *warnings, *configuration_warnings(self.rules.configuration, now=self.now)),
            removed_applied=True,
            frees=frees_bytes(self.rules.versioning),
            parts=_parts(bucket_name(self.spec.url)),
        )

    def _write(self, verdicts: DataFrame, place: Path) -> tuple[str, ...]:
        """Write the verdicts, and return warnings about them."""
        if not self._is_suspended:
            VERDICTS.write(bucket_verdicts(verdicts), place, partition_by="kind")
            return ()
        kept = verdicts.persist(StorageLevel.DISK_ONLY)
        try:
            VERDICTS.write(bucket_verdicts(kept), place, partition_by="kind")
            number = kept.where(REPLACES).count()
        finally:
            kept.unpersist()
        return (replaced_warning(number),) if number else ()

    @property
    def _is_suspended(self) -> bool:
        return self.rules.versioning is Versioning.SUSPENDED

    def inventory(self, folder: RunFolder) -> tuple[DataFrame, tuple[str, ...]]:
        """List the bucket on the executors, or read the inventory report; return versions and warnings."""
        configuration, scratch = self.rules.configuration, folder.scratch / "inventory"
        if self.report is None:
            listed = list_bucket(
                self.spark,
                self.spec,
                configuration,
                scratch,
                left_out=self._left_out,
                on_progress=self.on_progress,
            )
            return self._without_left_out(listed), ()
        found = read_report(
            self.spark,
            self.report,
            bucket_name(self.spec.url),
            configuration,
            scratch,
            options=self.spec.options,
        )
        return self._without_left_out(found.versions), found.warnings

    def verdicts(self, versions: DataFrame, protected: tuple[Protected, ...] | None = None) -> DataFrame:
        """Evaluate the rules for every version, delete marker and upload; everything in a lake is held."""
        if protected is None:
            protected = merge_protected(self.rules.protected, lakes_in_inventory(self.spec, versions))
        configuration, world = self.rules.configuration, f.lit(0)
        configurations = [configuration]
        # The deepest location comes first, so reversed its condition is the outermost and wins.
        for one in reversed(self.rules.nested):
            if one.prefix not in self._left_out:
                inside = f.col("key").startswith(one.prefix) & (f.col("kind") != UPLOAD)
                world = f.when(inside, len(configurations)).otherwise(world)
                configurations.append(one.rules_of(configuration))
        versions = with_restored(versions, self.removed)
        settings = [
            BucketSetting(each, self.now, self.rules.versioning, protected) for each in configurations
        ]
        verdicts = evaluate(versions.withColumn("world", world), settings)
        return with_replaced(verdicts, self.now) if self._is_suspended else verdicts

    @property
    def _left_out(self) -> tuple[str, ...]:
        """The prefixes where no rule applies to versions: the recycle bin, and locations without rules."""
        found = tuple(one.prefix for one in excluded_locations(self.rules.nested, self.rules.configuration))
        return (BIN_ROOT, *(prefix for prefix in found if prefix != BIN_ROOT))

    def _without_left_out(self, versions: DataFrame) -> DataFrame:
        """Leave these prefixes out; uploads stay, because interrupted moves leave them there."""
        for prefix in self._left_out:
            versions = versions.where((f.col("kind") == UPLOAD) | ~f.col("key").startswith(prefix))
        return versions

    def _read(self, protected: tuple[Protected, ...]) -> dict[str, str]:
        """Describe what was read, for the plan."""
        read = {"versioning": str(self.rules.versioning)}
        names = [one.label for one in excluded_locations(self.rules.nested, self.rules.configuration)]
        lakes = [one.holder for one in protected]
        return (
            read
            | ({"left_out": ", ".join(names)} if names else {})
            | ({"lakes": ", ".join(lakes)} if lakes else {})
        )


COLLECTOR = "bucket"
_SECOND = "yyyy-MM-dd'T'HH:mm:ss'Z'"


def bucket_verdicts(verdicts: DataFrame) -> DataFrame:
    """Convert verdicts of the evaluation to the table VERDICTS of the engine."""
    acts = f.col("action") != str(Action.NONE)
    held = f.col("held_by").isNotNull()
    touched = acts | held | f.col("due").isNotNull()
    never = f.timestamp_micros(f.lit(to_micros(NEVER)))
    none = f.lit(None).cast("string")
    known = RESTORED_UNTIL in verdicts.columns
    restored = f.col(RESTORED_UNTIL) if known else f.lit(None).cast("timestamp")
    return VERDICTS.check(
        verdicts.select(
            address_hash("key").alias("hash"),
            f.col("key").alias("address"),
            _deadline(never, restored).alias("deadline"),
            f.coalesce("held_by", f.lit(str(HoldReason.NOT_YET))).alias("hold"),
            f.when(touched, _holder(restored)).otherwise(none).alias("holder"),
            f.array("key").alias("names"),
            f.array_compact(f.array("rule_id")).alias("rules"),
            f.coalesce("size", f.lit(0)).cast("long").alias("size"),
            f.col("last_modified").alias("created"),
            f.lit(COLLECTOR).alias("collector"),
            f.col("version_id").alias("version"),
            "action",
            f.col("goal").alias("destination"),
            condition(etag=f.col("etag"), is_latest=f.col("current"), newer_versions=f.col("newer")).alias(
                "condition"
            ),
            f.when(touched, TOUCHED).otherwise(UNTOUCHED).alias("kind"),
        )
    )


def _deadline(never: Column, restored: Column) -> Column:
    """Return when an item is due: NEVER if it is held, except for restored items, whose hold ends."""
    return (
        f.when(f.col("held_by") == str(Hold.RESTORED), restored)
        .when(f.col("held_by").isNotNull(), never)
        .otherwise(f.coalesce("due", never))
    )


def _holder(restored: Column) -> Column:
    """Describe what holds an item that is not due: its hold, or the rule that will be due."""
    back = f.concat(f.col("held_by"), f.lit(" until "), f.date_format(restored, _SECOND))
    locked = f.concat(f.col("held_by"), f.lit(" until "), f.date_format("retain_until", _SECOND))
    coming = f.concat(f.lit("rule "), f.col("rule_id"), f.lit(" from "), f.date_format("due", _SECOND))
    return (
        f.when(f.col("held_by") == str(Hold.RETENTION), locked)
        .when(f.col("held_by") == str(Hold.RESTORED), back)
        .when(f.col("held_by") == str(Hold.LAKE), f.col("holder"))
        .when(f.col("held_by").isNotNull(), f.col("held_by"))
        .otherwise(f.concat(coming, f.lit(" on")))
    )
