"""Group by range: every range is read once, whoever shares it, with all who reach it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.lake.catalog.model import RangeInfo
from ebbtide.lake.catalog.ranges import read_metarange
from ebbtide.lake.lifecycle.world import World, metaranges_of
from ebbtide.store.base import StoreSpec
from ebbtide.store.opening import open_store
from ebbtide.tables.contracts import RANGES

_TIE = "array<struct<referrer:string,name:string,days:array<int>>>"
_METARANGES = f"world int, folder string, id string, ties {_TIE}"
_RANGE = "world int, folder string, range_id string, min_key string, max_key string, count bigint"
_RANGE_ROWS = pa.schema(
    [
        ("world", pa.int32()),
        ("folder", pa.string()),
        ("range_id", pa.string()),
        ("min_key", pa.string()),
        ("max_key", pa.string()),
        ("count", pa.int64()),
        (
            "ties",
            pa.list_(
                pa.struct([("referrer", pa.string()), ("name", pa.string()), ("days", pa.list_(pa.int32()))])
            ),
        ),
    ]
)


def range_table(spark: SparkSession, worlds: Mapping[int, World]) -> DataFrame:
    """
    List the ranges of all commits and of all staging, one row for each range and policy class.

    The driver knows the metaranges (one a commit); what is in them is read on the executors.
    """
    rows = [
        (number, m.folder, m.id, [(str(t.referrer), t.name, list(t.days)) for t in m.ties])
        for number, world in worlds.items()
        for m in metaranges_of(world)
    ]
    stores = {number: world.store for number, world in worlds.items()}
    parallelism = max(1, min(len(rows), 4 * spark.sparkContext.defaultParallelism))
    metaranges = spark.createDataFrame(rows, _METARANGES).repartition(parallelism)
    found = metaranges.mapInArrow(_MetarangeReader(stores), f"{_RANGE}, ties {_TIE}")
    exploded = found.select("*", f.explode("ties").alias("tie")).select("*", "tie.*").drop("ties", "tie")
    defaults = sorted({world.default_branch for world in worlds.values()})
    # One name a class is enough to point at; the default branch's, so that a table changes little when other
    # branches come and go, or else the first in order, so that it does not depend on Spark.
    first = f.min(f.struct((~f.col("name").isin(defaults)).alias("other"), "name"))
    return (
        exploded.groupBy("world", "folder", "range_id", "referrer", "days")
        .agg(
            f.min("min_key").alias("min_key"),
            f.max("max_key").alias("max_key"),
            f.max("count").alias("count"),
            first["name"].alias("name"),
        )
        .select(*RANGES.columns)
    )


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
        found: dict[tuple[int, str, RangeInfo], dict[str, Any]] = {}
        for batch in batches:
            for row in batch.to_pylist():
                store = open_store(self._stores[row["world"]])
                ties = {json.dumps(tie): tie for tie in row["ties"]}
                for info in read_metarange(store, row["folder"], row["id"]):
                    found.setdefault((row["world"], row["folder"], info), {}).update(ties)
        rows = [
            {
                "world": world,
                "folder": folder,
                "range_id": info.id,
                "min_key": info.min_key,
                "max_key": info.max_key,
                "count": info.count,
                "ties": list(ties.values()),
            }
            for (world, folder, info), ties in found.items()
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=_RANGE_ROWS)
