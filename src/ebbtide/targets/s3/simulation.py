"""Simulated buckets: versions written by hand, judged by the very same Spark evaluation as real ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.core.instant import from_micros
from ebbtide.targets.s3.evaluation.places import Setting
from ebbtide.targets.s3.evaluation.verdicts import evaluate
from ebbtide.targets.s3.model import Action, Hold, Upload, Verdict, Version

Case = tuple[Setting, Sequence[Version | Upload]]
"""A bucket's rules and state, and what it holds."""

_MOMENT = pa.timestamp("us", tz="UTC")
_ROWS = pa.schema(
    {
        "world": pa.int32(),
        "position": pa.int64(),
        "kind": pa.string(),
        "key": pa.string(),
        "version_id": pa.string(),
        "is_latest": pa.bool_(),
        "size": pa.int64(),
        "last_modified": _MOMENT,
        "storage_class": pa.string(),
        "tags": pa.map_(pa.string(), pa.string()),
        "legal_hold": pa.bool_(),
        "retain_until": _MOMENT,
        "replication_status": pa.string(),
        "restoring": pa.bool_(),
        "restored_until": _MOMENT,
    }
)


def simulate(spark: SparkSession, cases: Sequence[Case]) -> list[list[Verdict]]:
    """Judge all cases in one job; each gets a verdict for every item, in their order."""
    verdicts = [[Verdict()] * len(items) for _, items in cases]
    if not any(verdicts):
        return verdicts
    judged = evaluate(_rows(spark, cases), [setting for setting, _ in cases])
    found = judged.select(
        "world", "position", "action", "goal", "rule_id", f.unix_micros("due").alias("due"), "held_by"
    )
    for row in found.toArrow().to_pylist():
        verdicts[row["world"]][row["position"]] = _verdict(row)
    return verdicts


def _verdict(row: dict[str, Any]) -> Verdict:
    return Verdict(
        Action(row["action"]),
        row["goal"],
        row["rule_id"],
        None if row["due"] is None else from_micros(row["due"]),
        None if row["held_by"] is None else Hold(row["held_by"]),
    )


def _rows(spark: SparkSession, cases: Sequence[Case]) -> DataFrame:
    """Bring all items into one table; their order is that in which S3 would list them."""
    plain = [
        {"world": world, "position": position, **_row(item)}
        for world, (_, items) in enumerate(cases)
        for position, item in enumerate(items)
    ]
    return spark.createDataFrame(pa.Table.from_pylist(plain, _ROWS))


def _row(item: Version | Upload) -> dict[str, Any]:
    if isinstance(item, Upload):
        return {
            "kind": "upload",
            "key": item.key,
            "version_id": item.upload_id,
            "last_modified": item.initiated,
        }
    plain = {name: getattr(item, name) for name in _ROWS.names if hasattr(item, name)}
    return {
        **plain,
        "kind": "marker" if item.is_delete_marker else "version",
        "tags": None if item.tags is None else list(item.tags.items()),
    }
