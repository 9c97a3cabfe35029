"""The plan of a purge: scan, renew running images, evaluate the policies, and write the verdicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.engine.collector import Collected
from ebbtide.engine.run_folder import OnStep, RunFolder, no_step
from ebbtide.engine.spark.progress import OnProgress, no_progress, watch
from ebbtide.engine.tables.contracts import VERDICTS
from ebbtide.engine.verdicts import Layers
from ebbtide.targets.oci.client.registry import Capabilities
from ebbtide.targets.oci.inventory.scan import CompletedScan
from ebbtide.targets.oci.model import GOES
from ebbtide.targets.oci.purge.creation_dates import with_creation_dates
from ebbtide.targets.oci.purge.marks import found_running, with_marks
from ebbtide.targets.oci.purge.policy import PurgePolicy
from ebbtide.targets.oci.purge.scans import Evaluation
from ebbtide.targets.oci.purge.verdicts import names_alone, registry_verdicts, undeletable, undeletable_tags
from ebbtide.targets.oci.running_source import RunningSource
from ebbtide.targets.oci.tables import IMAGE_VERDICTS

Probe = Callable[[list[str]], dict[str, Capabilities]]
"""Determines what some repositories support."""


@dataclass(frozen=True)
class RegistryPlanner:
    """Plans one purge; the caller holds the registry's lock."""

    spark: SparkSession
    order: PurgePolicy
    now: datetime
    look: Callable[[Path], CompletedScan]
    """Scans the registry, and records the result."""
    marks: Callable[[Path], DataFrame | None]
    """Reads what people assigned; None if nothing."""
    dates: Callable[[Path], DataFrame | None]
    """Reads when images were built; None if unknown for all."""
    learn_dates: Callable[[DataFrame, Path], tuple[str, ...]]
    """Asks images when they were built if rules have to choose among tags; returns warnings."""
    renew: Callable[[DataFrame], int]
    """Assigns again the policies of running images, and returns how many."""
    probe: Probe
    source: RunningSource | None = None
    """The source of running images, for the manifest; None if the caller does not give it."""
    on_progress: OnProgress = no_progress
    on_step: OnStep = no_step

    def collect(self, folder: RunFolder) -> Collected:
        """Do the steps of a plan, one after the other."""
        look = self.look(folder.scratch)
        self.on_step("registry scanned")
        renewed = self.renew_running(look, folder)
        incomplete = self.learn(look, folder)
        verdicts = self.judge(look, folder)
        self.on_step("verdicts written")
        place = folder.scratch / "item-verdicts"
        warnings = (
            *self._unknown_running(),
            *look.warnings,
            *incomplete,
            *self.write_verdicts(verdicts, look.snapshot.tags, place),
        )
        self.on_step("verdicts decided")
        read = {"repositories": look.repositories, "manifests": look.images, "tags": look.tags}
        read |= {"manifests_read": look.read}
        snapshot = read | ({"renewed": renewed} if self.order.running is not None else {})
        snapshot |= {} if self.source is None else self.source.plain()
        known = look.images + look.tags if self.order.wanted is not None else None
        frees = "action <> 'recycle'"
        return Collected(Layers(place), snapshot, warnings, known, removed_applied=True, frees=frees)

    def _unknown_running(self) -> tuple[str, ...]:
        """Warn that running images are unknown, unless they were given."""
        if self.order.running is not None or self.order.wanted is not None:
            return ()
        return ("nothing is known of what runs, so that nothing is held by it; add --running",)

    def renew_running(self, look: CompletedScan, folder: RunFolder) -> int:
        """Assign the policies of running images again (scenario 5.0)."""
        running = self.order.running
        if running is None:
            return 0
        marks = self.marks(folder.scratch / "marks-before")
        marked = with_marks(look.snapshot.images, look.snapshot.tags, marks)
        return self.renew(found_running(*marked, running))

    def learn(self, look: CompletedScan, folder: RunFolder) -> tuple[str, ...]:
        """Read what keep_newest rules have to know about the images that were scanned now."""
        tags = self._of_scanned(look.snapshot.tags, look)
        return self.learn_dates(tags, folder.scratch / "dates-before")

    def judge(self, look: CompletedScan, folder: RunFolder) -> DataFrame:
        """Return the verdicts on every tag and manifest, with marks applied."""
        found = look.snapshot
        marked = with_marks(found.images, found.tags, self.marks(folder.scratch / "marks"))
        images = with_creation_dates(marked[0], self.dates(folder.scratch / "dates"))
        count = found.image_count + found.tag_count
        weighing = Evaluation(self.order, self.now, images, marked[1], count, folder.scratch)
        with watch(self.spark, "judging", self.on_progress):
            verdicts = self._of_scanned(weighing.verdicts(), look)
            if self.order.wanted is not None:
                verdicts = weighing.only_wanted(verdicts)
            IMAGE_VERDICTS.write(verdicts, folder.scratch / "verdicts")
        return IMAGE_VERDICTS.read(self.spark, folder.scratch / "verdicts")

    def _of_scanned(self, rows: DataFrame, look: CompletedScan) -> DataFrame:
        """
        Leave out repositories that were not scanned now.

        They are evaluated all the same, because their images may share layers, and the freed bytes must not
        be overstated.
        """
        fresh = [(name,) for name, at in look.snapshot.scanned.items() if at == look.at]
        if len(fresh) == len(look.snapshot.scanned):
            return rows
        names = self.spark.createDataFrame(fresh, "repository string")
        return rows.join(names, "repository", "left_semi")

    def write_verdicts(self, verdicts: DataFrame, tags: DataFrame, place: Path) -> tuple[str, ...]:
        """Hold what the registry cannot delete, write all verdicts, and return warnings about them."""
        going = verdicts.where(f.col("decision").isin(*GOES)).select("repository").distinct()
        found = self.probe(sorted(row.repository for row in going.toLocalIterator()))
        never, alone = undeletable(found), undeletable_tags(found)
        with watch(self.spark, "deciding", self.on_progress):
            judged = registry_verdicts(verdicts, names_alone(verdicts, tags), never, alone)
            VERDICTS.write(judged, place, partition_by="kind")
        return tuple(f"{name}: {why}" for name, why in sorted(never.items()))
