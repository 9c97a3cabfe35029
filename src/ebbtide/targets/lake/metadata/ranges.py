"""Group by range: every range is read once, whoever shares it, with all who reach it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.core.decision import HoldReason
from ebbtide.core.errors import MetadataError
from ebbtide.engine.tables.contracts import RANGES
from ebbtide.storage.store import StoreSpec, open_store
from ebbtide.targets.lake.catalog.ranges import metarange_table
from ebbtide.targets.lake.metadata.terms import Term
from ebbtide.targets.lake.metadata.ties import Tie
from ebbtide.targets.lake.metadata.world import Metarange, World, latest_order, metaranges_of

_ROWS = pa.schema(
    [
        ("world", pa.int32()),
        ("folder", pa.string()),
        ("range_id", pa.string()),
        ("min_key", pa.string()),
        ("max_key", pa.string()),
        ("count", pa.int64()),
        ("referrer", pa.string()),
        ("name", pa.string()),
        ("days", pa.list_(pa.int32())),
        ("until", pa.timestamp("us", tz="UTC")),
        ("keeper", pa.string()),
        ("why", pa.string()),
        ("lapses", pa.bool_()),
    ]
)
_LISTED = ["range_id", "min_key", "max_key", "count"]


def written_ranges(spark: SparkSession, worlds: Mapping[int, World], folder: Path) -> DataFrame:
    """Write the range table and give it; stop unless every metarange of every commit was read."""
    listed = {number: metaranges_of(world) for number, world in worlds.items()}
    read = spark.sparkContext.accumulator(frozenset(), _Numbers())
    RANGES.write(_range_table(spark, worlds, listed, read), folder)
    check_all_read(sum(map(len, listed.values())), len(read.value))
    return RANGES.read(spark, folder)


def check_all_read(handed_out: int, read: int) -> None:
    """Stop unless executors have read as many metaranges as they were handed: each has live references."""
    if read != handed_out:
        raise MetadataError(
            f"{handed_out} metaranges were to be read, and the executors read {read}",
            why="what the others reference would look unreferenced",
            fix="plan again; if this happens again, it is a defect of Ebbtide",
        )


def range_table(spark: SparkSession, worlds: Mapping[int, World]) -> DataFrame:
    """
    List the ranges of all commits and of all staging, one row for each range and policy class.

    The driver knows the metaranges (one a commit); what is in them is read on the executors.
    """
    listed = {number: metaranges_of(world) for number, world in worlds.items()}
    return _range_table(spark, worlds, listed, None)


def _range_table(
    spark: SparkSession,
    worlds: Mapping[int, World],
    listed: Mapping[int, list[Metarange]],
    read: Accumulator[frozenset[int]] | None,
) -> DataFrame:
    terms = {
        number: sorted({m.term for m in found if m.term}, key=latest_order)
        for number, found in listed.items()
    }
    stores = {number: world.store for number, world in worlds.items()}
    found = _metaranges(spark, listed, terms).mapInArrow(_MetarangeReader(stores, terms, read), RANGES.schema)
    defaults = sorted({world.default_branch for world in worlds.values()})
    # One name a class is enough to point at; the default branch's, so that a table changes little when other
    # branches come and go, or else the first in order, so that it does not depend on Spark.
    first = f.min(f.struct((~f.col("name").isin(defaults)).alias("other"), "name"))
    return (
        found.groupBy("world", "folder", "range_id", "referrer", "days")
        .agg(
            f.min("min_key").alias("min_key"),
            f.max("max_key").alias("max_key"),
            f.max("count").alias("count"),
            first["name"].alias("name"),
            latest_term().alias("term"),
            f.max("lapses").alias("lapses"),
        )
        .select("*", "term.*")
        .select(*RANGES.columns)
    )


def latest_term() -> Column:
    """Give the term that ends last, a head's before all others that never end."""
    by_head = (f.col("why") == str(HoldReason.HEAD)).alias("by_head")
    return f.max(f.struct("until", by_head, "keeper", "why"))


def _metaranges(
    spark: SparkSession, listed: Mapping[int, list[Metarange]], terms: Mapping[int, list[Term]]
) -> DataFrame:
    """List all metaranges, each with those who reach it as JSON, and with the place of its term, if any."""
    places = {number: {term: place for place, term in enumerate(found)} for number, found in terms.items()}
    rows = [
        (number, m.folder, m.id, _text(m.ties), places[number].get(m.term) if m.term else None, m.lapses)
        for number, found in listed.items()
        for m in found
    ]
    columns = [range(len(rows)), *(zip(*rows, strict=True) if rows else [()] * 6)]
    kinds = [("world", pa.int32()), ("folder", pa.string()), ("id", pa.string()), ("ties", pa.string())]
    schema = pa.schema([("number", pa.int64()), *kinds, ("term", pa.int32()), ("lapses", pa.bool_())])
    return spark.createDataFrame(pa.table(list(map(list, columns)), schema=schema))


def _text(ties: Sequence[Tie]) -> str:
    """Write ties as JSON, alike for all metaranges that the same reach."""
    ordered = sorted(ties, key=lambda tie: (tie.referrer, tie.name))
    return json.dumps([(tie.referrer, tie.name, tie.days) for tie in ordered])


def ranges_with_ties(ranges: DataFrame) -> DataFrame:
    """Gather the classes of each range into one row: the unit that an executor reads."""
    ties = f.sort_array(f.collect_list(f.struct("referrer", "name", "days"))).alias("ties")
    return ranges.groupBy("world", "folder", "range_id").agg(
        f.min("min_key").alias("min_key"),
        f.max("max_key").alias("max_key"),
        f.max("count").alias("count"),
        ties,
    )


class _Numbers(AccumulatorParam[frozenset[int]]):
    """Puts together which metaranges tasks have read; a task that runs twice adds nothing."""

    def zero(self, value: frozenset[int]) -> frozenset[int]:
        """Begin with none."""
        return value & frozenset()

    def addInPlace(self, value1: frozenset[int], value2: frozenset[int]) -> frozenset[int]:  # noqa: N802
        """Add what a task has read."""
        return value1 | value2


class _MetarangeReader:
    """Reads metaranges on an executor; a range that many of them share leaves it once."""

    def __init__(
        self,
        stores: Mapping[int, StoreSpec],
        terms: Mapping[int, list[Term]],
        read: Accumulator[frozenset[int]] | None,
    ) -> None:
        self._stores = stores
        self._terms = terms
        self._read = read

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        # Most commits of a branch are reached by the same: what they list is put together, each range once.
        alike: dict[tuple[int, str, str], list[Any]] = {}
        numbers: set[int] = set()
        for batch in batches:
            for row in batch.to_pylist():
                store = open_store(self._stores[row["world"]])
                listed = metarange_table(store, row["folder"], row["id"])
                place = pa.repeat(pa.scalar(row["term"], pa.int32()), listed.num_rows)
                lapses = pa.repeat(pa.scalar(row["lapses"]), listed.num_rows)
                termed = listed.append_column("term", place).append_column("lapses", lapses)
                alike.setdefault((row["world"], row["folder"], row["ties"]), []).append(termed)
                numbers.add(row["number"])
        for (world, folder, ties), tables in alike.items():
            together = pa.concat_tables(tables)
            distinct = together.group_by(_LISTED, use_threads=False).aggregate(
                [("term", "max"), ("lapses", "max")]
            )
            kept = self._kept(world, distinct)
            for tie in json.loads(ties) if distinct.num_rows else ():
                yield from _rows(world, folder, distinct, kept, *tie)
        if self._read is not None:
            self._read.add(frozenset(numbers))

    def _kept(self, world: int, ranges: Any) -> dict[str, Any]:
        """Say until when ranges are kept and by what; terms are in order, so the last is the latest."""
        terms = self._terms[world]
        columns = {
            "until": pa.array([term.until for term in terms], pa.timestamp("us", tz="UTC")),
            "keeper": pa.array([term.keeper for term in terms], pa.string()),
            "why": pa.array([term.why for term in terms], pa.string()),
        }
        places = ranges.column("term_max").combine_chunks()
        kept = {name: column.take(places) for name, column in columns.items()}
        return kept | {"lapses": ranges.column("lapses_max")}


def _rows(
    world: int,
    folder: str,
    ranges: Any,
    kept: Mapping[str, Any],
    referrer: str,
    name: str,
    days: list[int | None],
) -> Any:
    """Give one row for each range that somebody reaches."""
    same = {"world": world, "folder": folder, "referrer": referrer, "name": name, "days": days}
    columns = [
        pa.repeat(pa.scalar(same[field.name], field.type), ranges.num_rows)
        if field.name in same
        else (ranges.column(field.name) if field.name in _LISTED else kept[field.name])
        for field in _ROWS
    ]
    return pa.table(columns, schema=_ROWS).combine_chunks().to_batches()
