"""Incidents of restic, kopia and git: programs that keep history and prune it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta

import pytest
from pyspark.sql import SparkSession
from tests.services.lake import RAW_30_DAYS, REPOSITORY, Lake, make_lake

from ebbtide.core.errors import Busy, EbbtideError, StalePlan
from ebbtide.core.manifest import Manifest
from ebbtide.state.runs import RunState
from ebbtide.targets.lake.catalog.catalog import Catalog

pytestmark = pytest.mark.spark


@dataclass(frozen=True)
class Told:
    """A lake after all stories of this file and one run over them."""

    lake: Lake
    addresses: dict[str, str]
    too_early: Manifest
    refusal: str
    stored_after_refusal: set[str]
    backups_refused: list[str]


def words_of(kind: type[EbbtideError], action: Callable[[], object]) -> str:
    """Say how an action was refused; nothing if it was not."""
    try:
        action()
    except kind as refused:
        return refused.what
    return ""


def forget_branches(lake: Lake) -> dict[str, str]:
    """Make two old branches of two commits, delete both, and name the last commit of one on day 35."""
    addresses = {}
    for branch in ("rescued", "lost"):
        lake.catalog.create_branch(REPOSITORY, branch, "main")
        addresses |= lake.upload(f"raw/{branch}-base", branch=branch)
        lake.commit(branch)
        lake.catalog.delete(REPOSITORY, branch, f"raw/{branch}-base")
        addresses |= lake.upload(f"raw/{branch}-tip", branch=branch)
        head = lake.commit(branch)
        lake.catalog.delete_branch(REPOSITORY, branch)
        if branch == "rescued":
            lake.day(35)
            lake.catalog.create_tag(REPOSITORY, "recent", head)
            lake.day(0)
    return addresses


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """Plan with a clock that runs ahead, put it right, plan again, and let an unlocker disturb the apply."""
    folder = tmp_path_factory.mktemp("backup-tools")
    lake = make_lake(spark, folder)
    lake.policy(RAW_30_DAYS)
    addresses = lake.upload("raw/old", "keep/1") | forget_branches(lake)
    lake.commit()
    lake.day(400)
    addresses |= lake.upload("raw/stamped-ahead")
    lake.commit()
    lake.day(39)
    addresses |= lake.upload("raw/young")
    lake.commit()
    lake.day(400)
    too_early = lake.plan()
    lake.day(40)
    refusal = words_of(StalePlan, lambda: lake.apply(too_early))
    stored, refused = lake.stored(), []
    backup = Catalog(f"sqlite:///{folder}/catalog.db", clock=lake.clock, fence_wait=timedelta(0))

    def unlock_and_back_up(step: str) -> None:
        if step == "batch 0 started":
            backup.open_fence(REPOSITORY, "somebody who thinks that the lock is stale")
            refused.append(words_of(Busy, lambda: backup.copy(REPOSITORY, "main", "raw/old", "keep/backup")))

    lake.apply(lake.plan(), on_step=unlock_and_back_up)
    backup.close()
    yield Told(lake, addresses, too_early, refusal, stored, refused)
    lake.close()


def test_restic_2452_an_unlock_while_prune_runs(told):
    """
    `restic unlock` took the lock from a prune that still ran, and backups then relied on what prune deleted.
    Ebbtide's gate opens only for the run that closed it, so nothing comes to refer to what it deletes.
    """
    keys = [entry.key for entry in told.lake.catalog.ls(REPOSITORY, "main", "keep/")]

    assert 1 == len(told.backups_refused)
    assert "is deleting objects of 'lake' right now" in told.backups_refused[0]
    assert ["keep/1"] == keys
    assert told.addresses["raw/old"] not in told.lake.stored()
    assert told.lake.catalog.fence_holder(REPOSITORY) is None


def test_kopia_clock_skew_a_clock_that_runs_ahead(told):
    """
    Maintenance trusted clocks that did not agree, and deleted what was younger than its safety margin.
    Ebbtide refuses a plan of a time that has not come, and what a fast clock has stamped only lives longer.
    """
    lake, addresses = told.lake, told.addresses
    kept = {key: lake.catalog.read(REPOSITORY, "main", key) for key in ("raw/young", "raw/stamped-ahead")}

    assert addresses["raw/young"] in lake.due(told.too_early)
    assert "this plan is for 2027-02-05" in told.refusal
    assert RunState.PLANNED == lake.state(told.too_early)
    assert set(addresses.values()) == told.stored_after_refusal
    assert {key: key.encode() for key in kept} == kept


def test_git_cruft_what_recent_objects_reach_is_rescued(told):
    """
    Recent unreachable objects were kept without the old ones that they need, until git rescued these too.
    Ebbtide keeps all that a tag reaches, so naming a forgotten commit saves its whole history.
    """
    lake, addresses = told.lake, told.addresses
    read = lake.catalog.read

    assert b"raw/rescued-tip" == read(REPOSITORY, "recent", "raw/rescued-tip")
    assert b"raw/rescued-base" == read(REPOSITORY, "recent~1", "raw/rescued-base")
    assert {addresses["raw/lost-tip"], addresses["raw/lost-base"]}.isdisjoint(lake.stored())
