"""
A scan by the driver alone, for few images: dicts in place of tables, and threads in place of tasks.

Spark needs longer to begin one of its jobs than a registry to answer for a handful of images. Whenever there
turns out to be more than few, TooMany ends it before anything was written.
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
from ebbtide.engine.tables.files import read_rows
from ebbtide.targets.oci.base import Registry
from ebbtide.targets.oci.documents import MEDIA_TYPES
from ebbtide.targets.oci.inventory.asking import Question, Row, answers
from ebbtide.targets.oci.inventory.columns import EVENTS
from ebbtide.targets.oci.inventory.dater import Dater
from ebbtide.targets.oci.inventory.engine import Before, Counts, Found, Leads, Scope, Tagged, TooMany
from ebbtide.targets.oci.inventory.events import PUSH
from ebbtide.targets.oci.inventory.questions import (
    what_a_tag_is,
    what_has_no_tag,
    what_it_says,
    what_refers_to_it,
    whether_it_is_there,
    which_tags_it_has,
)
from ebbtide.targets.oci.inventory.snapshots import Snapshot, write_few
from ebbtide.targets.oci.inventory.steps import Limits

Rows = list[Row]
Name = tuple[str, str]
"""A repository and a tag or a digest."""


@dataclass(frozen=True)
class OnDriver:
    """Scans few images; see :class:`Engine`. Spark is for whoever reads the snapshot."""

    spark: SparkSession
    registry: Registry
    earlier: Snapshot | None
    events: Path | None
    limits: Limits
    on_progress: OnProgress

    @cached_property
    def _earlier(self) -> tuple[Rows, Rows]:
        """The images and tags of the snapshot before."""
        return ([], []) if self.earlier is None else self.earlier.rows()

    def before(self, scope: Scope) -> Before[Rows]:
        """Read what is known."""
        names = frozenset(scope.names)
        told = [] if self.events is None else read_rows(EVENTS, self.events)
        images, tags = (
            [row for row in rows if scope.whole or row["repository"] in names] for rows in self._earlier
        )
        events = [row for row in told if row["repository"] in names]
        return Before(images, tags, events, len(images), len(tags))

    def tagged(self, scope: Scope, before: Before[Rows]) -> Tagged[Rows]:
        """List and ask."""
        listed = self.listed("listing tags", scope.names, which_tags_it_has)
        absent = frozenset(row["repository"] for row in listed if row["tag"] is None)
        tags = {_tag(row) for row in listed if row["tag"] is not None}
        wanted = sorted(tags | {_tag(row) for row in before.tags})
        self.check_few(len(wanted))
        asked: Rows = [{"repository": name[0], "tag": name[1], "listed": name in tags} for name in wanted]
        found = self.asked("asking what tags stand for", asked, what_a_tag_is)
        left_out = next((_tag(row) for row in found if not row["listed"]), None)
        return Tagged(found, len(found), absent, bool(tags), left_out)

    def found(self, before: Before[Rows], tagged: Tagged[Rows], leads: Leads) -> Found[Rows]:
        """Search for manifests round by round."""
        wanted = [*tagged.rows, *(row for row in _pushes(before.events) if row["digest"])]
        wanted += self.listed("looking for manifests", leads.untagged_in, what_has_no_tag)
        search = _Search(self, leads, {_manifest(row): row for row in before.images})
        search.follow(map(_manifest, wanted))
        search.ask_for_the_rest()
        there = {name for name, row in search.done.items() if not row["missing"]}
        lost = [row for row in tagged.rows if _manifest(row) not in there]
        still = self.asked("looking for manifests", lost, what_a_tag_is)
        return Found(
            [row for row in tagged.rows if _manifest(row) in there],
            [search.done[name] for name in sorted(there)],
            _tag(still[0]) if still else None,
        )

    def counts(self, before: Before[Rows], found: Found[Rows]) -> Counts:
        """Count."""
        odd = Counter(
            (row["repository"], row["media_type"])
            for row in found.manifests
            if row["media_type"] not in MEDIA_TYPES
        )
        read = sum(row["fresh"] for row in found.manifests)
        bare = {row["repository"] for row in before.tags} - {row["repository"] for row in found.tags}
        return Counts(len(found.manifests), len(found.tags), read, odd, tuple(sorted(bare)))

    def write(
        self,
        folder: Path,
        scope: Scope,
        before: Before[Rows],
        found: Found[Rows],
        dater: Dater,
        times: Mapping[str, datetime],
    ) -> Snapshot:
        """Date and write."""
        images: Rows = [dater.image(row) for row in _image_rows(before, found)]
        tags: Rows = [dater.tag(row) for row in _tag_rows(before, found)]
        if not scope.whole:
            names = frozenset(scope.names)
            others = [[row for row in rows if row["repository"] not in names] for rows in self._earlier]
            images, tags = images + others[0], tags + others[1]
        return write_few(self.spark, folder, images, tags, times)

    def listed(self, step: str, repositories: Iterable[str], question: Question) -> Rows:
        """Ask repositories for lists of names, of which none is read further than to know it is too long."""

        def some(registry: Registry, row: Row) -> Iterator[Row]:
            return islice(question(registry, row), self.limits.few + 1)

        found = self.asked(step, [{"repository": name} for name in repositories], some)
        self.check_few(len(found))
        return found

    def asked(self, step: str, rows: Rows, question: Question) -> Rows:
        """Ask about each row, and give all answers."""
        found: Rows = []
        self.on_progress(step, 0, len(rows))
        for some in answers(self.registry, question, rows, self.limits.driver_threads):
            found += some
        self.on_progress(step, len(rows), len(rows))
        return found

    def check_few(self, count: int) -> None:
        """Leave it to Spark if there are more than few."""
        if count > self.limits.few:
            raise TooMany


@dataclass
class _Search:
    """The manifests that were found so far, those that are missing too; see :mod:`manifests`."""

    driver: OnDriver
    leads: Leads
    known: Mapping[Name, Row]
    """Those of the snapshot before."""
    done: dict[Name, Row] = field(default_factory=dict)

    def follow(self, wanted: Iterable[Name]) -> None:
        """Find what is wanted, then what that leads to, until nothing new comes."""
        while fresh := sorted({*wanted} - self.done.keys()):
            self.driver.check_few(len(self.done) + len(fresh))
            unknown = [_named(name) for name in fresh if name not in self.known]
            read = self.driver.asked("reading manifests", unknown, what_it_says)
            taken = [_again(self.known[name]) for name in fresh if name in self.known]
            found = [*taken, *read]
            self.done |= {_manifest(row): row for row in found}
            wanted = self._led_to([row for row in found if not row["missing"]])

    def ask_for_the_rest(self) -> None:
        """Ask of what was known and nothing leads to any more whether it is there, and where that leads."""
        rest = [_named(name) for name in sorted(self.known.keys() - self.done.keys())]
        there = {
            _manifest(row)
            for row in self.driver.asked("asking what is still there", rest, whether_it_is_there)
        }
        # What is gone is done with: an index that lists it must not bring it back.
        gone = [row for row in map(_manifest, rest) if row not in there]
        self.done |= {name: {**_again(self.known[name]), "missing": True} for name in gone}
        self.follow(there)

    def _led_to(self, found: Rows) -> set[Name]:
        """Give what manifests lead to: children, and what is known or said to refer to them."""
        led = {(row["repository"], child) for row in found for child in self._children(row)}
        names = {_manifest(row) for row in found}
        led |= {
            name for name, row in self.known.items() if row["subject"] and (name[0], row["subject"]) in names
        }
        if self.leads.referrers:
            asked = [_named(name) for name in sorted(names)]
            told = self.driver.asked("asking for referrers", asked, what_refers_to_it)
            led |= {_manifest(row) for row in told}
        return led

    def _children(self, row: Row) -> set[str]:
        """Give the children; where a folder lists all it has, only those that are not among the blobs too."""
        if self.leads.odd_children:
            return {*row["children"]}
        return {*row["children"]} - {blob["digest"] for blob in row["blobs"]}


def _tag_rows(before: Before[Rows], found: Found[Rows]) -> Iterator[Row]:
    """Put to each tag what was known of it, and its newest push if that was of what it stands for."""
    known = {_tag(row): row for row in before.tags}
    newest: dict[Name, tuple[datetime, str]] = {}
    for row in _pushes(before.events):
        if row["tag"]:
            push = (row["at"], row["digest"])
            newest[_tag(row)] = max(newest.get(_tag(row), push), push)
    for row in found.tags:
        at, digest = newest.get(_tag(row), (None, None))
        yield {**row, "before": known.get(_tag(row)), "pushed": at if digest == row["digest"] else None}


def _image_rows(before: Before[Rows], found: Found[Rows]) -> Iterator[Row]:
    """Put to each manifest what was known of it, whether it has or had a tag or is led to, and its push."""
    known = {_manifest(row): row for row in before.images}
    tagged, was_tagged = ({_manifest(row) for row in rows} for rows in (found.tags, before.tags))
    there = {_manifest(row) for row in found.manifests}
    led = {(row["repository"], child) for row in found.manifests for child in row["children"]}
    led |= {_manifest(row) for row in found.manifests if (row["repository"], row["subject"]) in there}
    pushed: dict[Name, datetime] = {}
    for row in _pushes(before.events):
        pushed[_manifest(row)] = max(pushed.get(_manifest(row), row["at"]), row["at"])
    for row in found.manifests:
        name = _manifest(row)
        yield {
            **row,
            "before": known.get(name),
            "tagged": name in tagged,
            "was_tagged": name in was_tagged,
            "led": name in led,
            "pushed": pushed.get(name),
        }


def _pushes(events: Rows) -> Rows:
    return [row for row in events if row["action"] == PUSH]


def _again(row: Row) -> Row:
    """Give a manifest of the snapshot before as one that was found."""
    return {**row, "missing": False, "fresh": False}


def _named(name: Name) -> Row:
    return {"repository": name[0], "digest": name[1]}


def _manifest(row: Row) -> Name:
    return row["repository"], row["digest"]


def _tag(row: Row) -> Name:
    return row["repository"], row["tag"]
