"""Group by range: every range is read once, whoever shares it, with all who reach it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.lake.catalog.ranges import metarange_table
from ebbtide.lake.metadata.terms import Term
from ebbtide.lake.metadata.ties import Tie
from ebbtide.lake.metadata.world import Metarange, World, latest_order, metaranges_of
from ebbtide.plan.decision import HoldReason
from ebbtide.store.base import StoreSpec
from ebbtide.store.opening import open_store
from ebbtide.tables.contracts import RANGES

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


def range_table(spark: SparkSession, worlds: Mapping[int, World]) -> DataFrame:
    """
    List the ranges of all commits and of all staging, one row for each range and policy class.

    The driver knows the metaranges (one a commit); what is in them is read on the executors.
    """
    listed = {number: metaranges_of(world) for number, world in worlds.items()}
    terms = {
        number: sorted({m.term for m in found if m.term}, key=latest_order)
        for number, found in listed.items()
    }
    stores = {number: world.store for number, world in worlds.items()}
    found = _metaranges(spark, listed, terms).mapInArrow(_MetarangeReader(stores, terms), RANGES.schema)
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
    columns = list(zip(*rows, strict=True)) or [(), (), (), (), (), ()]
    kinds = [("world", pa.int32()), ("folder", pa.string()), ("id", pa.string()), ("ties", pa.string())]
    schema = pa.schema([*kinds, ("term", pa.int32()), ("lapses", pa.bool_())])
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


class _MetarangeReader:
    """Reads metaranges on an executor; a range that many of them share leaves it once."""

    def __init__(self, stores: Mapping[int, StoreSpec], terms: Mapping[int, list[Term]]) -> None:
        self._stores = stores
        self._terms = terms

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        # Most commits of a branch are reached by the same: what they list is put together, each range once.
        alike: dict[tuple[int, str, str], list[Any]] = {}
        for batch in batches:
            for row in batch.to_pylist():
                store = open_store(self._stores[row["world"]])
                listed = metarange_table(store, row["folder"], row["id"])
                place = pa.repeat(pa.scalar(row["term"], pa.int32()), listed.num_rows)
                lapses = pa.repeat(pa.scalar(row["lapses"]), listed.num_rows)
                termed = listed.append_column("term", place).append_column("lapses", lapses)
                alike.setdefault((row["world"], row["folder"], row["ties"]), []).append(termed)
        for (world, folder, ties), tables in alike.items():
            together = pa.concat_tables(tables)
            distinct = together.group_by(_LISTED, use_threads=False).aggregate(
                [("term", "max"), ("lapses", "max")]
            )
            kept = self._kept(world, distinct)
            for tie in json.loads(ties) if distinct.num_rows else ():
                yield from _rows(world, folder, distinct, kept, *tie)

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
