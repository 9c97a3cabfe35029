"""From a plan to its outcomes, on a real catalog, a real folder and a real Spark."""

from __future__ import annotations

import csv
import io
from datetime import timedelta

import pyarrow.parquet as pq
import pytest
from tests.services.lake import FIRST_DAY, REPOSITORY, Lake

from ebbtide.core.breaker import BreakerLimits
from ebbtide.core.errors import BreakerTripped, Busy, ObjectGone, StalePlan, StoreError
from ebbtide.core.instant import format_instant
from ebbtide.core.manifest import Tally
from ebbtide.state.runs import RunState

pytestmark = pytest.mark.spark

OLD = "main~1"
"""The commit of day 0."""
DUE = ["raw/1", "raw/2", "raw/3", "raw/4", "raw/6"]
"""What is due on day 40, as the commit of day 0 names it."""


def addresses(lake: Lake, keys: list[str], ref: str = OLD) -> set[str]:
    """Give the addresses of some keys in a version."""
    return {lake.catalog.stat(REPOSITORY, ref, key).address for key in keys}


def rows_of(lake: Lake, prefix: str) -> list[dict]:
    """Read all Parquet objects below a prefix of the store."""
    tables = [pq.read_table(io.BytesIO(lake.store.read(key))) for key in lake.listing(prefix)]
    return [row for table in tables for row in table.to_pylist()]


def test_a_plan_deletes_nothing(lake):
    """Planning leaves every data object where it is and says which are due and which are held."""
    before = lake.stored()
    manifest = lake.plan()

    assert before == lake.stored()
    assert addresses(lake, DUE) == lake.due(manifest)
    assert (5, 2) == (manifest.summary.due.objects, manifest.summary.held.objects)
    assert RunState.PLANNED == lake.state(manifest)


def test_apply_deletes_what_is_due_and_nothing_else(lake):
    """After apply exactly the due objects are gone, and every key of the head but those reads as before."""
    before, due = lake.stored(), addresses(lake, DUE)
    manifest = lake.plan()
    applied = lake.apply(manifest)

    kept = ["keep/1", "keep/2", "keep/shared", "raw/5", "raw/6"]
    contents = {key: lake.catalog.read(REPOSITORY, "main", key) for key in kept}
    wanted = {key: key.encode() for key in kept} | {"keep/shared": b"raw/5"}

    assert before - due == lake.stored()
    assert wanted == contents
    assert {"deleted": Tally("deleted", 5, 25)} == applied.outcomes
    assert dict.fromkeys(due, ("deleted", "")) == lake.outcomes(manifest)
    assert RunState.SUCCEEDED == lake.state(manifest)


def test_applying_twice_does_nothing_more(lake):
    """A plan that succeeded is not applied again, not even a day later: nothing at all changes."""
    manifest = lake.plan()
    first = lake.apply(manifest)
    before, attempts = lake.listing(), lake.ledger.batch_attempts(manifest.run_id)
    lake.day(41)
    second = lake.apply(manifest)

    assert (False, True) == (first.already_applied, second.already_applied)
    assert first.outcomes == second.outcomes
    assert before == lake.listing()
    assert attempts == lake.ledger.batch_attempts(manifest.run_id)


def test_what_is_deleted_is_not_planned_again(lake):
    """The next plan holds neither what a run deleted nor a word about it."""
    lake.apply(lake.plan())
    lake.day(41)
    again = lake.plan()

    assert (0, 2) == (again.summary.due.objects, again.summary.held.objects)
    assert {} == lake.apply(again).outcomes
    assert RunState.SUCCEEDED == lake.state(again)


def test_objects_that_vanished_by_themselves_are_absent(lake):
    """An object that somebody else deleted since the plan is `absent`, and that is fine."""
    manifest = lake.plan()
    gone = lake.catalog.stat(REPOSITORY, OLD, "raw/1").address
    (lake.shop.root.parent / "objects" / gone).unlink()
    applied = lake.apply(manifest)

    assert {"absent": 1, "deleted": 4} == {name: tally.objects for name, tally in applied.outcomes.items()}
    assert ("absent", "") == lake.outcomes(manifest)[gone]
    assert RunState.SUCCEEDED == lake.state(manifest)


def test_reading_a_deleted_object_says_who_took_it(lake):
    """A reader learns since when the object is gone, by which run and which rule, and that it stays gone."""
    manifest = lake.plan()
    lake.apply(manifest)
    with pytest.raises(ObjectGone) as gone:
        lake.catalog.read(REPOSITORY, OLD, "raw/1")

    found = (gone.value.run_id, gone.value.rules, gone.value.restorable)

    assert (manifest.run_id, ("old-raw",), False) == found
    assert abs(gone.value.since - lake.clock()) < timedelta(minutes=5)
    assert addresses(lake, ["raw/1"]) == {gone.value.address}


def test_the_outputs_that_the_seed_names(lake):
    """Policy, addresses by date and the day's statistics lie under _lakefs/retention/lc and hold the run."""
    manifest = lake.plan()
    lake.apply(manifest)
    policy = rows_of(lake, "_lakefs/retention/lc/policy/")
    planned = rows_of(lake, "_lakefs/retention/lc/addresses/date=2026-02-10/")
    stats = list(
        csv.DictReader(io.StringIO(lake.store.read("_lakefs/retention/lc/stats/2026-02-10.csv").decode()))
    )

    date = (FIRST_DAY + timedelta(days=10)).date()
    rule = {"run_id": 1, "rule_id": "old-raw", "prefix": "raw/", "branch": "", "date_to_be_deleted": date}
    expected = {(1, lake.catalog.stat(REPOSITORY, OLD, key).address, (key,), ("old-raw",)) for key in DUE}
    found = {(r["run_id"], r["address"], tuple(r["paths"]), tuple(r["matched_rules"])) for r in planned}
    counted = {
        "run_id": "1",
        "finished_at": format_instant(lake.clock()),
        "plan_hash": manifest.plan_hash,
        "outcome": "deleted",
        "objects": "5",
        "bytes": "25",
    }

    assert [rule] == policy
    assert expected == found
    assert len(DUE) == len(planned)
    assert [counted] == stats


def test_statistics_that_cannot_be_written_are_written_later(lake):
    """A run whose statistics cannot be written has succeeded and says so; applied again, it writes them."""
    manifest = lake.plan()
    place = lake.shop.root.parent / "objects/_lakefs/retention/lc/stats"
    place.write_text("in the way")
    with pytest.raises(StoreError, match="run 1 succeeded, but its statistics"):
        lake.apply(manifest)
    state, left = lake.state(manifest), lake.stored()
    place.unlink()
    lake.apply(manifest)

    assert RunState.SUCCEEDED == state == lake.state(manifest)
    assert left == lake.stored()
    assert b"deleted,5,25" in lake.store.read("_lakefs/retention/lc/stats/2026-02-10.csv")


def test_the_breaker_stops_a_plan_that_is_too_large(lake):
    """A plan above the limits deletes nothing until somebody overrides the breaker, then it is applied."""
    manifest, before = lake.plan(), lake.stored()
    limits = BreakerLimits(max_delete_fraction=0.4, min_objects=1)
    with pytest.raises(BreakerTripped, match="the limit is 40%"):
        lake.apply(manifest, limits=limits)

    assert before == lake.stored()
    assert RunState.PLANNED == lake.state(manifest)

    assert 5 == lake.apply(manifest, limits=limits, override_breaker=True).freed.objects


def test_the_breaker_does_not_count_what_is_gone_already(lake):
    """A plan that deletes all that is left trips the breaker, however much earlier runs have deleted."""
    lake.apply(lake.plan())
    lake.policy({"everything": {"prefix": "", "days": 1}})
    lake.day(100)
    manifest = lake.plan()

    assert 4 == manifest.summary.due.objects == len(lake.stored())
    assert 4 == manifest.summary.known_objects
    with pytest.raises(BreakerTripped, match="nothing would be left"):
        lake.apply(manifest)


def test_a_plan_for_the_future_is_refused(lake):
    """A plan of what will be due tomorrow cannot be applied today, but it can tomorrow."""
    manifest = lake.plan(now=lake.clock() + timedelta(days=1))
    with pytest.raises(StalePlan, match="what would be due at 2026-02-11"):
        lake.apply(manifest)
    lake.day(41)

    assert 5 == lake.apply(manifest).freed.objects


def test_a_plan_that_is_too_old_is_refused(lake):
    """A plan older than it may be is refused and deletes nothing."""
    manifest, before = lake.plan(), lake.stored()
    lake.day(48)
    with pytest.raises(StalePlan, match="more than 7 days ago"):
        lake.apply(manifest)

    assert before == lake.stored()
    assert 5 == lake.apply(manifest, max_plan_age=timedelta(days=8)).freed.objects


def test_two_applies_at_once(lake):
    """While one apply is at work a second one, and a new plan, are told that the target is in use."""
    manifest, refused = lake.plan(batch_size=3), []

    def meanwhile(step: str) -> None:
        if step == "batch 0 finished":
            for attempt in (lambda: lake.apply(manifest), lake.plan):
                with pytest.raises(Busy, match=r"in use by ebb apply 1 \(process \d+\)") as busy:
                    attempt()
                refused.append(busy.value.exit_code)

    applied = lake.apply(manifest, on_step=meanwhile)

    assert [3, 3] == refused
    assert 5 == applied.freed.objects
