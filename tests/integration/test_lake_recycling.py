"""The recycle bin of a repository: what a run set aside comes back byte for byte, or goes for good later."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.services.lake import RAW_30_DAYS, REPOSITORY, Lake, make_lake
from tests.services.seaweed import S3Server, fresh_bucket

from ebbtide.core.decision import HoldReason
from ebbtide.core.errors import ObjectGone, SafetyStop, StalePlan
from ebbtide.core.manifest import Manifest, Tally
from ebbtide.engine.bin import RestoreChoice
from ebbtide.engine.removed_table import RemovedTable
from ebbtide.engine.restore import Restored
from ebbtide.engine.restore import restore as restore_items
from ebbtide.engine.run_tables import stream_decisions
from ebbtide.engine.verdicts import TOUCHED, layers_in
from ebbtide.targets.lake.bin import BIN_ROOT, LakeBin, lake_bin
from ebbtide.targets.repository.removed_objects import RemovedObjects
from ebbtide.targets.repository.rules import SweepRules, stored_rules

pytestmark = pytest.mark.spark

DAYS = 14
LATE = 36_500
"""On this day, a hundred years later, all is old, also what a real S3 server wrote a moment ago."""


class Killed(BaseException):
    """The process is no more."""


def dies_at(step: str):
    """Make a watcher of steps that dies at one."""

    def watch(name: str) -> None:
        if name == step:
            raise Killed(step)

    return watch


def recycle(lake: Lake, days: int | None = DAYS) -> None:
    """Let runs set aside what they would delete."""
    uid = lake.catalog.repository(REPOSITORY).uid
    lake.ledger.set_recycling(f"lake:{REPOSITORY}", uid, days)


def contents(lake: Lake) -> dict[str, bytes]:
    """Read every data object that is stored, by its address; what a sweep notes for the next is none."""
    return {key: lake.store.read(key) for key in lake.stored() if "/_gc/" not in key}


def in_bin(lake: Lake) -> set[str]:
    """Give the addresses of all that lies in the bin."""
    found = lake_bin(lake.catalog, REPOSITORY)
    return {item.address for label in found.labels(_raise) for item in found.items(label)}


def _raise(broken: Exception) -> None:
    raise broken


def restore(lake: Lake, manifest: Manifest, *items: str) -> Restored:
    """Bring back what a run set aside, or some of it, and hold nothing: these tests plan again at once."""
    assert manifest.recycling
    return restore_items(
        LakeBin(lake.shop, REPOSITORY), RestoreChoice(manifest.recycling.folder, items, days=0)
    )


def plan_all(lake: Lake, *, full: bool = False) -> Manifest:
    """Ask all collectors; `full` trusts nothing that earlier runs left."""
    sweep = SweepRules(clean=full)
    rules = stored_rules(lake.repository, lifecycle=True, uncommitted=sweep, retention=True)
    return lake.plan(rules=rules, full=full)


@pytest.fixture(params=[pytest.param("folder", marks=pytest.mark.long), "s3"])
def any_lake(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, s3_server: S3Server
) -> Iterator[Lake]:
    """Give a lake in a folder, and one in a bucket."""
    if request.param == "folder":
        yield make_lake(spark, tmp_path)
        return
    with fresh_bucket(s3_server) as bucket:
        yield make_lake(spark, tmp_path, f"s3://{bucket}/lake", store_options=s3_server.options)


def test_what_any_collector_took_comes_back_whatever_was_killed(any_lake):
    """
    Expired, garbage and unretained objects are set aside by one run, killed on its way, and are all restored.

    Then every byte is where it was, and the next plan, which builds on what earlier ones left, finds what a
    plan finds that trusts nothing: the very objects of the first.
    """
    lake = any_lake
    lake.policy(RAW_30_DAYS)
    lake.retain({"default_days": 5})
    garbage = lake.upload("c")
    lake.catalog.reset(REPOSITORY, "main")
    lake.day(1)  # in a partition of its own, which a sweep has settled, while it always looks at the newest
    expired = lake.upload("raw/1", "raw/2")
    unretained = lake.upload("a")
    lake.commit()
    kept = lake.upload("a", "b")
    lake.commit()
    recycle(lake)
    lake.day(LATE)
    before = contents(lake)
    due = {*expired.values(), *unretained.values(), *garbage.values()}
    manifest = plan_all(lake)
    one = expired["raw/1"]
    for step in ("batch 0 started", "batch 0 deleted"):
        with pytest.raises(Killed):
            lake.apply(manifest, override_breaker=True, on_step=dies_at(step))
    # Killed between the copy and the delete it is in both places.
    lake.store.copy(lake_bin(lake.catalog, REPOSITORY).place_of(_folder(manifest), one), one)
    applied = lake.apply(manifest, override_breaker=True)
    left, aside = contents(lake), in_bin(lake)
    done = restore(lake, manifest)

    assert due == lake.due(manifest)
    assert {"recycled"} == set(applied.outcomes)
    assert (set(kept.values()), due) == (set(left), aside)
    assert {"restored": Tally("restored", 4, 12)} == done.outcomes
    assert (before, []) == (contents(lake), lake.listing(BIN_ROOT))
    assert [b"raw/1", b"a"] == [lake.catalog.read(REPOSITORY, "main~1", key) for key in ("raw/1", "a")]
    assert due == lake.due(plan_all(lake)) == lake.due(plan_all(lake, full=True))


def _folder(manifest: Manifest) -> str:
    assert manifest.recycling
    return manifest.recycling.folder


OLD = "main~1"


def test_single_items_come_back_and_plans_from_before_are_stale(lake):
    """
    What is back is due again, in an incremental plan as in a full one, and can be set aside again.

    What was planned before it, or under another setting, is not applied.
    """
    recycle(lake)
    first, second = lake.plan(), lake.plan()
    lake.apply(first)
    with pytest.raises(ObjectGone, match=r"lies in the recycle bin until 2026-02-24.*ebb restore 1"):
        lake.catalog.read(REPOSITORY, OLD, "raw/1")
    restore(lake, first, "raw/1", lake.catalog.stat(REPOSITORY, OLD, "raw/2").address)
    with pytest.raises(StalePlan, match="restored after this plan"):
        lake.apply(second)
    incremental, full = lake.plan(), lake.plan(full=True)
    recycle(lake, None)
    with pytest.raises(StalePlan, match="keeps deleted objects in its bin was changed"):
        lake.apply(full)
    recycle(lake)
    lake.apply(full)
    back = {lake.catalog.stat(REPOSITORY, OLD, key).address for key in ("raw/1", "raw/2")}

    assert back == lake.due(incremental) == lake.due(full)
    assert incremental.plan_hash == full.plan_hash
    assert lake.due(first) == in_bin(lake)
    assert set() == lake.due(lake.plan())


def test_a_run_that_was_interrupted_can_be_undone_whole(lake):
    """All that it had set aside comes back and the gate is open; before, nothing else can be restored."""
    recycle(lake)
    before = contents(lake)
    manifest = lake.plan()
    with pytest.raises(Killed):
        lake.apply(manifest, on_step=dies_at("batch 0 deleted"))
    with pytest.raises(SafetyStop, match="was interrupted"):
        restore(lake, manifest, "raw/1")
    done = restore(lake, manifest)
    with pytest.raises(StalePlan):
        lake.apply(manifest)

    assert (5, before) == (done.back.objects, contents(lake))
    assert lake.catalog.fence_holder(REPOSITORY) is None
    assert lake.due(manifest) == lake.due(lake.plan())


def test_a_restored_item_is_held_and_cycles_do_not_make_plans_larger(lake):
    """
    What is restored is held for as many days as the bin keeps items, and only then due again.

    Plan, plan show and lookups say so. And however often objects went and came back, what a plan reads of
    the past is one table of the same size.
    """
    recycle(lake)
    sizes = []
    for _ in range(3):
        manifest = lake.plan()
        lake.apply(manifest)
        restore(lake, manifest)
        items = RemovedTable(lake.shop.root, lake.ledger, manifest.target_uid).folded(lake.clock())
        verdicts = layers_in(lake.folder(manifest).verdicts).read(lake.spark, TOUCHED)
        query = items.laid_over(verdicts)._jdf.queryExecution().optimizedPlan().toString()
        sizes.append((len(items.segments), items.rows, len(query.splitlines())))
    due = lake.due(manifest)
    manifest = lake.plan()
    lake.apply(manifest)
    assert manifest.recycling
    done = restore_items(LakeBin(lake.shop, REPOSITORY), RestoreChoice(manifest.recycling.folder))
    until = lake.clock() + timedelta(days=DAYS)
    held = lake.plan()
    sweep = stored_rules(lake.repository, lifecycle=True, uncommitted=SweepRules())
    swept = lake.plan(rules=sweep)
    rows = {row["address"]: row for row in stream_decisions(lake.folder(held)) if row["address"] in due}
    found = RemovedObjects(lake.shop.root, lake.ledger, BIN_ROOT).restored(lake.repository.url, min(due))
    lake.clock.now = until
    again = lake.plan()

    assert [sizes[0]] * 3 == sizes
    assert found is not None
    assert until == done.held_until == found.until
    assert (0, 0, due) == (held.summary.due.objects, swept.summary.due.objects, set(rows))
    assert {(str(HoldReason.RESTORED), f"restore {done.run_id}", until, "held")} == {
        (row["hold"], row["holder"], row["deadline"], row["decision"]) for row in rows.values()
    }
    assert str(HoldReason.RESTORED) in {tally.label for tally in held.summary.held_by_reason}
    assert due == lake.due(again)
