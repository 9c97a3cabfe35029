"""
Scans of a registry on top of what is known, and the verdicts on what they find.

A snapshot becomes the current one only when it is complete and on disk. Notifications are deleted after that,
because the snapshot contains what they say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema

from ebbtide.core.instant import system_clock
from ebbtide.engine.spark.progress import OnProgress, no_progress
from ebbtide.engine.tables.contracts import Contract
from ebbtide.engine.tables.counted import write_rows
from ebbtide.state.users import SYSTEM
from ebbtide.targets.oci.context import RegistryContext
from ebbtide.targets.oci.evaluation.verdicts import evaluate
from ebbtide.targets.oci.inventory.scan import CompletedScan, scan
from ebbtide.targets.oci.inventory.snapshots import (
    Snapshot,
    read_snapshot,
    remove_older,
    snapshot_folder,
    snapshot_name,
)
from ebbtide.targets.oci.oracle_tables import oracle_verdicts
from ebbtide.targets.oci.policies.policy import KeepNewest, Policies
from ebbtide.targets.oci.purge.creation_dates import (
    MORE_NEEDED,
    MOST_READ,
    images_to_ask,
    read_creation_dates,
    with_creation_dates,
)
from ebbtide.targets.oci.purge.marks import with_marks
from ebbtide.targets.oci.purge.policy import PurgePolicy, only_requested, with_requests
from ebbtide.targets.oci.records.model import Event, Mark
from ebbtide.targets.oci.records.model import Snapshot as Recorded
from ebbtide.targets.oci.records.records import ImageRecords
from ebbtide.targets.oci.tables import CREATION_DATES, EVENTS, IMAGE_VERDICTS, IMAGES, MARKS, TAGS


def table_of(
    spark: SparkSession, contract: Contract, rows: Iterable[Mapping[str, Any]], folder: Path
) -> DataFrame | None:
    """Write rows as a table, and return it; None if there are none, so that nothing need be joined."""
    return contract.read(spark, folder) if write_rows(contract, rows, folder) else None


FEW = 20_000
"""Up to this many tags and manifests fit into the memory of the driver many times over."""


@dataclass(frozen=True)
class Evaluation:
    """The tables of a scan with marks applied, and what they are judged by."""

    policy: PurgePolicy
    now: datetime
    images: DataFrame
    tags: DataFrame
    count: int
    """How many rows both tables have, or more."""
    scratch: Path

    def verdicts(self) -> DataFrame:
        """Return the verdicts on everything, including delete requests."""
        asked = with_requests(self.images, self.tags, self.policy.request, self.now)
        return self._judged(*asked, self.scratch / "judged")

    def only_requested(self, verdicts: DataFrame) -> DataFrame:
        """Return of verdicts only what was requested, what goes because of that, and what is refused."""
        asked = with_requests(self.images, self.tags, self.policy.request, self.now)
        return only_requested(
            verdicts, self._judged(self.images, self.tags, self.scratch / "otherwise"), *asked
        )

    def _judged(self, images: DataFrame, tags: DataFrame, scratch: Path) -> DataFrame:
        """Return the verdicts on all images and tags: by the oracle if there are few, else by Spark."""
        policy, spark = self.policy, images.sparkSession
        decided_by = (policy.policies, self.now, policy.running, policy.oldest_scan)
        if self.count > FEW:
            return evaluate(images, tags, *decided_by, scratch=scratch)
        rows, named = (table.toArrow().to_pylist() for table in (IMAGES.check(images), TAGS.check(tags)))
        schema = to_arrow_schema(IMAGE_VERDICTS.schema, timezone="UTC")
        found = pa.Table.from_pylist(oracle_verdicts(rows, named, *decided_by), schema)
        return IMAGE_VERDICTS.check(spark.createDataFrame(found))


_MOST_NAMED = 500
"""With more repositories the whole registry is scanned: a query cannot name them all."""


@dataclass(frozen=True)
class RegistryScans:
    """Scans one registry; the caller holds its lock."""

    spark: SparkSession
    context: RegistryContext
    on_progress: OnProgress = no_progress

    def scan(self, policies: Policies, scratch: Path, *, allow_empty: bool = False) -> CompletedScan:
        """Scan the registry and make the result the current snapshot."""
        recorded = self.context.records.snapshot(self.context.uid)
        noted = self._noted(recorded)
        # After a purge the registry may be empty.
        expected = recorded is not None and self.context.purged_since(recorded.scanned_at)
        # By the machine's clock: an injected one may stand still, and names must be unique.
        name = snapshot_name(system_clock())
        done = scan(
            self.spark,
            self.context.spec,
            snapshot_folder(self.context.root, self.context.uid, name),
            policies=policies,
            earlier=self._earlier(recorded),
            events=noted.written(scratch / "events"),
            allow_empty=allow_empty or expected,
            adoption=self.context.records.adoption(self.context.uid),
            clock=self.context.clock,
            on_progress=self.on_progress,
        )
        found = done.snapshot
        current = Recorded(name, done.at, found.image_count, found.tag_count, noted.last)
        self.context.records.record_snapshot(self.context.uid, current)
        self.context.records.forget_events(self.context.uid, noted.last)
        remove_older(self.context.root, self.context.uid, name)
        return done

    def marks(self, folder: Path) -> DataFrame | None:
        """Return what people assigned; None if nothing."""
        return table_of(
            self.spark, MARKS, map(mark_row, self.context.records.marks(self.context.uid)), folder
        )

    def dates(self, folder: Path) -> DataFrame | None:
        """Return when images were built; None if no image was asked."""
        stored = self.context.records.creation_dates(self.context.uid)
        rows = ({"digest": digest, "created_at": at} for digest, at in stored)
        return table_of(self.spark, CREATION_DATES, rows, folder)

    def learn_dates(self, tags: DataFrame, rules: Sequence[KeepNewest], folder: Path) -> tuple[str, ...]:
        """Ask images when they were built if rules have to choose among tags; return warnings."""
        names = images_to_ask(tags, rules, self.dates(folder)) if rules else []
        if names:
            with self.context.opened() as registry:
                found = read_creation_dates(registry, names[:MOST_READ], self.context.clock())
            self.context.records.record_creation_dates(self.context.uid, found)
        return (MORE_NEEDED,) if len(names) > MOST_READ else ()

    def verdicts(
        self, policy: PurgePolicy, now: datetime, repositories: list[str], place: Path
    ) -> tuple[DataFrame, Path]:
        """
        Scan some repositories again, for this moment only, and judge what is there as a plan would.

        Returns the verdicts, and the folder of the scan.
        """
        recorded = self.context.records.snapshot(self.context.uid)
        noted = self._noted(recorded)
        done = scan(
            self.spark,
            self.context.spec,
            place / "scan",
            policies=policy.policies,
            earlier=self._earlier(recorded),
            events=noted.written(place / "events"),
            repositories=repositories if len(repositories) <= _MOST_NAMED else None,
            # The first batches may have removed everything that there was.
            allow_empty=True,
            adoption=self.context.records.adoption(self.context.uid),
            clock=self.context.clock,
            on_progress=self.on_progress,
        )
        images, tags = (self._of(table, repositories) for table in (done.snapshot.images, done.snapshot.tags))
        marked = with_marks(images, tags, self.marks(place / "marks"))
        dated = with_creation_dates(marked[0], self.dates(place / "dates"))
        evaluation = Evaluation(policy, now, dated, marked[1], done.images + done.tags, place)
        return evaluation.verdicts(), done.folder

    def _of(self, table: DataFrame, repositories: list[str]) -> DataFrame:
        """Return the rows of some repositories, without a join if they can be named."""
        if len(repositories) <= _MOST_NAMED:
            return table.where(f.col("repository").isin(repositories))
        names = self.spark.createDataFrame([(name,) for name in repositories], "repository string")
        return table.join(names, "repository", "left_semi")

    def _earlier(self, recorded: Recorded | None) -> Snapshot | None:
        """Read the current snapshot; a recorded one that cannot be read stops the run."""
        if recorded is None:
            return None
        return read_snapshot(
            self.spark, snapshot_folder(self.context.root, self.context.uid, recorded.folder)
        )

    def _noted(self, recorded: Recorded | None) -> _NewEvents:
        """Return the notifications that are not in the current snapshot yet."""
        return _NewEvents(
            self.context.records, self.context.uid, 0 if recorded is None else recorded.last_event
        )


class _NewEvents:
    """The notifications since the last scan, and the id of the last of them once they have been read."""

    def __init__(self, records: ImageRecords, uid: str, last: int) -> None:
        self._events, self.last = records.events(uid, after=last), last

    def written(self, folder: Path) -> Path:
        """Write them as the table EVENTS, and return its folder."""
        write_rows(EVENTS, self._rows(), folder)
        return folder

    def _rows(self) -> Iterator[Mapping[str, Any]]:
        for event in self._events:
            self.last = event.id
            yield _event_row(event)


def _event_row(event: Event) -> dict[str, Any]:
    return {
        "action": str(event.action),
        "repository": event.repository,
        "tag": event.tag,
        "digest": event.digest,
        "at": event.at,
    }


def mark_row(mark: Mark) -> dict[str, Any]:
    """Return a mark as a row of MARKS."""
    assigned, quarantine = mark.assigned, mark.quarantine
    return {
        "repository": mark.target.repository,
        "tag": mark.target.tag,
        "digest": mark.target.digest,
        "policy": assigned.policy,
        "expires_at": assigned.expires_at,
        "can_delete_prior": assigned.can_delete_prior,
        "recycle": assigned.recycle,
        "quarantine": None if quarantine is None else str(quarantine.state),
        "quarantine_since": None if quarantine is None else quarantine.since,
        "at": mark.at,
        "by_system": mark.by == SYSTEM,
    }
