"""Uncommitted garbage on a real lake: what goes, what stays, and what a run builds on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa
import pytest
from tests.services.lake import REPOSITORY, Lake, make_lake

from ebbtide.core.errors import LiveObjectMissing
from ebbtide.core.manifest import Manifest
from ebbtide.state.runs import RunState
from ebbtide.storage.store import DeleteRequest
from ebbtide.targets.lake.catalog.partitions import branch_path
from ebbtide.targets.lake.catalog.ranges import ENTRIES
from ebbtide.targets.repository.sweeps import state_from_json, state_key

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(spark, tmp_path):
    """Give an empty lake, at noon of its first day."""
    return make_lake(spark, tmp_path)


def path_of(lake, branch="main"):
    """Name the folder of a branch's objects."""
    repository = lake.catalog.repository(REPOSITORY)
    return branch_path(repository.uid, lake.catalog.branch_ids(REPOSITORY)[branch])


def finish(lake, manifest):
    """Apply a plan, however much of the lake it takes."""
    lake.apply(manifest, override_breaker=True)


@dataclass
class Swept:
    """A lake that was swept, what was written to it before, and what lay there when it was planned."""

    lake: Lake
    manifest: Manifest
    head: str
    garbage: set[str]
    used: set[str]
    strangers: set[str]
    notes: list[str]
    """What earlier runs had left on the branch path when the plan was made."""


def write_strangers(lake, place):
    """Write files that are no data objects by the path convention, among those that are and elsewhere."""
    strangers = {
        "_lakefs/stray.json",
        "_lakefs/committed/readme.txt",
        "at the root",
        "elsewhere/data.parquet",
        "repos/other/branches/b/0/0",
        f"{path_of(lake)}directly on the branch path",
        f"{place}/a file: with spaces",
        f"{place}/ünïcode",
        f"{place}/deeper/{'0' * 32}",
        f"{path_of(lake)}no partition/{'1' * 32}",
    }
    for key in strangers:
        lake.write(key, b"stranger")
    return strangers


@pytest.fixture(scope="module")
def swept(spark, tmp_path_factory):
    """Sweep a lake with garbage of each kind, with what is in use, and with files of strangers."""
    lake = make_lake(spark, tmp_path_factory.mktemp("swept"))
    used = lake.upload("a", "b")
    overwritten = lake.upload("c")
    used |= lake.upload("c")
    head = lake.commit()
    reset = lake.upload("d")
    lake.catalog.reset(REPOSITORY, "main")
    lake.catalog.create_branch(REPOSITORY, "other", "main")
    left = lake.upload("e", "f", branch="other")
    lake.catalog.delete_branch(REPOSITORY, "other")
    staged = lake.upload("g")
    dropped = lake.upload("x")
    lake.catalog.delete(REPOSITORY, "main", "x")
    strangers = write_strangers(lake, dropped["x"].rpartition("/")[0])
    lake.day(2)
    manifest = lake.plan_uncommitted()
    notes = lake.listing(path_of(lake) + "_gc/")
    finish(lake, manifest)
    garbage = {*overwritten.values(), *reset.values(), *left.values(), *dropped.values()}
    return Swept(lake, manifest, head, garbage, {*used.values(), *staged.values()}, strangers, notes)


def test_what_nothing_references_goes(swept):
    """An upload that was overwritten, dropped, reset or left by a deleted branch is due after a day."""
    stored = {key for key in swept.lake.stored() if "/_gc/" not in key}

    assert swept.garbage == swept.lake.due(swept.manifest)
    assert swept.used == stored - swept.strangers


def test_nothing_is_garbage_before_the_grace_period_is_over(lake):
    """An unreferenced object is held until a day after it was written, to the microsecond."""
    lake.upload("kept")
    lake.upload("a")
    lake.catalog.delete(REPOSITORY, "main", "a")
    ripe = lake.clock() + timedelta(days=1)
    early = lake.plan_uncommitted(now=ripe - timedelta(microseconds=1))

    assert 0 == early.summary.due.objects
    assert 1 == early.summary.held.objects


def test_an_object_that_was_merged_stays(lake):
    """The merge trap: uploaded on a branch, merged, the branch deleted and its path swept: it stays."""
    lake.catalog.create_branch(REPOSITORY, "a", "main")
    merged = lake.upload("x", branch="a")
    lake.commit("a")
    lost = lake.upload("y", branch="a")
    lake.catalog.merge(REPOSITORY, "a", "main")
    lake.catalog.delete_branch(REPOSITORY, "a")
    lake.day(2)
    manifest = lake.plan_uncommitted(branch="a")

    assert set(lost.values()) == lake.due(manifest)
    finish(lake, manifest)
    assert b"x" == lake.catalog.read(REPOSITORY, "main", "x")
    assert set(merged.values()) <= lake.stored()


def test_strangers_are_left_alone(swept):
    """Files that are no data objects by the path convention neither break a run nor are deleted."""
    assert swept.strangers <= set(swept.lake.listing())


def test_a_referenced_object_that_is_missing_stops_the_run(lake):
    """If a reference names what the listing has not, nothing is planned, and the error names it."""
    lost = lake.upload("lost", "found")["lost"]
    lake.commit()
    lake.upload("x")
    lake.catalog.delete(REPOSITORY, "main", "x")
    lake.store.delete([DeleteRequest(lost)])
    lake.day(2)
    with pytest.raises(LiveObjectMissing) as stopped:
        lake.plan_uncommitted()

    assert 3 == stopped.value.exit_code
    assert (f"lost on branch main: {lost}",) == stopped.value.details
    assert RunState.ABANDONED == lake.ledger.runs()[-1].state


def test_what_ebbtide_deleted_is_expected_to_be_missing(lake):
    """Objects that a lifecycle run took away do not stop a sweep."""
    lake.policy({"all": {"prefix": "old/", "days": 1}})
    lake.upload("old/1", "new/1")
    lake.commit()
    lake.day(5)
    finish(lake, lake.plan())
    garbage = lake.upload("x")
    lake.catalog.delete(REPOSITORY, "main", "x")
    lake.day(7)

    assert set(garbage.values()) == lake.due(lake.plan_uncommitted())


def test_an_upload_in_flight_is_never_collected(lake):
    """As long as a token is open its object is held, however old; when it has expired it is garbage."""
    lake.upload("kept")
    lake.catalog._token_life = timedelta(days=5)
    given = lake.catalog.get_physical_address(REPOSITORY, "main", "x")
    lake.write(given.address, b"x")
    lake.day(3)
    held = lake.plan_uncommitted()
    lake.day(6)

    assert set() == lake.due(held)
    assert 1 == held.summary.held.objects
    assert {given.address} == lake.due(lake.plan_uncommitted())


def test_a_run_that_succeeded_leaves_its_state(swept):
    """GC commit, last read partition and newest commit are saved on the branch path, after apply alone."""
    state = state_from_json(swept.lake.store.read(state_key(path_of(swept.lake))).decode())

    assert [] == swept.notes
    assert (1, swept.head, swept.manifest.run_id, 0) == (
        state.staged,
        state.newest_commit,
        state.run_id,
        state.optimized_runs,
    )
    assert state.gc_commit is not None
    assert state.last_partition is not None


def test_an_optimized_run_lists_what_is_new(lake):
    """After a run that succeeded the next lists new partitions alone, and still finds what was unstaged."""
    lake.upload("a")
    was_staged = lake.upload("b")
    lake.day(3)
    finish(lake, lake.plan_uncommitted())
    lake.day(6)
    new = lake.upload("c")
    lake.catalog.delete(REPOSITORY, "main", "b")
    lake.catalog.delete(REPOSITORY, "main", "c")
    lake.day(8)
    optimized, clean = lake.plan_uncommitted(), lake.plan_uncommitted(clean=True)

    assert {*was_staged.values(), *new.values()} == lake.due(optimized) == lake.due(clean)
    assert (0, 1) == (optimized.snapshot["clean_runs"], clean.snapshot["clean_runs"])


def test_garbage_that_is_imported_after_the_plan_stays(lake):
    """Any reference takes garbage out of a plan, and then the run has not settled its partition."""
    lake.upload("kept")
    garbage = lake.upload("x", "y")
    lake.catalog.reset(REPOSITORY, "main", "x")
    lake.catalog.reset(REPOSITORY, "main", "y")
    lake.day(2)
    manifest = lake.plan_uncommitted()
    row = {"key": "again", "address": garbage["x"], "created": lake.clock(), "size": 1, "checksum": ""}
    lake.catalog.commit(REPOSITORY, "main", "kept")
    lake.catalog.import_entries(REPOSITORY, "main", [pa.Table.from_pylist([row], ENTRIES)], "import")
    finish(lake, manifest)

    assert set(garbage.values()) == lake.due(manifest)
    assert {"x": "changed", "y": "deleted"} == {k: lake.outcomes(manifest)[a][0] for k, a in garbage.items()}
    assert b"x" == lake.catalog.read(REPOSITORY, "main", "again")
    assert [] == lake.listing(path_of(lake) + "_gc/")
