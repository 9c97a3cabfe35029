"""
A scan by the driver alone, for small registries: dicts instead of tables, threads instead of tasks.

Spark takes longer to start a job than a small registry takes to answer. If there is more than expected,
TooMany ends the scan before anything is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import islice
from pathlib import Path

from pyspark.sql import SparkSession

from ebbtide.engine.spark.progress import OnProgress
from ebbtide.engine.tables.counted import read_rows
from ebbtide.targets.oci.client.manifest import MEDIA_TYPES
from ebbtide.targets.oci.client.registry import Registry
from ebbtide.targets.oci.inventory.events import PUSH
from ebbtide.targets.oci.inventory.queries import (
    Query,
    Row,
    find_manifest,
    list_referrers,
    list_tags,
    list_untagged,
    read_manifest,
    resolve_tag,
    run_queries,
)
from ebbtide.targets.oci.inventory.scanner import (
    Discovery,
    Findings,
    History,
    Limits,
    ScanCounts,
    Scope,
    TagListing,
    TooMany,
)
from ebbtide.targets.oci.inventory.snapshots import Snapshot, write_snapshot_rows
from ebbtide.targets.oci.inventory.timestamps import Timestamps
from ebbtide.targets.oci.tables import EVENTS

Rows = list[Row]
Name = tuple[str, str]
"""A repository and a tag or a digest."""


@dataclass(frozen=True)
class DriverScanner:
    """Scans a small registry; see :class:`Scanner`. Spark is only for readers of the snapshot."""

    spark: SparkSession
    registry: Registry
    earlier: Snapshot | None
    events: Path | None
    limits: Limits
    on_progress: OnProgress

    @cached_property
    def _earlier(self) -> tuple[Rows, Rows]:
        """The images and tags of the previous snapshot."""
        return ([], []) if self.earlier is None else self.earlier.rows()

    def history(self, scope: Scope) -> History[Rows]:
        """Read the rows of the previous snapshot and the notifications."""
        names = frozenset(scope.names)
        told = [] if self.events is None else read_rows(EVENTS, self.events)
        images, tags = (
            [row for row in rows if scope.whole or row["repository"] in names] for rows in self._earlier
        )
        events = [row for row in told if row["repository"] in names]
        return History(images, tags, events, len(images), len(tags))

    def list_tags(self, scope: Scope, history: History[Rows]) -> TagListing[Rows]:
        """List the tags of all repositories, and resolve each."""
        listed = self.listed("listing tags", scope.names, list_tags)
        absent = frozenset(row["repository"] for row in listed if row["tag"] is None)
        tags = {_tag_name(row) for row in listed if row["tag"] is not None}
        wanted = sorted(tags | {_tag_name(row) for row in history.tags})
        self.check_few(len(wanted))
        asked: Rows = [{"repository": name[0], "tag": name[1], "listed": name in tags} for name in wanted]
        found = self.asked("asking what tags stand for", asked, resolve_tag)
        left_out = next((_tag_name(row) for row in found if not row["listed"]), None)
        return TagListing(found, len(found), absent, bool(tags), left_out)

    def find_manifests(
        self, history: History[Rows], listing: TagListing[Rows], discovery: Discovery
    ) -> Findings[Rows]:
        """Search for manifests round by round."""
        wanted = [*listing.rows, *(row for row in _pushes(history.events) if row["digest"])]
        wanted += self.listed("looking for manifests", discovery.untagged_in, list_untagged)
        search = _Search(self, discovery, {_manifest_name(row): row for row in history.images})
        search.follow(map(_manifest_name, wanted))
        search.ask_for_the_rest()
        there = {name for name, row in search.done.items() if not row["missing"]}
        lost = [row for row in listing.rows if _manifest_name(row) not in there]
        still = self.asked("looking for manifests", lost, resolve_tag)
        return Findings(
            [row for row in listing.rows if _manifest_name(row) in there],
            [search.done[name] for name in sorted(there)],
            _tag_name(still[0]) if still else None,
        )

    def counts(self, history: History[Rows], found: Findings[Rows]) -> ScanCounts:
        """Count the findings."""
        odd = Counter(
            (row["repository"], row["media_type"])
            for row in found.manifests
            if row["media_type"] not in MEDIA_TYPES
        )
        read = sum(row["fresh"] for row in found.manifests)
        bare = {row["repository"] for row in history.tags} - {row["repository"] for row in found.tags}
        return ScanCounts(len(found.manifests), len(found.tags), read, odd, tuple(sorted(bare)))

    def write(
        self,
        folder: Path,
        scope: Scope,
        history: History[Rows],
        found: Findings[Rows],
        timestamps: Timestamps,
        times: Mapping[str, datetime],
    ) -> Snapshot:
        """Add times and write the snapshot."""
        images: Rows = [timestamps.image(row) for row in _with_manifest_history(history, found)]
        tags: Rows = [timestamps.tag(row) for row in _with_tag_history(history, found)]
        if not scope.whole:
            names = frozenset(scope.names)
            others = [[row for row in rows if row["repository"] not in names] for rows in self._earlier]
            images, tags = images + others[0], tags + others[1]
        return write_snapshot_rows(self.spark, folder, images, tags, times)

    def listed(self, step: str, repositories: Iterable[str], query: Query) -> Rows:
        """Ask repositories for lists of names; stop reading a list once it is too long."""

        def some(registry: Registry, row: Row) -> Iterator[Row]:
            return islice(query(registry, row), self.limits.few + 1)

        found = self.asked(step, [{"repository": name} for name in repositories], some)
        self.check_few(len(found))
        return found

    def asked(self, step: str, rows: Rows, query: Query) -> Rows:
        """Run a query for each row, and return all answers."""
        found: Rows = []
        self.on_progress(step, 0, len(rows))
        for some in run_queries(self.registry, query, rows, self.limits.driver_threads):
            found += some
        self.on_progress(step, len(rows), len(rows))
        return found

    def check_few(self, count: int) -> None:
        """Raise TooMany if there are more than the driver should hold."""
        if count > self.limits.few:
            raise TooMany


@dataclass
class _Search:
    """The manifests found so far, including missing ones; `spark_scan` does the same with tables."""

    driver: DriverScanner
    discovery: Discovery
    known: Mapping[Name, Row]
    """Those of the previous snapshot."""
    done: dict[Name, Row] = field(default_factory=dict)

    def follow(self, wanted: Iterable[Name]) -> None:
        """Find the wanted manifests, then those that they reference, until there are no new ones."""
        while fresh := sorted({*wanted} - self.done.keys()):
            self.driver.check_few(len(self.done) + len(fresh))
            unknown = [_name_row(name) for name in fresh if name not in self.known]
            read = self.driver.asked("reading manifests", unknown, read_manifest)
            taken = [_known_manifest(self.known[name]) for name in fresh if name in self.known]
            found = [*taken, *read]
            self.done |= {_manifest_name(row): row for row in found}
            wanted = self._led_to([row for row in found if not row["missing"]])

    def ask_for_the_rest(self) -> None:
        """Ask whether known manifests that nothing references any more exist, and follow those."""
        rest = [_name_row(name) for name in sorted(self.known.keys() - self.done.keys())]
        there = {
            _manifest_name(row)
            for row in self.driver.asked("asking what is still there", rest, find_manifest)
        }
        # A missing manifest is finished: an index that lists it must not bring it back.
        gone = [row for row in map(_manifest_name, rest) if row not in there]
        self.done |= {name: {**_known_manifest(self.known[name]), "missing": True} for name in gone}
        self.follow(there)

    def _led_to(self, found: Rows) -> set[Name]:
        """Return what manifests reference: children, and their known or listed referrers."""
        referenced = {(row["repository"], child) for row in found for child in self._children(row)}
        names = {_manifest_name(row) for row in found}
        referenced |= {
            name for name, row in self.known.items() if row["subject"] and (name[0], row["subject"]) in names
        }
        if self.discovery.referrers:
            asked = [_name_row(name) for name in sorted(names)]
            told = self.driver.asked("asking for referrers", asked, list_referrers)
            referenced |= {_manifest_name(row) for row in told}
        return referenced

    def _children(self, row: Row) -> set[str]:
        """Return the children; where a folder lists all it has, only those that are not blobs too."""
        if self.discovery.follow_odd_children:
            return {*row["children"]}
        return {*row["children"]} - {blob["digest"] for blob in row["blobs"]}


def _with_tag_history(history: History[Rows], found: Findings[Rows]) -> Iterator[Row]:
    """Join each tag with its history: its previous row, and its newest push if that was of its digest."""
    known = {_tag_name(row): row for row in history.tags}
    newest: dict[Name, tuple[datetime, str]] = {}
    for row in _pushes(history.events):
        if row["tag"]:
            push = (row["at"], row["digest"])
            newest[_tag_name(row)] = max(newest.get(_tag_name(row), push), push)
    for row in found.tags:
        at, digest = newest.get(_tag_name(row), (None, None))
        yield {**row, "before": known.get(_tag_name(row)), "pushed": at if digest == row["digest"] else None}


def _with_manifest_history(history: History[Rows], found: Findings[Rows]) -> Iterator[Row]:
    """Join each manifest with its history: previous row, tags, references, and newest push."""
    known = {_manifest_name(row): row for row in history.images}
    tagged, was_tagged = ({_manifest_name(row) for row in rows} for rows in (found.tags, history.tags))
    there = {_manifest_name(row) for row in found.manifests}
    referenced = {(row["repository"], child) for row in found.manifests for child in row["children"]}
    referenced |= {
        _manifest_name(row) for row in found.manifests if (row["repository"], row["subject"]) in there
    }
    pushed: dict[Name, datetime] = {}
    for row in _pushes(history.events):
        pushed[_manifest_name(row)] = max(pushed.get(_manifest_name(row), row["at"]), row["at"])
    for row in found.manifests:
        name = _manifest_name(row)
        yield {
            **row,
            "before": known.get(name),
            "tagged": name in tagged,
            "was_tagged": name in was_tagged,
            "referenced": name in referenced,
            "pushed": pushed.get(name),
        }


def _pushes(events: Rows) -> Rows:
    return [row for row in events if row["action"] == PUSH]


def _known_manifest(row: Row) -> Row:
    """Return a manifest of the previous snapshot as a finding."""
    return {**row, "missing": False, "fresh": False}


def _name_row(name: Name) -> Row:
    return {"repository": name[0], "digest": name[1]}


def _manifest_name(row: Row) -> Name:
    return row["repository"], row["digest"]


def _tag_name(row: Row) -> Name:
    return row["repository"], row["tag"]
