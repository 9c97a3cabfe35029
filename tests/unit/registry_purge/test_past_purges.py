"""What commands on a registry read of past runs: nothing that grows with their number."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import event
from tests.services.outcomes import FIRST, Desk, Happened

from ebbtide.core.decision import Outcome
from ebbtide.state.runs import Ledger, RunState
from ebbtide.targets.oci.client.registry import RegistrySpec
from ebbtide.targets.oci.context import RegistryContext
from ebbtide.targets.oci.inventory.snapshots import write_snapshot_rows
from ebbtide.targets.oci.purge.last_scan import ImagePlace, LastScan, RemovedImages, removed_images
from ebbtide.targets.oci.records.records import ImageRecords

UID = "registry"
DAY = timedelta(days=1)
DIGEST = f"sha256:{'a' * 64}"
SPEC = RegistrySpec("oci://localhost:5000")
IMAGE = f"app@{DIGEST}"


@dataclass
class Purges:
    """A registry whose repository `old` was scanned on the first day, and `app` on a later one."""

    root: Path
    ledger: Ledger
    records: ImageRecords
    now: datetime = FIRST

    def scan(self) -> None:
        """Scan the repository `app`."""
        self.folder = self.root / f"snapshot-{self.now:%Y%m%d}"
        write_snapshot_rows(None, self.folder, [], [], {"old": FIRST, "app": self.now})

    def run(self, collector: str, outcome: Outcome, tag: str | None = None) -> int:
        """Write a run that succeeded, and did one thing to one image."""
        desk = Desk(self.root, self.ledger, UID)
        number = desk.begin(collector)
        self.ledger.planned(number, "hash", 1, 1)
        for state in (RunState.APPROVED, RunState.APPLYING):
            self.ledger.move(number, state)
        action = "recycle" if tag else "empty"
        desk.attempt(number, [Happened(IMAGE, outcome, version=tag, action=action)], at=self.now)
        self.ledger.move(number, RunState.SUCCEEDED)
        return number

    def fold(self) -> None:
        """Let the table of removed items have all runs."""
        Desk(self.root, self.ledger, UID).table.folded(self.now)

    @property
    def removed(self) -> RemovedImages:
        """What a listing knows."""
        return removed_images(LastScan(self.folder, UID, self.records, self.now), self.root, self.ledger)

    def places(self) -> list[ImagePlace]:
        """Say where a listing says that both tags are."""
        found = self.removed
        return [found.place("app", DIGEST, tag) for tag in ("v1", "v2")]


@pytest.fixture
def purges(tmp_path) -> Iterator[Purges]:
    """Give a registry that was scanned, and a ledger without runs."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    made = Purges(tmp_path, Ledger(url, clock=lambda: made.now), ImageRecords(url, clock=lambda: made.now))
    made.scan()
    yield made
    made.ledger.close()
    made.records.close()


def queries(purges: Purges, action: Callable[[], object]) -> list[str]:
    """Give the statements that the ledger's database gets meanwhile."""
    seen: list[str] = []
    event.listen(purges.ledger._database._engine, "before_cursor_execute", lambda *all_: seen.append(all_[2]))
    action()
    return seen


def test_a_listing_reads_no_outcomes_of_past_purges(purges):
    """What the table of removed items has is not read again, though a repository was not scanned for long."""
    for _ in range(5):
        purges.now += DAY
        purges.run("registry", Outcome.RECYCLED, "v1")
        purges.fold()
    shutil.rmtree(purges.root / "runs")

    assert [ImagePlace.IN_BIN, ImagePlace.PRESENT] == purges.places()


def test_a_listing_knows_runs_that_just_ended(purges):
    """Outcomes count that the table does not have yet, and so do bins that were emptied after them."""
    purges.now += DAY
    purges.run("registry", Outcome.RECYCLED, "v1")
    purges.fold()
    purges.run("registry", Outcome.DELETED, "v2")
    before = purges.places()
    purges.now += DAY
    purges.run("bin", Outcome.DELETED)
    after = purges.places()
    purges.now += DAY
    purges.scan()

    assert [ImagePlace.IN_BIN, ImagePlace.GONE] == before
    assert [ImagePlace.GONE, ImagePlace.GONE] == after
    assert [ImagePlace.PRESENT, ImagePlace.PRESENT] == purges.places()


def test_a_bin_that_was_emptied_before_an_image_went_there(purges):
    """An image that was recycled again after it had been emptied out of the bin is in the bin."""
    for collector, outcome, tag in (
        ("registry", Outcome.RECYCLED, "v1"),
        ("bin", Outcome.DELETED, None),
        ("registry", Outcome.RECYCLED, "v1"),
    ):
        purges.now += DAY
        purges.run(collector, outcome, tag)
        purges.fold()

    assert [ImagePlace.IN_BIN, ImagePlace.PRESENT] == purges.places()


def test_a_listing_makes_as_many_queries_after_many_runs_as_after_one(purges):
    """What the ledger is asked does not depend on how many runs ended before the scan."""
    counts = []
    for runs in (1, 10):
        for _ in range(runs):
            purges.now += DAY
            purges.run("registry", Outcome.RECYCLED, "v1")
            purges.run("bin", Outcome.DELETED)
        purges.fold()
        purges.scan()
        counts.append(len(queries(purges, purges.places)))

    assert counts[0] == counts[1]


def test_whether_a_run_may_have_removed_something(purges):
    """A run that ended at the moment or later counts, one that goes on too, and a mere plan does not."""
    context = RegistryContext(purges.root, purges.ledger, lambda: FIRST, SPEC, purges.records, owner=UID)
    found = [context.purged_since(FIRST)]
    Desk(purges.root, purges.ledger, UID).begin("registry")
    found.append(context.purged_since(FIRST))
    purges.now += DAY
    number = purges.run("registry", Outcome.DELETED, "v1")
    found += [context.purged_since(FIRST + DAY), context.purged_since(FIRST + DAY * 2)]
    asked = queries(purges, lambda: context.purged_since(FIRST + DAY * 2))
    going = Desk(purges.root, purges.ledger, UID).begin("registry")
    purges.ledger.planned(going, "hash", 1, 1)
    purges.ledger.move(going, RunState.APPROVED)
    found.append(context.purged_since(FIRST + DAY * 2))

    assert number < going
    assert [False, False, True, False, True] == found
    assert any("finished_at" in statement.partition("WHERE")[2] for statement in asked)
