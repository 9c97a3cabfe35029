"""
Planning for a deleted repository: all that is its own may go when the grace period is over.

The period counts from the deletion, so that one by mistake can be noticed before anything is lost, and for
what was written later from that moment: it is what an upload left that was under way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.core.decision import DELETED_REPOSITORY, HoldReason
from ebbtide.core.instant import NEVER, format_instant, to_micros
from ebbtide.engine.collector import Collected
from ebbtide.engine.layers import TOUCHED, Layers
from ebbtide.engine.layout import OnStep, RunFolder, no_step
from ebbtide.engine.spark.progress import OnProgress, no_progress, watch
from ebbtide.engine.tables.contracts import INVENTORY, STANDINGS
from ebbtide.engine.tables.digest import address_hash
from ebbtide.storage.store import Store
from ebbtide.targets.lake.bin import BIN_ROOT
from ebbtide.targets.lake.catalog.model import DeletedRepository
from ebbtide.targets.lake.catalog.partitions import BRANCHES, repository_path
from ebbtide.targets.lake.retired.listing import is_own, list_namespace, neighbours, own_folders

_MICROSECOND = timedelta(microseconds=1)
_SECOND = "yyyy-MM-dd'T'HH:mm:ss'Z'"


@dataclass(frozen=True)
class RetiredPlanner:
    """Plans one run over a deleted repository; the caller holds its lock."""

    spark: SparkSession
    store: Store
    repository: DeletedRepository
    grace: timedelta
    on_progress: OnProgress = no_progress
    on_step: OnStep = no_step

    def collect(self, folder: RunFolder) -> Collected:
        """List the namespace and say of all that lies there until when it is held."""
        gone = self.repository
        own_places = own_folders(self.store, gone.uid)
        with watch(self.spark, "listing", self.on_progress):
            INVENTORY.write(list_namespace(self.spark, self.store, gone), folder.scratch / "inventory")
        self.on_step("store listed")
        listed = INVENTORY.read(self.spark, folder.scratch / "inventory")
        place = folder.scratch / "standings"
        STANDINGS.write(retired_standings(listed, gone, own_places, self.grace), place, partition_by="kind")
        self.on_step("standings written")
        total, own, odd = _counted(listed, own_places)
        return Collected(
            Layers(place),
            {"deleted": format_instant(gone.deleted), "listed_objects": total, "own_objects": own},
            tuple(self._warnings(own, odd)),
            without_buried=True,
        )

    def _warnings(self, own: int, odd: int) -> list[str]:
        found = []
        if not own:
            found.append(f"nothing of the repository was found in {self.repository.namespace}")
        if odd:
            some = "1 object with an unusual name is" if odd == 1 else f"{odd} objects with unusual names are"
            found.append(f"{some} left alone")
        if any(self.store.children(BIN_ROOT)):
            found.append("its recycle bin goes with it, for there is nothing left to restore it to")
        if others := neighbours(self.store, self.repository.uid):
            found.append(
                f"there are objects of other repositories, as in repos/{others[0]}: another catalog may know"
                " them, and _lakefs/ may be theirs, so it is left alone"
            )
        return found


def retired_standings(
    listed: DataFrame, gone: DeletedRepository, own_places: Sequence[str], grace: timedelta
) -> DataFrame:
    """Hold what is the repository's own until the grace period is over, and all else for ever."""
    own, never = is_own(own_places), f.lit(to_micros(NEVER))
    written, deleted = f.unix_micros("last_modified"), f.lit(to_micros(gone.deleted))
    ripe = f.least(f.greatest(written, deleted) + f.lit(grace // _MICROSECOND), never)
    since = f.when(
        written > deleted, f.concat(f.lit("last written "), f.date_format("last_modified", _SECOND))
    ).otherwise(f.lit(f"deleted {format_instant(gone.deleted)}"))
    branch = f.regexp_extract("key", f"^{repository_path(gone.uid)}{BRANCHES}([^/]+)/", 1)
    # What has no canonical address is not named: two readers may take it for two objects.
    return STANDINGS.check(
        listed.where(f.col("address").isNotNull()).select(
            f.lit(0).alias("world"),
            # What is spelt in another way than its address is itself all the same, and not its namesake.
            address_hash("key").alias("hash"),
            f.col("key").alias("address"),
            f.timestamp_micros(f.when(own, ripe).otherwise(never)).alias("deadline"),
            f.when(own, str(HoldReason.NOT_YET)).otherwise(str(HoldReason.FOREIGN)).alias("reason"),
            f.when(own, since).otherwise("it is not the repository's").alias("held_by"),
            f.array().cast("array<string>").alias("paths"),
            f.array(f.lit(DELETED_REPOSITORY)).alias("rules"),
            f.array_compact(f.array(f.nullif(branch, f.lit("")))).alias("branches"),
            "size",
            f.col("last_modified").alias("created"),
            f.lit(DELETED_REPOSITORY).alias("collector"),
            f.lit(TOUCHED).alias("kind"),
        )
    )


def _counted(listed: DataFrame, own_places: Sequence[str]) -> tuple[int, int, int]:
    """Count what was listed, what of it is the repository's own, and what has no canonical address."""
    counts = listed.agg(
        f.count(f.lit(1)).alias("total"),
        f.count_if(is_own(own_places)).alias("own"),
        f.count_if(f.col("address").isNull()).alias("odd"),
    )
    (row,) = counts.toArrow().to_pylist()
    return row["total"], row["own"], row["odd"]
