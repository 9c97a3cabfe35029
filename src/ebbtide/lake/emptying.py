"""The bin of a repository as the target of a plan of its own."""

from __future__ import annotations

from pyspark.sql import SparkSession

from ebbtide.engine.emptying import BinKeeper
from ebbtide.engine.freezing import FreezeOptions
from ebbtide.errors import StalePlan
from ebbtide.lake.recycling import lake_bin
from ebbtide.lake.restoring import restorer
from ebbtide.lake.workshop import Workshop
from ebbtide.ledger.locks import target_lock
from ebbtide.plan.manifest import Manifest
from ebbtide.tables.progress import OnProgress, no_progress


def lake_bin_keeper(shop: Workshop, repository: str) -> BinKeeper:
    """Give what plans for a repository's bin, and applies such plans."""
    found = shop.catalog.repository(repository)

    def check_same(manifest: Manifest) -> None:
        now = shop.catalog.repository(repository)
        if (now.uid, now.namespace) != (manifest.target_uid, manifest.namespace):
            raise StalePlan(
                f"{manifest.target} is now another repository, or lies elsewhere",
                why="the plan was made for something else",
                fix="make a new plan",
            )

    return BinKeeper(
        lake_bin(shop.catalog, repository),
        f"lake:{repository}",
        found.namespace,
        shop.ledger,
        shop.root,
        shop.clock,
        check_same,
    )


def plan_lake_bin(
    spark: SparkSession,
    shop: Workshop,
    repository: str,
    *,
    options: FreezeOptions,
    older_than: int | None = None,
    on_progress: OnProgress = no_progress,
) -> Manifest:
    """Plan to delete for good what a repository's bin has kept for its time."""
    found = shop.catalog.repository(repository)
    with target_lock(shop.root, found.uid, f"ebb plan lake:{repository} --bin"):
        restorer(shop, found).finish_interrupted()
        keeper = lake_bin_keeper(shop, repository)
        return keeper.plan(spark, options=options, older_than=older_than, on_progress=on_progress)
