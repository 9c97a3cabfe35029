"""The batch collector and the reaper side by side: what one took, the other reports as absent."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.services.lake import REPOSITORY, make_lake

from ebbtide.state.runs import RunState
from ebbtide.targets.lake.reaper import Reaper, ReapOptions

pytestmark = pytest.mark.spark

NO_GRACE = ReapOptions(grace=timedelta(0))


@pytest.fixture
def lake(spark, tmp_path):
    """Give an empty lake, at noon of its first day."""
    return make_lake(spark, tmp_path)


def reap(lake):
    """Reap all that is in the queue."""
    return Reaper(lake.catalog, NO_GRACE).reap(lake.catalog.reclaim_target(REPOSITORY))


def test_what_one_took_is_absent_for_the_other(lake):
    """The reaper takes some before a run is applied, the run takes others before the reaper comes."""
    kept = lake.upload("kept")
    first = lake.upload("a1", "a2")
    lake.catalog.reset(REPOSITORY, "main", "a")
    lake.day(2)
    early = lake.plan_uncommitted()
    reaped = reap(lake)
    lake.apply(early, override_breaker=True)
    second = lake.upload("b1", "b2", "b3", "b4")
    lake.catalog.reset(REPOSITORY, "main", "b")
    lake.day(4)
    late = lake.plan_uncommitted()
    lake.apply(late, override_breaker=True)
    afterwards = reap(lake)

    assert dict.fromkeys(first.values(), "absent") == {a: o for a, (o, _) in lake.outcomes(early).items()}
    assert dict.fromkeys(second.values(), "deleted") == {a: o for a, (o, _) in lake.outcomes(late).items()}
    assert ({"deleted": 2}, {"absent": 4}) == (reaped.outcomes, afterwards.outcomes)
    assert [RunState.SUCCEEDED] * 2 == [run.state for run in lake.ledger.runs()]
    assert set(kept.values()) == {key for key in lake.stored() if "/_gc/" not in key}


def test_what_was_reaped_while_a_run_was_planned_does_not_stop_it(lake, monkeypatch):
    """An object that came after the listing, was staged at the snapshot and is reaped is not lost data."""
    lake.upload("kept")
    real = lake.catalog.snapshot

    def meanwhile(repo):
        lake.upload("brief")
        found = real(repo)
        lake.catalog.reset(REPOSITORY, "main", "brief")
        reap(lake)
        return found

    monkeypatch.setattr(lake.catalog, "snapshot", meanwhile)
    manifest = lake.plan_uncommitted()

    assert 0 == manifest.summary.due.objects
    assert 1 == len(lake.stored())
