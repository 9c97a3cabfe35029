"""From a plan to its outcomes on a lake, beyond what the contract shows of all kinds of targets."""

from __future__ import annotations

import csv
import io
from datetime import timedelta

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.services.lake import FIRST_DAY, REPOSITORY, Lake, sample_lake

from ebbtide.core.breaker import BreakerLimits
from ebbtide.core.errors import BreakerTripped, Busy, ObjectGone, StalePlan, StoreError
from ebbtide.core.instant import format_instant
from ebbtide.core.manifest import Manifest, Tally
from ebbtide.engine.apply import Applied
from ebbtide.state.runs import RunState

pytestmark = pytest.mark.spark

OLD = "main~1"
"""The commit of day 0."""
DUE = ["raw/1", "raw/2", "raw/3", "raw/4", "raw/6"]
"""What is due on day 40, as the commit of day 0 names it."""


Run = tuple[Lake, Manifest, Applied]


def addresses(lake: Lake, keys: list[str], ref: str = OLD) -> set[str]:
    """Give the addresses of some keys in a version."""
    return {lake.catalog.stat(REPOSITORY, ref, key).address for key in keys}


def rows_of(lake: Lake, prefix: str) -> list[dict]:
    """Read all Parquet objects below a prefix of the store."""
    tables = [pq.read_table(io.BytesIO(lake.store.read(key))) for key in lake.listing(prefix)]
    return [row for table in tables for row in table.to_pylist()]


@pytest.fixture(scope="module")
def applied(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Apply a plan after another program has deleted one of its objects, raw/1."""
    lake = sample_lake(spark, tmp_path_factory.mktemp("applied"))
    manifest = lake.plan()
    (lake.shop.root.parent / "objects" / lake.catalog.stat(REPOSITORY, OLD, "raw/1").address).unlink()
    return lake, manifest, lake.apply(manifest)


def test_what_is_due_goes_and_every_other_key_reads_as_before(applied):
    """All planned objects have an outcome, and every key of the head but those reads as before."""
    lake, manifest, done = applied
    kept = ["keep/1", "keep/2", "keep/shared", "raw/5", "raw/6"]
    contents = {key: lake.catalog.read(REPOSITORY, "main", key) for key in kept}

    assert {key: key.encode() for key in kept} | {"keep/shared": b"raw/5"} == contents
    assert {"absent": Tally("absent", 1, 5), "deleted": Tally("deleted", 4, 20)} == done.outcomes
    assert addresses(lake, DUE) == lake.due(manifest) == set(lake.outcomes(manifest))
    assert RunState.SUCCEEDED == lake.state(manifest)


def test_objects_that_vanished_by_themselves_are_absent(applied):
    """An object that somebody else deleted since the plan is `absent`, and that is fine."""
    lake, manifest, _ = applied
    (gone,) = addresses(lake, ["raw/1"])
    others = addresses(lake, DUE) - {gone}

    assert {gone: ("absent", "")} | dict.fromkeys(others, ("deleted", "")) == lake.outcomes(manifest)


def test_reading_a_deleted_object_says_who_took_it(applied):
    """A reader learns since when the object is gone, by which run and which rule, and that it stays gone."""
    lake, manifest, _ = applied
    with pytest.raises(ObjectGone) as gone:
        lake.catalog.read(REPOSITORY, OLD, "raw/2")

    found = (gone.value.run_id, gone.value.rules, gone.value.restorable)

    assert (manifest.run_id, ("old-raw",), False) == found
    assert abs(gone.value.since - lake.clock()) < timedelta(minutes=5)
    assert addresses(lake, ["raw/2"]) == {gone.value.address}


def test_the_outputs_that_the_seed_names(applied):
    """Policy, addresses by date and the day's statistics lie under _lakefs/retention/lc and hold the run."""
    lake, manifest, _ = applied
    policy = rows_of(lake, "_lakefs/retention/lc/policy/")
    planned = rows_of(lake, "_lakefs/retention/lc/addresses/date=2026-02-10/")
    stats = list(
        csv.DictReader(io.StringIO(lake.store.read("_lakefs/retention/lc/stats/2026-02-10.csv").decode()))
    )

    date = (FIRST_DAY + timedelta(days=10)).date()
    rule = {"run_id": 1, "rule_id": "old-raw", "prefix": "raw/", "branch": "", "date_to_be_deleted": date}
    expected = {(1, lake.catalog.stat(REPOSITORY, OLD, key).address, (key,), ("old-raw",)) for key in DUE}
    found = {(r["run_id"], r["address"], tuple(r["paths"]), tuple(r["matched_rules"])) for r in planned}
    run = {"run_id": "1", "finished_at": format_instant(lake.clock()), "plan_hash": manifest.plan_hash}
    counted = [
        run | {"outcome": outcome, "objects": objects, "bytes": size}
        for outcome, objects, size in (("absent", "1", "5"), ("deleted", "4", "20"))
    ]

    assert [rule] == policy
    assert expected == found
    assert len(DUE) == len(planned)
    assert counted == sorted(stats, key=lambda row: row["outcome"])


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


def test_a_plan_is_applied_in_its_time_and_within_the_limits(lake):
    """A plan for tomorrow is refused today, and later if it is too old or too large; nothing is deleted."""
    manifest, before = lake.plan(now=lake.clock() + timedelta(days=1)), lake.stored()
    limits = BreakerLimits(max_delete_fraction=0.4, min_objects=1)
    with pytest.raises(StalePlan, match="this plan is for 2026-02-11"):
        lake.apply(manifest)
    lake.day(48)
    with pytest.raises(StalePlan, match="more than 7 days ago"):
        lake.apply(manifest)
    with pytest.raises(BreakerTripped, match="the limit is 40%"):
        lake.apply(manifest, limits=limits, max_plan_age=timedelta(days=8))

    assert before == lake.stored()
    assert RunState.PLANNED == lake.state(manifest)

    applied = lake.apply(manifest, limits=limits, max_plan_age=timedelta(days=8), override_breaker=True)

    assert 5 == applied.freed.objects


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
