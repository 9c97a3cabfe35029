"""`ebb lake check` without the command line."""

from __future__ import annotations

from tests.services.lake import REPOSITORY, Lake

from ebbtide.engine.layout import scratch_folder
from ebbtide.engine.removed_table import RemovedTable
from ebbtide.engine.spark.failures import own_errors
from ebbtide.targets.lake.checking import LiveCheck, check_live
from ebbtide.targets.lake.metadata.world import world_of
from ebbtide.targets.lake.rulebook import stored_policy


def check(lake: Lake) -> LiveCheck:
    """Check a lake at its own time."""
    catalog = lake.catalog
    uid = catalog.repository(REPOSITORY).uid
    world = world_of(
        catalog.snapshot(REPOSITORY), lake.store.spec, stored_policy(catalog, REPOSITORY), lake.shop.clock()
    )
    table = RemovedTable(lake.shop.root, lake.ledger, uid)
    with scratch_folder(lake.shop.root) as scratch, own_errors():
        return check_live(lake.spark, world, table.snapshot(scratch.removed).gone(lake.spark))
