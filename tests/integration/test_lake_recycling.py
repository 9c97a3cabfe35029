"""The recycle bin of a repository: what a run set aside comes back byte for byte, or goes for good later."""

from __future__ import annotations

import pytest
from tests.services.lake import REPOSITORY, Lake

from ebbtide.engine.freezing import FreezeOptions
from ebbtide.engine.restoring import Restored
from ebbtide.errors import BreakerTripped, ObjectGone, StalePlan
from ebbtide.lake.emptying import plan_bin
from ebbtide.lake.recycling import BIN_ROOT, lake_bin
from ebbtide.lake.restoring import RestoreChoice, restore_lake
from ebbtide.ledger.runs import RunState
from ebbtide.plan.manifest import Manifest, Tally

pytestmark = pytest.mark.spark

DAYS = 14
OLD = "main~1"
DUE = ["raw/1", "raw/2", "raw/3", "raw/4", "raw/6"]


def recycle(lake: Lake, days: int | None = DAYS) -> None:
    """Let runs set aside what they would delete."""
    uid = lake.catalog.repository(REPOSITORY).uid
    lake.ledger.set_recycling(f"lake:{REPOSITORY}", uid, days)


def contents(lake: Lake) -> dict[str, bytes]:
    """Read every data object that is stored, by its address."""
    return {key: lake.store.read(key) for key in lake.stored()}


def in_bin(lake: Lake) -> set[str]:
    """Give the addresses of all that lies in the bin."""
    found = lake_bin(lake.catalog, REPOSITORY)
    return {item.address for label in found.labels(_raise) for item in found.items(label)}


def _raise(broken: Exception) -> None:
    raise broken


def restore(lake: Lake, manifest: Manifest, *items: str) -> Restored:
    """Bring back what a run set aside, or some of it."""
    assert manifest.recycling
    return restore_lake(lake.shop, REPOSITORY, RestoreChoice(manifest.recycling.folder, items))


def empty(lake: Lake, **how: int) -> Manifest:
    """Plan what is to go from the bin for good."""
    return plan_bin(lake.spark, lake.shop, REPOSITORY, now=lake.clock(), options=FreezeOptions(), **how)


def test_what_a_run_set_aside_is_read_again_at_every_commit(lake):
    """Apply moves what is due into the bin, restore moves it back, and each byte is where it was."""
    recycle(lake)
    before, full = contents(lake), lake.plan(full=True)
    due = lake.due(full)
    manifest = lake.plan()
    applied = lake.apply(manifest)
    gone, aside = lake.stored(), in_bin(lake)
    with pytest.raises(ObjectGone, match=r"lies in the recycle bin until 2026-02-24.*ebb restore"):
        lake.catalog.read(REPOSITORY, OLD, "raw/1")
    done = restore(lake, manifest)

    assert {"recycled": Tally("recycled", 5, 25)} == applied.outcomes
    assert (set(before) - due, due) == (gone, aside)
    assert {"restored": Tally("restored", 5, 25)} == done.outcomes
    assert before == contents(lake)
    assert set() == set(lake.listing(BIN_ROOT))
    assert [key.encode() for key in DUE] == [lake.catalog.read(REPOSITORY, OLD, key) for key in DUE]


def test_after_a_restore_a_plan_says_what_a_full_one_says(lake):
    """What is back is due again, in an incremental plan as in a full one, and can be set aside again."""
    recycle(lake)
    first = lake.plan()
    lake.apply(first)
    nothing = lake.due(lake.plan())
    restore(lake, first, "raw/1", "raw/2")
    incremental, full = lake.plan(), lake.plan(full=True)
    back = {lake.catalog.stat(REPOSITORY, OLD, key).address for key in ("raw/1", "raw/2")}
    lake.apply(full)
    again = lake.due(lake.plan())

    assert (set(), back, back, set()) == (nothing, lake.due(incremental), lake.due(full), again)
    assert incremental.plan_hash == full.plan_hash
    assert lake.due(first) == in_bin(lake)


def test_plans_from_before_a_restore_or_another_setting_are_stale(lake):
    """What was planned under other circumstances is not applied: neither before a restore nor other days."""
    recycle(lake)
    first, second = lake.plan(), lake.plan()
    lake.apply(first)
    restore(lake, first, "raw/1")
    with pytest.raises(StalePlan, match="restored after this plan"):
        lake.apply(second)
    third = lake.plan()
    recycle(lake, None)
    with pytest.raises(StalePlan, match="sets aside"):
        lake.apply(third)

    assert 1 == third.summary.due.objects
    assert third.plan_hash != lake.plan().plan_hash


def test_the_bin_is_emptied_of_what_has_been_there_for_its_days(lake):
    """A bin plan takes what is expired and nothing else, has a breaker of its own, and is for good."""
    recycle(lake)
    first = lake.plan()
    lake.apply(first)
    lake.day(50)
    too_early = empty(lake)
    lake.day(55)
    kept = lake.stored()
    late = empty(lake)
    with pytest.raises(BreakerTripped):
        lake.apply(late)
    lake.apply(late, override_breaker=True)
    with pytest.raises(ObjectGone, match="deleted for good"):
        lake.catalog.read(REPOSITORY, OLD, "raw/1")

    assert (0, 5) == (too_early.summary.due.objects, late.summary.due.objects)
    assert RunState.SUCCEEDED == lake.state(late)
    assert (kept, []) == (lake.stored(), lake.listing(BIN_ROOT))
    assert set() == lake.due(lake.plan())
