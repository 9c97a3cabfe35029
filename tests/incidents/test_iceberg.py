"""Incidents of Apache Iceberg: expiring snapshots and removing orphan files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest
from pyspark.sql import SparkSession
from tests.incidents.outsiders import data_files, held_by, make_undeletable
from tests.services.lake import RAW_30_DAYS, REPOSITORY, Lake, make_lake

from ebbtide.core.errors import PartlyApplied
from ebbtide.core.manifest import Manifest
from ebbtide.engine.run_tables import outcome_tallies

pytestmark = pytest.mark.spark

SHORT_LIVED = ("w-returned", "w-shared", "w-flight")
"""Branches on which a rule gives three days; all other branches keep work/ for ever."""
POLICY = RAW_30_DAYS | {"old-work": {"prefix": "work/", "branch_days": dict.fromkeys(SHORT_LIVED, 3)}}


@dataclass(frozen=True)
class Told:
    """A lake after all stories of this file and one run over them."""

    lake: Lake
    manifest: Manifest
    addresses: dict[str, str]
    before: set[str]

    def read(self, ref: str, key: str) -> bytes:
        """Read an object back."""
        return self.lake.catalog.read(REPOSITORY, ref, key)

    def holder(self, key: str) -> str:
        """Say what held an object that a rule touched."""
        return held_by(self.lake, self.manifest)[self.addresses[key]]


def upload_and_commit(lake: Lake, branch: str, *keys: str) -> dict[str, str]:
    """Make a commit of new objects and give their addresses."""
    addresses = lake.upload(*keys, branch=branch)
    lake.commit(branch)
    return addresses


def tell_stories(lake: Lake) -> dict[str, str]:
    """Play, from day 0 to day 40, what comes before the run; give all addresses by key."""
    catalog = lake.catalog
    for branch in (*SHORT_LIVED, "travel", "late"):
        catalog.create_branch(REPOSITORY, branch, "main")
    addresses = upload_and_commit(lake, "travel", "raw/travelled")
    catalog.create_tag(REPOSITORY, "v1", "travel")
    catalog.delete(REPOSITORY, "travel", "raw/travelled")
    lake.commit("travel")
    addresses |= upload_and_commit(lake, "travel", "raw/travelled-2")

    addresses |= upload_and_commit(lake, "w-returned", "work/returned")
    catalog.delete(REPOSITORY, "w-returned", "work/returned")
    lake.commit("w-returned")
    catalog.revert(REPOSITORY, "main", "w-returned")

    addresses |= upload_and_commit(lake, "w-shared", "work/shared", "work/neighbour")
    catalog.create_branch(REPOSITORY, "newest", "w-shared")
    catalog.delete(REPOSITORY, "newest", "work/neighbour")
    lake.commit("newest")

    addresses |= upload_and_commit(lake, "w-flight", "work/inflight")
    addresses |= upload_and_commit(lake, "main", "raw/readded", "raw/stuck", "raw/done-1", "raw/done-2")
    lake.day(35)
    catalog.move(REPOSITORY, "main", "raw/readded", "raw/elsewhere")
    catalog.move(REPOSITORY, "main", "raw/elsewhere", "raw/readded")
    lake.commit()
    lake.day(40)
    return addresses


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """Tell all stories on one lake, then plan and apply once; a merge lands while the plan is made."""
    lake = make_lake(spark, tmp_path_factory.mktemp("iceberg"))
    lake.policy(POLICY)
    addresses = tell_stories(lake)

    def land(step: str) -> None:
        if step == "ranges listed":
            lake.catalog.merge(REPOSITORY, "w-flight", "late")

    manifest = lake.plan(on_step=land)
    make_undeletable(lake, addresses["raw/stuck"])
    before = data_files(lake)
    with suppress(PartlyApplied):
        lake.apply(manifest)
    yield Told(lake, manifest, addresses, before)
    lake.close()


def test_iceberg_17304_a_file_removed_and_added_again_in_one_commit(told):
    """
    A commit removed a file and added it again, and expiry saw the removal and deleted the live file.
    Ebbtide asks who refers to an object, not what a commit changed, so the new entry holds it.
    """
    then, now = (told.lake.catalog.stat(REPOSITORY, ref, "raw/readded") for ref in ("main~1", "main"))

    assert then.address == now.address
    assert then.created < now.created
    assert "raw/readded on branch main" == told.holder("raw/readded")
    assert b"raw/readded" == told.read("main", "raw/readded")


def test_iceberg_8255_a_deleted_file_that_a_later_commit_adds_again(told):
    """
    A file was added, deleted and added again, and expiring the deletion in the middle deleted the file.
    Ebbtide keeps it for the commit that brought it back, although the branch it came from has let go of it.
    """
    assert "work/returned on branch main" == told.holder("work/returned")
    assert b"work/returned" == told.read("main", "work/returned")


def test_iceberg_10982_time_travel_to_before_a_deletion(told):
    """
    Expiring the snapshot that had deleted a file deleted it, although an earlier snapshot was kept.
    Ebbtide keeps all that a tag reaches, so one can still travel to before the deletion.
    """
    assert "raw/travelled under tag v1" == told.holder("raw/travelled")
    assert b"raw/travelled" == told.read("v1", "raw/travelled")


def test_iceberg_13568_a_file_of_the_newest_of_several_refs(told):
    """
    With several refs expiry compared with an older one, and deleted files that only newer manifests named.
    Ebbtide takes the latest lapse over all branches that reach an object, whichever range names it.
    """
    assert "work/shared on branch newest" == told.holder("work/shared")
    assert b"work/shared" == told.read("newest", "work/shared")


def test_iceberg_4194_a_commit_in_flight(told):
    """
    Orphan removal deleted files of a job that had not committed yet, and the table could not be read.
    Ebbtide verifies again before it deletes, so a merge that lands after its snapshot keeps its objects.
    """
    address = told.addresses["work/inflight"]
    outcome, reason = told.lake.outcomes(told.manifest)[address]

    assert address in told.lake.due(told.manifest)
    assert "changed" == outcome
    assert "work/inflight on branch late" in reason
    assert b"work/inflight" == told.read("late", "work/inflight")


def test_iceberg_14886_a_report_that_counts_attempts(told):
    """
    The number of deleted orphan files counted attempts, those that had failed too.
    Ebbtide counts what the store confirmed, which is what is gone from the disk.
    """
    counted = outcome_tallies(told.lake.shop.root, told.lake.ledger, told.manifest.run_id)
    gone = told.before - data_files(told.lake)

    assert {told.addresses[key] for key in ("raw/travelled-2", "raw/done-1", "raw/done-2")} == gone
    assert len(gone) == counted["deleted"].objects
    assert sum(len(key) for key, address in told.addresses.items() if address in gone) == (
        counted["deleted"].bytes
    )
    assert 1 == counted["failed"].objects


def test_iceberg_7937_a_crash_strands_no_files(spark, tmp_path):
    """
    Expiry forgot the snapshots first, so a crash among the deletes left files that no later expiry found.
    Ebbtide forgets nothing before it is gone: a new plan finds just what the interrupted run left.
    """
    lake = make_lake(spark, tmp_path)
    lake.policy(RAW_30_DAYS)
    addresses = lake.upload(*(f"raw/{number}" for number in range(20)), "keep/1")
    lake.commit()
    lake.day(40)
    manifest, before = lake.plan(batch_size=10), lake.stored()

    def crash(step: str) -> None:
        if step.endswith("finished") and lake.stored() < before:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lake.apply(manifest, on_step=crash)
    left = lake.stored() - {addresses["keep/1"]}
    again = lake.plan()

    assert 0 < len(left) < 20
    assert left == lake.due(again)
    assert len(left) == lake.apply(again).freed.objects
    assert {addresses["keep/1"]} == lake.stored()
