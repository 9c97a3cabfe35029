"""Planning for a bucket: list what it holds, let the rules judge it, and say what is to be done."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.bucket.evaluation.places import Setting
from ebbtide.bucket.evaluation.verdicts import evaluate
from ebbtide.bucket.inventory.listing import list_bucket
from ebbtide.bucket.inventory.report import read_report
from ebbtide.bucket.names import bucket_name
from ebbtide.bucket.sources import Sourced
from ebbtide.bucket.standings import bucket_standings
from ebbtide.engine.freezing import Decided, OnStep, no_step
from ebbtide.engine.layers import Layers
from ebbtide.engine.layout import RunFolder
from ebbtide.rules.s3.surprises import configuration_warnings
from ebbtide.store.base import StoreSpec
from ebbtide.tables.contracts import STANDINGS
from ebbtide.tables.progress import OnProgress, no_progress, watch


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

    def decide(self, folder: RunFolder) -> Decided:
        """Read the inventory, judge it, and write each item's standing."""
        versions, warnings = self.inventory(folder)
        self.on_step("bucket listed")
        place = folder.scratch / "standings"
        with watch(self.spark, "judging", self.on_progress):
            STANDINGS.write(bucket_standings(self.verdicts(versions)), place, partition_by="kind")
        self.on_step("standings written")
        return Decided(
            Layers(place),
            {"versioning": str(self.rules.versioning)},
            (*warnings, *configuration_warnings(self.rules.configuration, now=self.now)),
            without_buried=True,
            in_order=True,
        )

    def inventory(self, folder: RunFolder) -> tuple[DataFrame, tuple[str, ...]]:
        """List the bucket on the executors, or read what S3 has listed."""
        configuration, scratch = self.rules.configuration, folder.scratch / "inventory"
        if self.report is None:
            listed = list_bucket(self.spark, self.spec, configuration, scratch, on_progress=self.on_progress)
            return listed, ()
        found = read_report(
            self.spark,
            self.report,
            bucket_name(self.spec.url),
            configuration,
            scratch,
            options=self.spec.options,
        )
        return found.versions, found.warnings

    def verdicts(self, versions: DataFrame) -> DataFrame:
        """Let the rules judge every version, delete marker and upload."""
        setting = Setting(self.rules.configuration, self.now, self.rules.versioning)
        return evaluate(versions.withColumn("world", f.lit(0)), [setting])
