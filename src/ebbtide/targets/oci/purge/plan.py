"""The plan of a purge: scan, renew running images, evaluate the policies, and write the verdicts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ebbtide.engine.collector import Collected
from ebbtide.engine.run_folder import OnStep, RunFolder, no_step
from ebbtide.engine.spark.progress import watch
from ebbtide.engine.tables.contracts import VERDICTS
from ebbtide.engine.verdicts import Layers
from ebbtide.state.users import SYSTEM
from ebbtide.targets.oci.inventory.scan import CompletedScan
from ebbtide.targets.oci.model import GOES
from ebbtide.targets.oci.purge.creation_dates import with_creation_dates
from ebbtide.targets.oci.purge.marks import found_running, renewal_words, renewed_marks, with_marks
from ebbtide.targets.oci.purge.policy import PurgePolicy
from ebbtide.targets.oci.purge.scans import Evaluation, RegistryScans
from ebbtide.targets.oci.purge.verdicts import (
    names_alone,
    probed,
    registry_verdicts,
    undeletable,
    undeletable_tags,
)
from ebbtide.targets.oci.running_source import RunningSource
from ebbtide.targets.oci.tables import IMAGE_VERDICTS


@dataclass(frozen=True)
class RegistryPlanner:
    """Plans one purge; the caller holds the registry's lock."""

    policy: PurgePolicy
    now: datetime
    scans: RegistryScans
    source: RunningSource | None = None
    """The source of running images, for the manifest; None if the caller does not give it."""
    on_step: OnStep = no_step

    def scan(self, folder: RunFolder) -> CompletedScan:
        """Scan the registry, and record the result."""
        return self.scans.scan(self.policy.policies, folder.scratch)

    def collect(self, folder: RunFolder) -> Collected:
        """Do the steps of a plan, one after the other."""
        scan = self.scan(folder)
        self.on_step("registry scanned")
        renewed = self.renew_running(scan, folder)
        incomplete = self.learn(scan, folder)
        verdicts = self.judge(scan, folder)
        self.on_step("verdicts written")
        place = folder.scratch / "item-verdicts"
        warnings = (
            *self._unknown_running(),
            *scan.warnings,
            *incomplete,
            *self.write_verdicts(verdicts, scan.snapshot.tags, place),
        )
        self.on_step("verdicts decided")
        read = {"repositories": scan.repositories, "manifests": scan.images, "tags": scan.tags}
        read |= {"manifests_read": scan.read}
        snapshot = read | ({"renewed": renewed} if self.policy.running is not None else {})
        snapshot |= {} if self.source is None else self.source.plain()
        known = scan.images + scan.tags if self.policy.request is not None else None
        frees = "action <> 'recycle'"
        return Collected(Layers(place), snapshot, warnings, known, removed_applied=True, frees=frees)

    def _unknown_running(self) -> tuple[str, ...]:
        """Warn that running images are unknown, unless they were given."""
        if self.policy.running is not None or self.policy.request is not None:
            return ()
        return ("nothing is known of what runs, so that nothing is held by it; add --running",)

    def renew_running(self, scan: CompletedScan, folder: RunFolder) -> int:
        """Assign the policies of running images again (scenario 5.0)."""
        running = self.policy.running
        if running is None:
            return 0
        marks = self.scans.marks(folder.scratch / "marks-before")
        marked = with_marks(scan.snapshot.images, scan.snapshot.tags, marks)
        # By the clock, not as of the plan's time: what is found running runs today.
        found, context = found_running(*marked, running), self.scans.context
        renewals = list(renewed_marks(found, self.policy.policies, context.clock()))
        seen = {before.target.key: before.assigned for before, _ in renewals}
        words = renewal_words(self.source)
        context.records.put_marks(context.uid, [after for _, after in renewals], SYSTEM, words, seen)
        return len(renewals)

    def learn(self, scan: CompletedScan, folder: RunFolder) -> tuple[str, ...]:
        """Read what keep_newest rules have to know about the images that were scanned now."""
        tags = self._of_scanned(scan.snapshot.tags, scan)
        return self.scans.learn_dates(tags, self.policy.policies.keep_newest, folder.scratch / "dates-before")

    def judge(self, scan: CompletedScan, folder: RunFolder) -> DataFrame:
        """Return the verdicts on every tag and manifest, with marks applied."""
        found = scan.snapshot
        marked = with_marks(found.images, found.tags, self.scans.marks(folder.scratch / "marks"))
        images = with_creation_dates(marked[0], self.scans.dates(folder.scratch / "dates"))
        count = found.image_count + found.tag_count
        evaluation = Evaluation(self.policy, self.now, images, marked[1], count, folder.scratch)
        with watch(self.scans.spark, "judging", self.scans.on_progress):
            verdicts = self._of_scanned(evaluation.verdicts(), scan)
            if self.policy.request is not None:
                verdicts = evaluation.only_requested(verdicts)
            IMAGE_VERDICTS.write(verdicts, folder.scratch / "verdicts")
        return IMAGE_VERDICTS.read(self.scans.spark, folder.scratch / "verdicts")

    def _of_scanned(self, rows: DataFrame, scan: CompletedScan) -> DataFrame:
        """
        Leave out repositories that were not scanned now.

        They are evaluated all the same, because their images may share layers, and the freed bytes must not
        be overstated.
        """
        fresh = [(name,) for name, at in scan.snapshot.scanned.items() if at == scan.at]
        if len(fresh) == len(scan.snapshot.scanned):
            return rows
        names = self.scans.spark.createDataFrame(fresh, "repository string")
        return rows.join(names, "repository", "left_semi")

    def write_verdicts(self, verdicts: DataFrame, tags: DataFrame, place: Path) -> tuple[str, ...]:
        """Hold what the registry cannot delete, write all verdicts, and return warnings about them."""
        going = verdicts.where(f.col("decision").isin(*GOES)).select("repository").distinct()
        with self.scans.context.opened() as registry:
            found = probed(registry, sorted(row.repository for row in going.toLocalIterator()))
        never, alone = undeletable(found), undeletable_tags(found)
        with watch(self.scans.spark, "deciding", self.scans.on_progress):
            judged = registry_verdicts(verdicts, names_alone(verdicts, tags), never, alone)
            VERDICTS.write(judged, place, partition_by="kind")
        return tuple(f"{name}: {why}" for name, why in sorted(never.items()))
