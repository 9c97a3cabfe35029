"""Group by range: every range is read once, whoever shares it, with all who reach it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.lake.catalog.ranges import metarange_table
from ebbtide.lake.metadata.ties import Tie
from ebbtide.lake.metadata.world import World, metaranges_of
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
    ]
)


def range_table(spark: SparkSession, worlds: Mapping[int, World]) -> DataFrame:
    """
    List the ranges of all commits and of all staging, one row for each range and policy class.

    The driver knows the metaranges (one a commit); what is in them is read on the executors.
    """
    found = _metaranges(spark, worlds).mapInArrow(
        _MetarangeReader({number: world.store for number, world in worlds.items()}), RANGES.schema
    )
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
        )
        .select(*RANGES.columns)
    )


def _metaranges(spark: SparkSession, worlds: Mapping[int, World]) -> DataFrame:
    """List all metaranges, each with those who reach it as JSON."""
    rows = [
        (number, m.folder, m.id, _text(m.ties))
        for number, world in worlds.items()
        for m in metaranges_of(world)
    ]
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    kinds = [("world", pa.int32()), ("folder", pa.string()), ("id", pa.string()), ("ties", pa.string())]
    return spark.createDataFrame(pa.table(list(map(list, columns)), schema=pa.schema(kinds)))


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

    def __init__(self, stores: Mapping[int, StoreSpec]) -> None:
        self._stores = stores

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        # Most commits of a branch are reached by the same: what they list is put together, each range once.
        alike: dict[tuple[int, str, str], list[Any]] = {}
        for batch in batches:
            for row in batch.to_pylist():
                store = open_store(self._stores[row["world"]])
                listed = metarange_table(store, row["folder"], row["id"])
                alike.setdefault((row["world"], row["folder"], row["ties"]), []).append(listed)
        for (world, folder, ties), tables in alike.items():
            together = pa.concat_tables(tables)
            distinct = together.group_by(together.column_names, use_threads=False).aggregate([])
            for tie in json.loads(ties) if distinct.num_rows else ():
                yield from _rows(world, folder, distinct, *tie)


def _rows(world: int, folder: str, ranges: Any, referrer: str, name: str, days: list[int | None]) -> Any:
    """Give one row for each range that somebody reaches."""
    same = {"world": world, "folder": folder, "referrer": referrer, "name": name, "days": days}
    columns = [
        pa.repeat(pa.scalar(same[field.name], field.type), ranges.num_rows)
        if field.name in same
        else ranges.column(field.name)
        for field in _ROWS
    ]
    return pa.table(columns, schema=_ROWS).combine_chunks().to_batches()
