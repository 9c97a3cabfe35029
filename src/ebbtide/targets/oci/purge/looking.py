"""
Looking at a registry: scan it on top of what is known, and record what was found.

A snapshot becomes the current one only when it is whole and on disk. Notifications are forgotten after that,
because what they say is in it then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.core.instant import Clock, system_clock
from ebbtide.engine.layout import RunFolder
from ebbtide.engine.spark.progress import OnProgress, no_progress
from ebbtide.engine.tables.files import write_rows
from ebbtide.state.users import SYSTEM
from ebbtide.targets.oci.client.registry import RegistrySpec, open_registry
from ebbtide.targets.oci.inventory.scan import CompletedScan, scan
from ebbtide.targets.oci.inventory.snapshots import (
    Snapshot,
    read_snapshot,
    remove_older,
    snapshot_folder,
    snapshot_name,
)
from ebbtide.targets.oci.policies.policy import KeepNewest, Policies
from ebbtide.targets.oci.purge.creation_dates import (
    MORE_NEEDED,
    MOST_READ,
    images_to_ask,
    read_creation_dates,
    with_creation_dates,
)
from ebbtide.targets.oci.purge.order import PurgeOrder
from ebbtide.targets.oci.purge.overlay import with_marks
from ebbtide.targets.oci.purge.tabled import tabled
from ebbtide.targets.oci.purge.weighing import Weighing
from ebbtide.targets.oci.records.model import Event, Mark
from ebbtide.targets.oci.records.model import Snapshot as Recorded
from ebbtide.targets.oci.records.records import ImageRecords
from ebbtide.targets.oci.tables import CREATION_DATES, EVENTS, MARKS

_MOST_NAMED = 500
"""Where more repositories are meant, the whole registry is scanned: a query cannot name them all."""


@dataclass(frozen=True)
class Looker:
    """Looks at one registry; the caller holds its lock."""

    spark: SparkSession
    spec: RegistrySpec
    uid: str
    records: ImageRecords
    root: Path
    clock: Clock
    purged_since: Callable[[datetime], bool]
    """Tells whether a purge of ours has removed something since a moment."""
    on_progress: OnProgress = no_progress

    def look(self, policies: Policies, scratch: Path, *, allow_empty: bool = False) -> CompletedScan:
        """Scan the registry and make what was found the current snapshot."""
        recorded = self.records.snapshot(self.uid)
        noted = self._noted(recorded)
        # Who has just removed the last image need not wonder that there is none.
        expected = recorded is not None and self.purged_since(recorded.scanned_at)
        # By the machine's clock: an injected one may stand still, and names must not come twice.
        name = snapshot_name(system_clock())
        done = scan(
            self.spark,
            self.spec,
            snapshot_folder(self.root, self.uid, name),
            policies=policies,
            earlier=self._earlier(recorded),
            events=noted.written(scratch / "events"),
            allow_empty=allow_empty or expected,
            adoption=self.records.adoption(self.uid),
            clock=self.clock,
            on_progress=self.on_progress,
        )
        found = done.snapshot
        current = Recorded(name, done.at, found.image_count, found.tag_count, noted.last)
        self.records.record_snapshot(self.uid, current)
        self.records.forget_events(self.uid, noted.last)
        remove_older(self.root, self.uid, name)
        return done

    def marks(self, folder: Path) -> DataFrame | None:
        """Read what people have assigned; None if that is nothing."""
        return tabled(self.spark, MARKS, map(mark_row, self.records.marks(self.uid)), folder)

    def dates(self, folder: Path) -> DataFrame | None:
        """Read when images say that they were built; None if no image was asked."""
        stored = self.records.creation_dates(self.uid)
        rows = ({"digest": digest, "created_at": at} for digest, at in stored)
        return tabled(self.spark, CREATION_DATES, rows, folder)

    def learn_dates(self, tags: DataFrame, rules: Sequence[KeepNewest], folder: Path) -> tuple[str, ...]:
        """Ask images when they were built where rules have to choose among tags; give what is to be said."""
        names = images_to_ask(tags, rules, self.dates(folder)) if rules else []
        if names:
            with closing(open_registry(self.spec)) as registry:
                found = read_creation_dates(registry, names[:MOST_READ], self.clock())
            self.records.record_creation_dates(self.uid, found)
        return (MORE_NEEDED,) if len(names) > MOST_READ else ()

    def verdicts(
        self, order: PurgeOrder, now: datetime, repositories: list[str], folder: RunFolder
    ) -> DataFrame:
        """Scan some repositories again, for this moment alone, and judge what is there as a plan would."""
        recorded = self.records.snapshot(self.uid)
        noted = self._noted(recorded)
        place = folder.scratch / snapshot_name(system_clock())
        done = scan(
            self.spark,
            self.spec,
            place / "scan",
            policies=order.policies,
            earlier=self._earlier(recorded),
            events=noted.written(place / "events"),
            repositories=repositories if len(repositories) <= _MOST_NAMED else None,
            # What the first waves have removed is gone, and may have been all that there was.
            allow_empty=True,
            adoption=self.records.adoption(self.uid),
            clock=self.clock,
            on_progress=self.on_progress,
        )
        images, tags = (self._of(table, repositories) for table in (done.snapshot.images, done.snapshot.tags))
        marked = with_marks(images, tags, self.marks(place / "marks"))
        dated = with_creation_dates(marked[0], self.dates(place / "dates"))
        return Weighing(order, now, dated, marked[1], done.images + done.tags, place).verdicts()

    def _of(self, table: DataFrame, repositories: list[str]) -> DataFrame:
        """Give the rows of some repositories, without a join where they can be named."""
        if len(repositories) <= _MOST_NAMED:
            return table.where(f.col("repository").isin(repositories))
        names = self.spark.createDataFrame([(name,) for name in repositories], "repository string")
        return table.join(names, "repository", "left_semi")

    def _earlier(self, recorded: Recorded | None) -> Snapshot | None:
        """Read the current snapshot; one that is recorded and cannot be read stops the run."""
        if recorded is None:
            return None
        return read_snapshot(self.spark, snapshot_folder(self.root, self.uid, recorded.folder))

    def _noted(self, recorded: Recorded | None) -> _Noted:
        """Give the notifications that are not in the current snapshot yet."""
        return _Noted(self.records, self.uid, 0 if recorded is None else recorded.last_event)


class _Noted:
    """The notifications since the last scan, and the id of the last of them when they have been read."""

    def __init__(self, records: ImageRecords, uid: str, last: int) -> None:
        self._events, self.last = records.events(uid, after=last), last

    def written(self, folder: Path) -> Path:
        """Write them as the table EVENTS, and give its folder."""
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
    """Write a mark as a row of MARKS."""
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
