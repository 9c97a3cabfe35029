"""What commands on a lake read of past runs: nothing that grows with their number."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from sqlalchemy import event
from tests.services.outcomes import FIRST, Desk, Happened, make_desk

from ebbtide.core.decision import Outcome
from ebbtide.core.manifest import Manifest, Summary, Tally
from ebbtide.engine.run_folder import no_step
from ebbtide.targets.lake.catalog.catalog import Catalog
from ebbtide.targets.lake.context import LakeContext
from ebbtide.targets.lake.removed_objects import ObjectState, with_states
from ebbtide.targets.lake.repository import CatalogRepository
from ebbtide.targets.repository.collector import RepositoryCollector

POLICY = '{"r": {"prefix": "", "days": 5, "enabled": true}}'


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[LakeContext]:
    """Give a lake with three keys and a ledger without runs."""
    catalog = Catalog(f"sqlite:///{tmp_path}/catalog.db", clock=lambda: FIRST)
    made = catalog.create_repository("lake", str(tmp_path / "objects"))
    for key in "abc":
        catalog.upload("lake", "main", key, key.encode())
    catalog.commit("lake", "main", "m")
    desk = make_desk(tmp_path, made.uid)
    yield LakeContext(catalog, desk.ledger, desk.root, lambda: FIRST)
    catalog.close()
    desk.ledger.close()


def desk_of(shop: LakeContext) -> Desk:
    """Give a desk that writes runs of the lake."""
    return Desk(shop.root, shop.ledger, shop.catalog.repository("lake").uid)


def cycle(shop: LakeContext) -> None:
    """Delete a and b, bring a back, and let the table of removed items have both."""
    desk = desk_of(shop)
    addresses = {entry.key: entry.address for entry in shop.catalog.ls("lake", "main")}
    desk.run(*(Happened(addresses[key], Outcome.DELETED) for key in "ab"))
    desk.restore(addresses["a"], until=FIRST + timedelta(days=1))
    desk.table.folded(FIRST)


def states(shop: LakeContext) -> dict[str, ObjectState]:
    """List main as `ebb lake ls` does."""
    entries = shop.catalog.ls("lake", "main")
    return {entry.key: where for entry, where in with_states(shop, "lake", entries)}


def queries(shop: LakeContext, action: Callable[[], object]) -> int:
    """Count the statements that the ledger's database gets meanwhile."""
    seen: list[object] = []
    engine = shop.ledger._database._engine
    event.listen(engine, "before_cursor_execute", lambda *all_: seen.append(all_[2]))
    action()
    return len(seen)


def manifest(run_id: int) -> Manifest:
    """Make the manifest of a lifecycle plan without rows."""
    summary = Summary(Tally("due", 0, 0), Tally("held", 0, 0), 3)
    return Manifest(
        run_id, "lake:lake", "uid", "n", "lifecycle", FIRST, FIRST, POLICY, "", {}, 0, "", summary
    )


EXPECTED = {"a": ObjectState.STORED, "b": ObjectState.GONE, "c": ObjectState.STORED}


def test_a_listing_reads_no_outcomes_of_past_runs(shop):
    """Runs whose outcomes the table of removed items has are not read again: their folders may be gone."""
    for _ in range(10):
        cycle(shop)
    shutil.rmtree(shop.root / "runs")

    assert EXPECTED == states(shop)


def test_a_listing_knows_runs_that_just_ended(shop):
    """Outcomes that are not in the table yet count, a restore after a delete too."""
    desk = desk_of(shop)
    addresses = {entry.key: entry.address for entry in shop.catalog.ls("lake", "main")}
    cycle(shop)
    desk.run(Happened(addresses["a"], Outcome.DELETED))
    desk.run(Happened(addresses["c"], Outcome.DELETED))
    desk.restore(addresses["c"])
    desk.restore(addresses["b"])

    assert {"a": ObjectState.GONE, "b": ObjectState.STORED, "c": ObjectState.STORED} == states(shop)


def test_a_listing_makes_as_many_queries_after_many_runs_as_after_one(shop):
    """What the ledger is asked does not depend on how many runs it has."""
    counts = []
    for cycles in (1, 20):
        for _ in range(cycles):
            cycle(shop)
        counts.append(queries(shop, lambda: states(shop)))

    assert counts[0] == counts[1]


def test_a_plan_writes_its_policy_without_asking_for_other_runs(shop):
    """The policy table's file of a run has that run's rows, and no other run is read for it."""
    number = shop.ledger.begin("lake:lake", "uid", "lifecycle", POLICY, FIRST)
    for _ in range(20):
        shop.ledger.begin("lake:lake", "uid", "lifecycle", "not even a policy", FIRST)
    made = manifest(number)

    collector = RepositoryCollector.of_plan(shop.context, CatalogRepository(shop.catalog, "lake"), made)
    asked = queries(shop, lambda: collector.after_plan(None, made, no_step))

    (file,) = Path(shop.catalog.store("lake").spec.url.removeprefix("file://")).rglob("run-*.parquet")
    assert [(number, "r", "", "")] == [tuple(row.values())[:4] for row in pq.read_table(file).to_pylist()]
    assert 0 == asked
