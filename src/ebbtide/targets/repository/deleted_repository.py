"""
The collector of a deleted repository: it removes everything that the repository left in its namespace.

Whatever is the repository's own may be deleted when the grace period is over. The period counts from the
deletion, so that a mistaken deletion can be noticed before anything is lost. For an object that was written
later, by an upload under way, it counts from that write. When nothing is left, the namespace is free.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import reduce
from operator import or_

import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.core.breaker import BreakerLimits
from ebbtide.core.decision import DELETED_REPOSITORY, HoldReason
from ebbtide.core.errors import StalePlan, StoreError
from ebbtide.core.instant import NEVER, format_instant, to_micros
from ebbtide.core.manifest import Manifest
from ebbtide.engine.actor import Actor, Attempt, store_deleter
from ebbtide.engine.apply import Applied
from ebbtide.engine.cluster_check import Reach, StoreReach
from ebbtide.engine.collector import Collected, Collector, Context, Identity, Policy, Remarks, Run
from ebbtide.engine.run_folder import OnStep
from ebbtide.engine.spark.progress import watch
from ebbtide.engine.tables.contracts import INVENTORY, VERDICTS, labels
from ebbtide.engine.tables.digest import address_hash
from ebbtide.engine.verdicts import Layers
from ebbtide.storage.namespace import MARKER
from ebbtide.targets.repository.inventory import are_addresses, inventory
from ebbtide.targets.repository.memory import forget_memory
from ebbtide.targets.repository.model import METADATA, DeletedRepository
from ebbtide.targets.repository.protocol import DeletedNamespace, Layout
from ebbtide.targets.repository.rules import GRACE
from ebbtide.targets.repository.sweeps import SIDE_BY_SIDE

_MICROSECOND = timedelta(microseconds=1)
_SECOND = "yyyy-MM-dd'T'HH:mm:ss'Z'"


@dataclass(frozen=True)
class DeletedRepositoryCollector(Collector):
    """
    Collects what a deleted repository left.

    It needs no fence. An object can only become referenced through a repository's entry in the catalog, which
    this one no longer has, and no other repository may refer to objects in its namespace.
    """

    context: Context
    namespace: DeletedNamespace
    grace: timedelta = GRACE

    name = DELETED_REPOSITORY

    @classmethod
    def of_plan(
        cls, context: Context, namespace: DeletedNamespace, plan: Manifest
    ) -> DeletedRepositoryCollector:
        """Return the collector that made a plan."""
        return cls(context, namespace, timedelta(seconds=json.loads(plan.policy)["grace_seconds"]))

    @property
    def identity(self) -> Identity:
        """The repository that was deleted."""
        gone = self.namespace.repository
        return Identity(self.namespace.url, gone.uid, gone.namespace)

    def policy(self) -> Policy:
        """Return when it was deleted, and the grace period after that."""
        deleted = format_instant(self.namespace.repository.deleted)
        rules = {"deleted": deleted, "grace_seconds": self.grace.total_seconds()}
        text = json.dumps(rules, sort_keys=True)
        return Policy(text, hashlib.sha256(text.encode()).hexdigest())

    def reach(self) -> Reach:
        """Reach the store that the repository was in."""
        return StoreReach(self.namespace.store_spec())

    def limits(self, limits: BreakerLimits) -> BreakerLimits:
        """Let any delete trip the breaker: foreign objects in the namespace do not make it less drastic."""
        return replace(limits, max_delete_fraction=0.0, min_objects=0)

    def check_ready(self) -> None:
        """Raise ForeignNamespace unless the namespace belongs to this repository."""
        self.namespace.check_owner()

    def before_plan(self) -> tuple[str, ...]:
        """Check the owner again, under the lock."""
        self.check_ready()
        return ()

    def collect(self, run: Run) -> Collected:
        """List the namespace and return until when each object in it is held."""
        gone, own_places = self.namespace.repository, own_folders(self.namespace)
        with watch(run.spark, "listing", run.on_progress):
            INVENTORY.write(list_namespace(run.spark, self.namespace), run.folder.scratch / "inventory")
        run.on_step("store listed")
        listed = INVENTORY.read(run.spark, run.folder.scratch / "inventory")
        place = run.folder.scratch / "verdicts"
        found = deleted_verdicts(listed, gone, self.namespace.layout, own_places, self.grace)
        VERDICTS.write(found, place, partition_by="kind")
        run.on_step("verdicts written")
        total, own, odd = _counted(listed, own_places)
        return Collected(
            Layers(place),
            {"deleted": format_instant(gone.deleted), "listed_objects": total, "own_objects": own},
            tuple(self._warnings(own, odd)),
            removed_applied=True,
        )

    def _warnings(self, own: int, odd: int) -> list[str]:
        found = []
        if not own:
            found.append(f"nothing of the repository was found in {self.namespace.repository.namespace}")
        if odd:
            some = "1 object with an unusual name is" if odd == 1 else f"{odd} objects with unusual names are"
            found.append(f"{some} left alone")
        if any(self.namespace.store().children(self.namespace.bin_root)):
            found.append(
                "its recycle bin is deleted with it: nothing can be restored to a deleted repository"
            )
        if others := self.namespace.neighbours():
            found.append(
                f"the namespace holds objects of other repositories, as in {others[0]}; {METADATA} may"
                " belong to them, so it is left alone"
            )
        return found

    def check_unchanged(self, plan: Manifest) -> None:
        """Raise StalePlan if another run collected it, its record differs, or its namespace is in use."""
        found = self.namespace.find()
        if found is None:
            raise _stale(f"the deleted {plan.target} was forgotten: another run has collected it")
        if found.namespace != plan.namespace:
            raise _stale(f"the deleted {plan.target} was in {found.namespace}, not {plan.namespace}")
        if format_instant(found.deleted) != json.loads(plan.policy)["deleted"]:
            raise _stale(f"{plan.target} was deleted at another time: {format_instant(found.deleted)}")
        living = self.namespace.overlapping()
        if living is not None:
            raise _stale(f"repository {living.name!r} has the namespace {living.namespace} now")
        self.namespace.check_owner()

    def actor(self, plan: Manifest, attempt: Attempt) -> Actor:  # noqa: ARG002 (the namespace is the plan's)
        """Delete metadata too: nothing reads the commits of a repository that the catalog does not know."""
        return store_deleter(self.namespace.store().spec, attempt, not_below="")

    def after_apply(
        self,
        spark: SparkSession,  # noqa: ARG002 (the driver asks the store)
        plan: Manifest,
        applied: Applied,  # noqa: ARG002 (the store is asked instead)
        on_step: OnStep,
    ) -> None:
        """Forget the repository if nothing of its own is left."""
        try:
            self._forget_if_collected()
        except StoreError as broken:
            raise StoreError(
                f"run {plan.run_id} succeeded, but what is left could not be listed: {broken}",
                fix=f"apply it again ('ebb apply {plan.run_id}'): that lists again and deletes nothing more",
            ) from broken
        on_step("repository forgotten")

    def remarks(self, plan: Manifest) -> Remarks:
        """Return whether the namespace may be used again, for the user."""
        free = self.namespace.find() is None
        if free:
            lines = [f"nothing of {plan.target} is left, and the namespace {plan.namespace} is free"]
        else:
            young = f"objects of {plan.target} are left that were too young or came later"
            lines = [
                f"{young}; {plan.namespace} is not free yet",
                f"plan again when they are old enough: ebb plan {plan.target} --deleted",
            ]
        return Remarks(tuple(lines), {"namespace_free": free})

    def _forget_if_collected(self) -> None:
        """
        Free the namespace, unless it holds an object of the repository that is too young or came later.

        The store is asked and not the plan: an upload under way may have ended after the plan's listing.
        """
        if self.namespace.find() is None or has_own(self.namespace):
            return
        # Killed between any two steps, the next apply finds nothing to remove, and forgets.
        forget_memory(self.context.root, self.namespace.repository.uid)
        self.namespace.forget()


def _stale(what: str) -> StalePlan:
    return StalePlan(
        what, why="the plan was made for something else", fix="see 'ebb lake list --deleted', and plan again"
    )


def deleted_verdicts(
    listed: DataFrame, gone: DeletedRepository, layout: Layout, own_places: Sequence[str], grace: timedelta
) -> DataFrame:
    """Hold the repository's own objects until the grace period is over, and all others forever."""
    own, never = is_own(own_places), f.lit(to_micros(NEVER))
    written, deleted = f.unix_micros("last_modified"), f.lit(to_micros(gone.deleted))
    ripe = f.least(f.greatest(written, deleted) + f.lit(grace // _MICROSECOND), never)
    since = f.when(
        written > deleted, f.concat(f.lit("last written "), f.date_format("last_modified", _SECOND))
    ).otherwise(f.lit(f"deleted {format_instant(gone.deleted)}"))
    branch = f.regexp_extract("key", f"^{re.escape(layout.levels[-1])}([^/]+)/", 1)
    # An object without a canonical address is left out: two readers may take it for two objects.
    return VERDICTS.check(
        listed.where(f.col("address").isNotNull()).select(
            # A key that is spelled differently from its address is another object, so the key is hashed.
            address_hash("key").alias("hash"),
            f.col("key").alias("address"),
            f.timestamp_micros(f.when(own, ripe).otherwise(never)).alias("deadline"),
            f.when(own, str(HoldReason.NOT_YET)).otherwise(str(HoldReason.FOREIGN)).alias("hold"),
            f.when(own, since).otherwise("it is not the repository's").alias("holder"),
            f.array().cast("array<string>").alias("names"),
            f.array(f.lit(DELETED_REPOSITORY)).alias("rules"),
            labels(branch=f.nullif(branch, f.lit(""))).alias("labels"),
            "size",
            f.col("last_modified").alias("created"),
            f.lit(DELETED_REPOSITORY).alias("collector"),
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


def list_namespace(spark: SparkSession, namespace: DeletedNamespace) -> DataFrame:
    """List the whole namespace on the executors, each partition in its own task."""
    rows = [(prefix,) for prefix in prefixes(namespace)]
    found = inventory(
        spark.createDataFrame(rows, "prefix string"),
        namespace.store_spec(),
        namespace.repository.namespace,
        merged=True,
    )
    # The owner marker is not part of a plan: it is removed when nothing else is left.
    return found.where(f.col("key") != MARKER)


def prefixes(namespace: DeletedNamespace) -> list[str]:
    """Return folders and single files that together are the namespace and do not overlap."""
    store, levels = namespace.store(), [*namespace.layout.levels, METADATA]
    last = namespace.layout.levels[-1]
    found = [level + name for level in levels for name in store.children(level)]
    paths = [name for name in found if name.endswith("/") and name.startswith(last) and name not in levels]
    opened = {*levels, *paths}
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        inner = pool.map(lambda path: [path + name for name in store.children(path)], paths)
        return [name for name in found if name not in opened] + [name for names in inner for name in names]


def own_folders(namespace: DeletedNamespace) -> tuple[str, ...]:
    """
    Return the folders whose content is the repository's own: its data, and its metadata if it is alone.

    Metadata is named by its content, which does not tell its owner. If there are other repositories in the
    namespace, another catalog may know them, and the metadata may be theirs.
    """
    home = namespace.layout.home
    return (home,) if namespace.neighbours() else (home, METADATA)


def is_own(folders: Sequence[str]) -> Column:
    """Return whether the repository wrote a listed key: it is in its folders, and spelled as its address."""
    key = f.col("key")
    spelled = f.coalesce(key == f.col("address"), f.lit(False)) & ~key.contains("://")
    return spelled & reduce(or_, (key.startswith(folder) for folder in folders))


def has_own(namespace: DeletedNamespace) -> bool:
    """Return True if any object of the repository is left; it stops at the first one."""
    store, url = namespace.store(), namespace.repository.namespace
    return any(
        pc.any(
            pc.and_(are_addresses(batch.column("key"), url), pc.not_equal(batch.column("key"), MARKER)),
            min_count=0,
        ).as_py()
        for folder in own_folders(namespace)
        for batch in store.list(folder)
    )
