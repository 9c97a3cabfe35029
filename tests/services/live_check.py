"""`ebb lake check` without the command line."""

from __future__ import annotations

from tests.services.lake import REPOSITORY, Lake

from ebbtide.engine.burials import buried
from ebbtide.lake.checking import LiveCheck, check_live
from ebbtide.lake.metadata.world import world_of
from ebbtide.lake.rulebook import stored_policy
from ebbtide.tables.failures import own_errors


def check(lake: Lake) -> LiveCheck:
    """Check a lake at its own time."""
    catalog = lake.catalog
    uid = catalog.repository(REPOSITORY).uid
    world = world_of(
        catalog.snapshot(REPOSITORY), lake.store.spec, stored_policy(catalog, REPOSITORY), lake.shop.clock()
    )
    with own_errors():
        return check_live(lake.spark, world, buried(lake.spark, lake.shop.root, lake.ledger, uid))
