"""
Emptying the bin of what has expired there: a plan of its own, with its own breaker.

It is never one with the purge that fills the bin: an image that is just being set aside shares manifests with
others, and what nobody's entry needs yet would look like nobody's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.engine.deleting import Attempt, settle
from ebbtide.engine.fencing import Unfenced
from ebbtide.engine.freezing import Decided, OnStep, no_step
from ebbtide.engine.layers import TOUCHED, Layers
from ebbtide.engine.layout import RunFolder
from ebbtide.errors import EbbtideError, StalePlan
from ebbtide.plan.decision import HoldReason, Outcome
from ebbtide.plan.manifest import Manifest
from ebbtide.registry.base import Registry, RegistrySpec
from ebbtide.registry.client.opening import open_registry
from ebbtide.registry.purge.acting import Results, acted, refused
from ebbtide.registry.purge.planned import Action, Planned
from ebbtide.registry.recycling.discarding import discard_each
from ebbtide.registry.recycling.entry import BinEntry
from ebbtide.registry.recycling.listing import bin_repositories, entries, find_entry
from ebbtide.registry.recycling.naming import original_of
from ebbtide.rules.images.policy import RECYCLE_BIN
from ebbtide.rules.instant import to_micros
from ebbtide.store.base import DeleteResult
from ebbtide.tables.contracts import STANDINGS, TASK
from ebbtide.tables.digest import address_hash

_UTC = pa.timestamp("us", tz="UTC")
_COLUMNS = (
    "repository string, digest string, tags array<string>, size bigint, recycled timestamp, expires timestamp"
)
_ROWS = 1_000


@dataclass(frozen=True)
class BinPlanner:
    """Plans what is to go from the bins of a registry."""

    spark: SparkSession
    spec: RegistrySpec
    on_step: OnStep = no_step

    def decide(self, folder: RunFolder) -> Decided:
        """List the bins on the executors, and give each image there the standing that its date makes."""
        registry = open_registry(self.spec)
        try:
            bins = sorted(bin_repositories(registry))
        finally:
            registry.close()
        place = folder.scratch / "standings"
        STANDINGS.write(bin_standings(self._listed(bins)), place, partition_by="kind")
        self.on_step("standings written")
        return Decided(Layers(place), {"bins": len(bins)}, without_buried=True, in_order=True)

    def _listed(self, bins: Sequence[str]) -> DataFrame:
        tasks = max(1, min(len(bins), self.spark.sparkContext.defaultParallelism))
        numbers = self.spark.range(0, len(bins), 1, tasks)
        return numbers.mapInArrow(_EntryLister(self.spec, tuple(bins)), _COLUMNS)


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


@dataclass(frozen=True)
class BinTarget(Unfenced):
    """
    The bins of a registry.

    Nothing refers to what lies there, and only Ebbtide writes to them, one run at a time. An image that was
    set aside once more since the plan has another time in its entry, and whoever empties the bin sees that.
    """

    make_deleter: Callable[[Attempt], Any]

    @property
    def in_order(self) -> bool:
        """Always: what lies in one bin may share manifests."""
        return True

    def deleter(self, attempt: Attempt) -> Any:
        """Make what takes images out of the bin on the executors."""
        return self.make_deleter(attempt)

    def check_still_meant(self, manifest: Manifest) -> None:
        """Let it pass: dates were copied when the images were set aside, and no policy changes them."""
