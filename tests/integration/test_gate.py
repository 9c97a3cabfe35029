"""References that are made while apply is at work: until the gate closes they count, then they wait."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.services.lake import RAW_30_DAYS, REPOSITORY, Lake, sample_lake
from tests.services.runs import check_lake

from ebbtide.core.errors import Busy, EbbtideError, NotFound, ObjectGone, StalePlan
from ebbtide.core.manifest import Manifest
from ebbtide.engine import actor
from ebbtide.engine.apply import Applied, ApplyOptions
from ebbtide.state.locks import target_lock
from ebbtide.state.runs import RunState
from ebbtide.targets.lake.catalog.catalog import Catalog
from ebbtide.targets.repository.collector import RepositoryCollector
from ebbtide.targets.repository.rules import stored_rules

pytestmark = pytest.mark.spark

OTHER_DAYS = {"old-raw": {"prefix": "raw/", "days": 31}}


def target_of(lake: Lake) -> RepositoryCollector:
    """Give the repository as apply sees it."""
    rules = stored_rules(lake.repository, lifecycle=True)
    return RepositoryCollector(lake.shop.context, lake.repository, rules)


def gate_of(lake: Lake) -> str | None:
    """Say who keeps the gate closed."""
    return lake.catalog.fence_holder(REPOSITORY)


def missing_objects(lake: Lake, prefix: str) -> list[str]:
    """List the keys of a prefix whose object is not there."""
    there = lake.stored()
    return [entry.key for entry in lake.catalog.ls(REPOSITORY, "main", prefix) if entry.address not in there]


@dataclass
class Meanwhile:
    """A lake, and what its users did and were told while a batch was deleted."""

    lake: Lake
    manifest: Manifest
    applied: Applied
    refused: Busy
    patient: Future[Any]
    still_waiting: bool


@pytest.fixture(scope="module")
def meanwhile(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Meanwhile]:
    """Apply a plan; meanwhile one user copies and does not wait, one copies and waits, and one uploads."""
    folder = tmp_path_factory.mktemp("meanwhile")
    lake = sample_lake(spark, folder)
    known = {"clock": lake.clock, "removed_items": lake.catalog._removed_items}
    hasty = Catalog(f"sqlite:///{folder}/catalog.db", fence_wait=timedelta(0), **known)
    other = Catalog(f"sqlite:///{folder}/catalog.db", fence_wait=timedelta(minutes=5), **known)
    manifest, seen = lake.plan(), {}
    with ThreadPoolExecutor(1) as pool:

        def use(step: str) -> None:
            if step == "batch 0 started":
                with pytest.raises(Busy) as seen["refused"]:
                    hasty.copy(REPOSITORY, "main", "raw/1", "keep/hasty")
                seen["patient"] = pool.submit(other.copy, REPOSITORY, "main", "raw/1", "keep/mine")
                lake.upload("raw/new")
                lake.commit()
            if step == "batch 0 deleted":
                seen["waiting"] = not wait([seen["patient"]], timeout=0.5).done

        applied = lake.apply(manifest, on_step=use)
        wait([seen["patient"]], timeout=300)
    yield Meanwhile(lake, manifest, applied, seen["refused"].value, seen["patient"], seen["waiting"])
    hasty.close()
    other.close()


def test_a_copy_during_a_batch_waits_and_finds_the_object_gone(meanwhile):
    """A copy of an object that is being deleted does not get in before it is gone, and is told who did it."""
    with pytest.raises(ObjectGone, match=f"run {meanwhile.manifest.run_id} deleted it"):
        meanwhile.patient.result(timeout=0)

    assert meanwhile.still_waiting
    assert 5 == meanwhile.applied.freed.objects
    assert [] == missing_objects(meanwhile.lake, "keep/")
    assert gate_of(meanwhile.lake) is None


def test_who_does_not_want_to_wait_is_refused(meanwhile):
    """A copy during a batch that runs out of patience says which run is at work, and refers to nothing."""
    assert f"run {meanwhile.manifest.run_id} is deleting objects of 'lake'" in str(meanwhile.refused)
    with pytest.raises(NotFound):
        meanwhile.lake.catalog.stat(REPOSITORY, "main", "keep/hasty")


def test_uploads_during_a_batch_go_on(meanwhile):
    """Uploads and commits do not wait for a run that is deleting, nor disturb it."""
    assert RunState.SUCCEEDED == meanwhile.lake.state(meanwhile.manifest)
    assert b"raw/new" == meanwhile.lake.catalog.read(REPOSITORY, "main", "raw/new")


@pytest.mark.parametrize("times", [1, pytest.param(4, marks=pytest.mark.long)])
def test_copies_between_the_last_look_and_the_gate_keep_their_objects(lake, monkeypatch, times):
    """A reference that slips in after verification is seen: apply looks again, at last with a closed gate."""
    manifest, close, addresses = lake.plan(), Catalog.close_fence, []

    def copy_first(catalog: Catalog, repo: str, holder: str) -> int:
        number = len(addresses) + 1
        if catalog.fence_holder(repo) is None and number <= times:
            addresses.append(catalog.copy(repo, "main", f"raw/{number}", f"keep/mine-{number}").address)
        return close(catalog, repo, holder)

    monkeypatch.setattr(Catalog, "close_fence", copy_first)
    lake.apply(manifest)
    outcomes = lake.outcomes(manifest)
    changed = {address for address, (outcome, _) in outcomes.items() if outcome == "changed"}

    assert min(times, 3) == len(addresses)
    assert set(addresses) == changed
    assert 5 - len(addresses) == sum(outcome == "deleted" for outcome, _ in outcomes.values())
    assert [] == missing_objects(lake, "keep/")
    assert gate_of(lake) is None


def test_a_gate_that_another_run_closed_stops_apply_and_its_own_does_not(lake):
    """
    A run of another ledger on the same catalog, even of the same number, is not disturbed.

    A run that was killed with the gate closed goes on with it, and opens it at the end.
    """
    manifest, before = lake.plan(), lake.stored()
    other = f"{manifest.run_id}@another moment"
    lake.catalog.close_fence(REPOSITORY, other)
    with pytest.raises(Busy, match=f"run {manifest.run_id} is deleting"):
        lake.apply(manifest)

    assert (before, other) == (lake.stored(), gate_of(lake))

    lake.catalog.open_fence(REPOSITORY, other)
    target_of(lake).fence(manifest)

    assert 5 == lake.apply(manifest).freed.objects
    assert gate_of(lake) is None


def test_a_run_that_became_stale_keeps_no_gate_closed_unless_it_is_at_work(lake):
    """
    A plan that can never be finished opens the gate that its killed apply had left closed.

    Checking a stale plan does not open the fence of an apply that is running.
    """
    manifest = lake.plan()
    lake.policy(OTHER_DAYS)
    for refuse in (lake.apply, lambda plan: check_lake(lake.shop, plan, ApplyOptions())):
        target_of(lake).fence(manifest)
        with pytest.raises(StalePlan):
            refuse(manifest)

        assert gate_of(lake) is None

    target_of(lake).fence(manifest)
    with target_lock(lake.shop.root, manifest.target_uid, "a run at work"), pytest.raises(StalePlan):
        check_lake(lake.shop, manifest, ApplyOptions())

    assert gate_of(lake) is not None
    lake.policy(RAW_30_DAYS)
    check_lake(lake.shop, manifest, ApplyOptions())

    assert gate_of(lake) is not None


def failing():
    """Make a deleter that breaks; made in a function, so that workers get it by value."""

    class Failing(actor._Deleter):
        """Breaks before it deletes."""

        def _ask_store(self, requests):
            raise ZeroDivisionError("oops")

    return Failing


def test_an_apply_that_fails_or_is_interrupted_by_its_user_opens_the_gate(lake, monkeypatch):
    """After a failed job, or Ctrl-C within a batch, the gate is open; applying again finishes the run."""
    manifest = lake.plan()

    def interrupt(step: str) -> None:
        if step == "batch 0 started":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(actor, "_Deleter", failing())
        with pytest.raises(EbbtideError, match="a Spark job failed"):
            lake.apply(manifest)

    assert (None, RunState.FAILED) == (gate_of(lake), lake.state(manifest))
    with pytest.raises(KeyboardInterrupt):
        lake.apply(manifest, on_step=interrupt)

    assert (None, RunState.FAILED) == (gate_of(lake), lake.state(manifest))
    assert 5 == lake.apply(manifest).freed.objects
