"""Planning for a bucket: list what it holds, let the rules judge it, and say what is to be done."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.engine.collector import Collected
from ebbtide.engine.layers import Layers
from ebbtide.engine.layout import OnStep, RunFolder, no_step
from ebbtide.engine.removed_items import RemovedItems
from ebbtide.engine.shares import Part
from ebbtide.engine.spark.progress import OnProgress, no_progress, watch
from ebbtide.engine.tables.contracts import VERDICTS
from ebbtide.storage.store import StoreSpec
from ebbtide.targets.s3.bin import with_restored
from ebbtide.targets.s3.bin_place import BIN_ROOT
from ebbtide.targets.s3.enclosed import left_out
from ebbtide.targets.s3.evaluation.lookup import UPLOAD
from ebbtide.targets.s3.evaluation.places import Setting
from ebbtide.targets.s3.evaluation.verdicts import evaluate
from ebbtide.targets.s3.freed import frees_bytes
from ebbtide.targets.s3.inventory.lakes import lakes_listed
from ebbtide.targets.s3.inventory.listing import list_bucket
from ebbtide.targets.s3.inventory.report import read_report
from ebbtide.targets.s3.model import Protected, Versioning
from ebbtide.targets.s3.names import bucket_name
from ebbtide.targets.s3.protected import together
from ebbtide.targets.s3.replaced import REPLACES, replaced_warning, with_replaced
from ebbtide.targets.s3.rules.warnings import configuration_warnings
from ebbtide.targets.s3.sources import Sourced
from ebbtide.targets.s3.standings import bucket_verdicts


def _parts(bucket: str) -> tuple[Part, ...]:
    """
    Say what the breaker measures: all that was listed, which the rules can reach, and of it what is current.

    Old versions are often many, so that a plan for all current objects would be a small part of the whole.
    Delete markers and uploads have no ETag.
    """
    reach = f"that the rules of s3://{bucket} can reach"
    current = "condition.is_latest and condition.etag is not null"
    return Part(f"versions, delete markers and uploads {reach}"), Part(f"current versions {reach}", current)


@dataclass(frozen=True)
class BucketPlanner:
    """Plans one run over a bucket; the caller holds its lock."""

    spark: SparkSession
    spec: StoreSpec
    rules: Sourced
    now: datetime
    report: str | None = None
    """Where an S3 Inventory report of the bucket is, if it is to be read and not the bucket."""
    on_progress: OnProgress = no_progress
    on_step: OnStep = no_step
    removed: RemovedItems = field(default_factory=RemovedItems)
    """What was restored from the bin, and is held."""

    def collect(self, folder: RunFolder) -> Collected:
        """Read the inventory, judge it, and write each item's verdict."""
        versions, warnings = self.inventory(folder)
        self.on_step("bucket listed")
        protected = together(self.rules.protected, lakes_listed(self.spec, versions))
        place = folder.scratch / "verdicts"
        with watch(self.spark, "judging", self.on_progress):
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
        """List the bucket on the executors, or read what S3 has listed."""
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
        """Let the rules judge every version, delete marker and upload; what lies in a lake is held."""
        if protected is None:
            protected = together(self.rules.protected, lakes_listed(self.spec, versions))
        configuration, world = self.rules.configuration, f.lit(0)
        configurations = [configuration]
        # The deepest location comes first, so it is asked last and its answer counts.
        for one in reversed(self.rules.enclosed):
            if one.prefix not in self._left_out:
                inside = f.col("key").startswith(one.prefix) & (f.col("kind") != UPLOAD)
                world = f.when(inside, len(configurations)).otherwise(world)
                configurations.append(one.rules_of(configuration))
        versions = with_restored(versions, self.removed)
        settings = [Setting(each, self.now, self.rules.versioning, protected) for each in configurations]
        verdicts = evaluate(versions.withColumn("world", world), settings)
        return with_replaced(verdicts, self.now) if self._is_suspended else verdicts

    @property
    def _left_out(self) -> tuple[str, ...]:
        """The prefixes below which no rule is about any version; the bin is out of every rule's reach."""
        found = tuple(one.prefix for one in left_out(self.rules.enclosed, self.rules.configuration))
        return (BIN_ROOT, *(prefix for prefix in found if prefix != BIN_ROOT))

    def _without_left_out(self, versions: DataFrame) -> DataFrame:
        """Leave out what lies in locations; uploads stay, which are what an interrupted move left there."""
        for prefix in self._left_out:
            versions = versions.where((f.col("kind") == UPLOAD) | ~f.col("key").startswith(prefix))
        return versions

    def _read(self, protected: tuple[Protected, ...]) -> dict[str, str]:
        """Say what was read, and what was not."""
        read = {"versioning": str(self.rules.versioning)}
        names = [one.label for one in left_out(self.rules.enclosed, self.rules.configuration)]
        lakes = [one.holder for one in protected]
        return (
            read
            | ({"left_out": ", ".join(names)} if names else {})
            | ({"lakes": ", ".join(lakes)} if lakes else {})
        )
