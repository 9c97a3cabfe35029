"""A registry as the target of a plan: what apply asks of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.engine.deleting import Attempt, Deleter
from ebbtide.engine.layout import RunFolder
from ebbtide.errors import StalePlan
from ebbtide.plan.manifest import Manifest
from ebbtide.registry.purge.order import PurgeOrder
from ebbtide.registry.purge.wanted import GOES
from ebbtide.registry.tables import VERDICTS
from ebbtide.tables.contracts import NEWLY_REFERENCED, PLAN
from ebbtide.tables.digest import address_hash

Verify = Callable[[SparkSession, Manifest, list[str], RunFolder], DataFrame]
"""Scans some repositories again, and gives the verdicts on all that is there, at the time of the plan."""


@dataclass
class RegistryTarget:
    """
    A registry with its policies.

    A registry cannot be closed to its users, so nothing is fenced. Instead all repositories of the plan are
    scanned and judged again before every wave; what would not go any more stays. What happens between that
    and the delete is seen by whoever deletes, who reads each tag once more, and what was recycled can be had
    back.
    """

    current: Callable[[], PurgeOrder]
    """Gives the order with the policies as they are now."""
    verify: Verify
    make_deleter: Callable[[Attempt], Deleter]
    check_running: Callable[[], None]
    _looks: int = field(default=0)

    @property
    def in_order(self) -> bool:
        """Always: the rows of a manifest belong together."""
        return True

    def deleter(self, attempt: Attempt) -> Deleter:
        """Make what acts on the rows of a wave on the executors."""
        return self.make_deleter(attempt)

    def check_still_meant(self, manifest: Manifest) -> None:
        """Stop if the policies are others now, or what is known of running images is too old by now."""
        if self.current().hash != manifest.policy_hash:
            raise StalePlan(
                f"the policies of {manifest.target} were changed",
                why="the plan was made for something else",
                fix="plan again",
            )
        self.check_running()

    def sequence(self) -> int:
        """Give a number that is another one after each wave, so that each wave is verified again."""
        return self._looks

    def fence(self, manifest: Manifest) -> int:  # noqa: ARG002 (nothing is closed)
        """Close nothing."""
        return self._looks

    def unfence(self, manifest: Manifest) -> None:  # noqa: ARG002 (nothing was closed)
        """Open nothing, but take it that something has changed by now."""
        self._looks += 1

    def newly_referenced(self, spark: SparkSession, manifest: Manifest, folder: RunFolder) -> DataFrame:
        """Find the planned manifests that would not go, or not in that way, if the plan were made now."""
        plan = PLAN.read(spark, folder.plan).select(
            "address",
            f.coalesce("task.version", f.lit("")).alias("tag"),
            f.col("task.action").alias("planned"),
        )
        verdicts = VERDICTS.check(self.verify(spark, manifest, planned_repositories(plan), folder))
        now = verdicts.select(
            f.concat_ws("@", "repository", "digest").alias("address"), "tag", "decision", "held_by"
        )
        # What is not there any more has no verdict: whoever deletes finds it absent, or that the tag moved.
        differs = (f.col("decision") != f.col("planned")) | ~f.col("decision").isin(*GOES)
        why = f.concat(f.lit("it would stay now: "), f.coalesce(f.get("held_by", 0), f.lit("not due")))
        found = plan.join(now, ["address", "tag"]).where(differs)
        return NEWLY_REFERENCED.check(
            found.groupBy(address_hash("address").alias("hash")).agg(f.min(why).alias("reason"))
        )


def planned_repositories(plan: DataFrame) -> list[str]:
    """Name the repositories that a plan is about."""
    named = plan.select(f.substring_index("address", "@", 1).alias("repository")).distinct()
    return sorted(row.repository for row in named.toLocalIterator())
