"""
Emptying the bin of what has expired there: a plan of its own, with its own breaker.

It is never one with the purge that fills the bin: an image that is just being set aside shares manifests with
others, and what nobody's entry needs yet would look like nobody's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.core.decision import HoldReason, Outcome
from ebbtide.core.errors import EbbtideError, NotFound, StalePlan
from ebbtide.core.instant import to_micros
from ebbtide.core.manifest import Manifest
from ebbtide.engine.actor import Actor, Attempt, settle
from ebbtide.engine.apply import Applied
from ebbtide.engine.cluster_check import Reach
from ebbtide.engine.collector import Collected, Collector, Identity, Policy, Run
from ebbtide.engine.layers import TOUCHED, Layers
from ebbtide.engine.layout import OnStep
from ebbtide.engine.tables.contracts import STANDINGS, TASK
from ebbtide.engine.tables.digest import address_hash
from ebbtide.state.users import SYSTEM, current_user
from ebbtide.storage.store import DeleteResult
from ebbtide.targets.oci.base import Registry, RegistrySpec
from ebbtide.targets.oci.client.opening import open_registry
from ebbtide.targets.oci.policies.policy import RECYCLE_BIN
from ebbtide.targets.oci.purge.acting import Results, acted, refused
from ebbtide.targets.oci.purge.collector import check_same_registry, outcome_words
from ebbtide.targets.oci.purge.identity import identify
from ebbtide.targets.oci.purge.planned import Action, Planned
from ebbtide.targets.oci.purge.removed import BIN_COLLECTOR
from ebbtide.targets.oci.purge.shop import RegistryShop
from ebbtide.targets.oci.reach import RegistryReach
from ebbtide.targets.oci.recycling.discarding import discard_each
from ebbtide.targets.oci.recycling.entry import BinEntry
from ebbtide.targets.oci.recycling.foreign import foreign_words
from ebbtide.targets.oci.recycling.listing import bin_repositories, entries, find_entry
from ebbtide.targets.oci.recycling.naming import is_own_shape, original_of

_UTC = pa.timestamp("us", tz="UTC")
_COLUMNS = (
    "repository string, digest string, tags array<string>, size bigint, recycled timestamp, expires timestamp"
)
_ROWS = 1_000


@dataclass(frozen=True)
class ImageBinCollector(Collector):
    """
    Collects the images that have been in the bins of a registry for their time.

    Nothing refers to what lies there, and only Ebbtide writes to them, one run at a time. An image that was
    set aside once more since the plan has another time in its entry, which the actor sees.
    """

    shop: RegistryShop

    name = BIN_COLLECTOR
    in_order = True
    """What lies in one bin may share manifests."""

    @property
    def identity(self) -> Identity:
        """The registry."""
        return self.shop.identity

    def policy(self) -> Policy:
        """Return the expiry of the bin, which every entry has a copy of."""
        text = json.dumps({"bin": "each image goes at the date that it got when it was set aside"})
        return Policy(text, BIN_COLLECTOR)

    def reach(self) -> Reach:
        """Reach the registry."""
        return RegistryReach(self.shop.spec)

    def check_ready(self) -> None:
        """Raise if the registry does not answer."""
        with self.shop.opened():
            pass

    def before_plan(self) -> tuple[str, ...]:
        """Make sure which registry it is."""
        return identify(self.shop, current_user(), "make a plan")

    def collect(self, run: Run) -> Collected:
        """List the bins on the executors, and give each image there the standing that its date makes."""
        with self.shop.opened() as registry:
            bins = sorted(bin_repositories(registry))
            warnings = tuple(_foreign(registry, bins))
        place = run.folder.scratch / "standings"
        STANDINGS.write(bin_standings(self._listed(run.spark, bins)), place, partition_by="kind")
        run.on_step("standings written")
        return Collected(Layers(place), {"bins": len(bins)}, warnings, without_buried=True)

    def _listed(self, spark: SparkSession, bins: Sequence[str]) -> DataFrame:
        tasks = max(1, min(len(bins), spark.sparkContext.defaultParallelism))
        numbers = spark.range(0, len(bins), 1, tasks)
        return numbers.mapInArrow(_EntryLister(self.shop.spec, tuple(bins)), _COLUMNS)

    def check(self, plan: Manifest) -> None:
        """Check that it is the same registry."""
        check_same_registry(self.shop, plan)

    def check_unchanged(self, plan: Manifest) -> None:
        """Let it pass: dates were copied when the images were set aside, and no policy changes them."""

    def actor(self, plan: Manifest, attempt: Attempt) -> Actor:  # noqa: ARG002 (the rows say it all)
        """Take images out of the bin."""
        return BinActor(self.shop.spec, attempt)

    def after_apply(self, spark: SparkSession, plan: Manifest, applied: Applied, on_step: OnStep) -> None:  # noqa: ARG002 (the log is no step)
        """Write into the log what was done."""
        if not applied.already_applied:
            self._note(plan, outcome_words(applied))

    def after_failure(self, plan: Manifest, error: EbbtideError) -> None:
        """Write into the log how far it came."""
        self._note(plan, f"{error.what} ({error.why})")

    def _note(self, plan: Manifest, what: str) -> None:
        self.shop.records.note_purge(self.shop.uid, plan.run_id, f"{plan.collector}: {what}", SYSTEM)


def _foreign(registry: Registry, bins: Iterable[str]) -> Iterator[str]:
    """Warn of tags that cannot be ours by their names; whoever empties the bin looks at the content."""
    for name in bins:
        with suppress(NotFound):
            for tag in registry.tags(name):
                if not is_own_shape(tag):
                    yield foreign_words(name, tag)


@dataclass(frozen=True)
class _EntryLister:
    """Lists bins on an executor; a bin comes as its number."""

    spec: RegistrySpec
    bins: tuple[str, ...]

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        registry = open_registry(self.spec)
        try:
            rows: list[dict[str, Any]] = []
            for batch in batches:
                for number in batch.column("id").to_pylist():
                    for entry in entries(registry, original_of(self.bins[number])):
                        rows.append(_row(entry))
                        if len(rows) >= _ROWS:
                            yield _batch(rows)
                            rows = []
            yield _batch(rows)
        finally:
            registry.close()


def _row(entry: BinEntry) -> dict[str, Any]:
    return {
        "repository": entry.repository,
        "digest": entry.digest,
        "tags": list(entry.tag_names),
        "size": entry.size,
        "recycled": entry.recycled_at,
        "expires": entry.expires_at,
    }


def _batch(rows: Sequence[dict[str, Any]]) -> Any:
    schema = pa.schema(
        [
            ("repository", pa.string()),
            ("digest", pa.string()),
            ("tags", pa.list_(pa.string())),
            ("size", pa.int64()),
            ("recycled", _UTC),
            ("expires", _UTC),
        ]
    )
    return pa.RecordBatch.from_pylist(list(rows), schema)


def bin_standings(listed: DataFrame) -> DataFrame:
    """Give each image in the bin its standing: it stays until its date there."""
    address = f.concat_ws("@", "repository", "digest")
    names = f.transform("tags", lambda tag: f.concat_ws(":", f.col("repository"), tag))
    until = f.date_format("expires", "yyyy-MM-dd'T'HH:mm:ss'Z'")
    nothing = f.lit(None)
    task = f.struct(
        f.lit(str(Action.EMPTY)).alias("action"),
        f.lit("").alias("version"),
        nothing.cast("string").alias("etag"),
        nothing.cast("boolean").alias("latest"),
        nothing.cast("int").alias("newer"),
        nothing.cast("string").alias("goal"),
    )
    return STANDINGS.check(
        listed.select(
            f.lit(0).alias("world"),
            address_hash(address).alias("hash"),
            address.alias("address"),
            f.col("expires").alias("deadline"),
            f.lit(str(HoldReason.NOT_YET)).alias("reason"),
            f.concat(f.lit("in the bin until "), until).alias("held_by"),
            f.when(f.size("tags") > 0, names).otherwise(f.array(address)).alias("paths"),
            f.array(f.lit(RECYCLE_BIN.name)).alias("rules"),
            f.array().cast("array<string>").alias("branches"),
            f.col("size"),
            f.col("recycled").alias("created"),
            f.lit(str(Action.EMPTY)).alias("collector"),
            task.cast(TASK).alias("task"),
            f.lit(TOUCHED).alias("kind"),
        )
    )


@dataclass(frozen=True)
class BinActor:
    """Takes images out of the bin on an executor."""

    spec: RegistrySpec
    attempt: Attempt

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Do all rows, and give their outcomes."""
        return acted(self.attempt, batches, self._do)

    def _do(self, items: Sequence[Planned]) -> Results:
        again = self.attempt.is_repeated()
        try:
            registry = open_registry(self.spec)
        except EbbtideError as broken:
            return {item.number: refused(item, broken) for item in items}
        try:
            return {number: settle(one, again=again) for number, one in _emptied(registry, items).items()}
        finally:
            registry.close()


def _emptied(registry: Registry, items: Sequence[Planned]) -> Results:
    """Take out of the bin what is there as it was planned."""
    results: Results = {}
    doomed: dict[tuple[str, str], tuple[Planned, BinEntry]] = {}
    for item in items:
        try:
            found = find_entry(registry, item.repository, item.digest)
        except EbbtideError as broken:
            results[item.number] = refused(item, broken)
            continue
        if found is None:
            results[item.number] = DeleteResult(item.name, Outcome.ABSENT)
        elif item.created is None or to_micros(found[0].recycled_at) != to_micros(item.created):
            results[item.number] = DeleteResult(item.name, Outcome.CHANGED, "it was set aside again since")
        else:
            doomed[item.address] = (item, found[0])
    for done in discard_each(registry, [entry for _, entry in doomed.values()]):
        item = doomed[done.entry.repository, done.entry.digest][0]
        results[item.number] = _result(item, done.error)
    return results


def _result(item: Planned, error: EbbtideError | None) -> DeleteResult:
    if error is None:
        return DeleteResult(item.name, Outcome.DELETED)
    if isinstance(error, StalePlan):
        return DeleteResult(item.name, Outcome.CHANGED, error.what)
    return refused(item, error)
