"""`ebb lake check` without the command line."""

from __future__ import annotations

from tests.services.lake import REPOSITORY, Lake

from ebbtide.engine.removed_table import RemovedTable
from ebbtide.engine.run_folder import scratch_folder
from ebbtide.engine.spark.failures import own_errors
from ebbtide.targets.repository.live_objects import LiveCheck, check_live
from ebbtide.targets.repository.rules import stored_policy
from ebbtide.targets.repository.world import world_of


def check(lake: Lake) -> LiveCheck:
    """Check a lake at its own time."""
    catalog = lake.catalog
    uid = catalog.repository(REPOSITORY).uid
    policy = stored_policy(lake.repository)
    world = world_of(lake.repository, catalog.snapshot(REPOSITORY), policy, lake.shop.clock())
    table = RemovedTable(lake.shop.root, lake.ledger, uid)
    with scratch_folder(lake.shop.root) as scratch, own_errors():
        return check_live(lake.spark, world, table.snapshot(scratch.removed).gone(lake.spark))
