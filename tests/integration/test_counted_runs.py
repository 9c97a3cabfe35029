"""Counted tables in whole runs: what is not whole stops a run, and what nobody counted is not applied."""

from __future__ import annotations

import shutil

import pytest
from tests.services.ebb import ebb
from tests.services.lake import REPOSITORY
from tests.services.old_state import old_state

from ebbtide.core.errors import MetadataError
from ebbtide.engine.run_folder import outcome_folders
from ebbtide.engine.tables import counted
from ebbtide.engine.tables.row_counts import RECORD
from ebbtide.state.runs import RunState
from ebbtide.targets.repository import ranges
from ebbtide.targets.repository.rules import stored_policy
from ebbtide.targets.repository.world import ONLY_WORLD, world_of

__all__ = ["ebb"]

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("table", ["snapshot", "plan"])
def test_a_table_that_executors_wrote_elsewhere_stops_the_plan(lake, monkeypatch, table):
    """Without the files of its ranges, or of the plan itself, there is no plan and nothing to apply."""
    record = counted.record_counts

    def elsewhere(folder, written):
        if folder.name == table:
            for file in list(folder.rglob("*.parquet")):
                file.unlink()
        record(folder, written)

    monkeypatch.setattr(counted, "record_counts", elsewhere)
    with pytest.raises(MetadataError, match="the driver finds 0 there") as stopped:
        lake.plan()

    assert 3 == stopped.value.exit_code
    assert [RunState.ABANDONED] == [run.state for run in lake.ledger.runs()]


def test_every_metarange_has_to_be_read(lake, monkeypatch):
    """A metarange that was handed to the executors and that none of them read stops the run."""
    snapshot = lake.catalog.snapshot(REPOSITORY)
    policy = stored_policy(lake.repository)
    worlds = {ONLY_WORLD: world_of(lake.repository, snapshot, policy, lake.clock())}
    whole = ranges.written_ranges(lake.spark, worlds, lake.shop.root / "whole")
    handed_out = ranges._metaranges
    monkeypatch.setattr(ranges, "_metaranges", lambda *given: handed_out(*given).where("number > 0"))

    assert 0 < whole.count()
    with pytest.raises(MetadataError, match=r"(\d) metaranges were to be read, and the executors read \d"):
        ranges.written_ranges(lake.spark, worlds, lake.shop.root / "part")


def test_a_plan_of_an_earlier_version_is_made_again(ebb, monkeypatch):
    """A plan of the version that counted no rows is not applied, and the error says to plan again."""
    with old_state() as folder:
        monkeypatch.chdir(folder)
        ebb.folder = folder
        said = ebb("apply", "4", "--yes", code=3)[1]
        states = {run["run_id"]: run["state"] for run in ebb.json("runs")}

    assert "plan 4 was made by an earlier version of Ebbtide" in said
    assert "plan again: ebb plan" in said
    assert "planned" == states[4]


def test_outcomes_that_were_counted_are_not_read_without_their_record(lake):
    """That an outcome table has no record is excused by the ledger alone: elsewhere it stops the run."""
    manifest = lake.plan()
    lake.apply(manifest)
    (folder,) = outcome_folders(lake.shop.root, lake.ledger, manifest.run_id)
    (folder / RECORD).unlink()

    with pytest.raises(MetadataError, match="is not whole"):
        lake.outcomes(manifest)
    shutil.rmtree(folder)
    with pytest.raises(MetadataError, match="is not whole"):
        lake.outcomes(manifest)
