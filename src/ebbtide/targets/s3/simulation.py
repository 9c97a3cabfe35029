"""
Simulated buckets: versions and uploads from a file, evaluated by the same Spark code as real buckets.

A file has one JSON object per line. Every field is checked, and errors name the line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.core.documents import (
    check_fields,
    flag_field,
    json_lines,
    moment_field,
    size_field,
    text_field,
)
from ebbtide.core.errors import WorldError
from ebbtide.core.instant import format_instant, from_micros
from ebbtide.targets.s3.evaluation.key_intervals import BucketSetting
from ebbtide.targets.s3.evaluation.verdicts import evaluate
from ebbtide.targets.s3.model import NULL, Action, Hold, Upload, Verdict, Version
from ebbtide.targets.s3.rules.storage_classes import STANDARD

Case = tuple[BucketSetting, Sequence[Version | Upload]]
"""The rules and the state of a bucket, and its items."""

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
    """Evaluate all cases in one Spark job; return a verdict per item for each case."""
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
    """Put all items into one table; their order is the order in which S3 would list them."""
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


VERSION_FIELDS = (
    "kind",
    "key",
    "version_id",
    "last_modified",
    "is_latest",
    "is_delete_marker",
    "size",
    "storage_class",
    "tags",
    "etag",
    "legal_hold",
    "retain_until",
    "replication_status",
    "restoring",
    "restored_until",
)
UPLOAD_FIELDS = ("kind", "key", "upload_id", "initiated")
_HOLD_WORDS = {"ON": True, "OFF": False}


def read_lines(text: str, name: str) -> list[Version | Upload]:
    """Read JSON lines; empty lines are skipped."""
    found = [read_item(data, where) for where, data in json_lines(text, name)]
    check_items(found, name)
    return found


def read_item(data: Any, where: str) -> Version | Upload:
    """Read one version, delete marker or upload."""
    if not isinstance(data, dict):
        raise WorldError(f"{where} is not an object", fix='write {"key": ..., "last_modified": ...}')
    kind = data.get("kind", "version")
    if kind not in ("version", "upload"):
        raise WorldError(f"{where}: kind is {kind!r}", fix="write version or upload, or leave it out")
    fields = UPLOAD_FIELDS if kind == "upload" else VERSION_FIELDS
    check_fields(where, data, fields)
    return _upload(data, where) if kind == "upload" else _version(data, where)


def check_items(items: Iterable[Version | Upload], where: str) -> None:
    """Raise WorldError if an item is given twice: they could not be distinguished."""
    seen = set[tuple[str, ...]]()
    for item in items:
        name = item.upload_id if isinstance(item, Upload) else item.version_id
        kind = "upload" if isinstance(item, Upload) else "version"
        identity = kind, item.key, name
        if identity in seen:
            raise WorldError(f"{where}: {kind} {name!r} of {item.key!r} is given twice", fix="give each once")
        seen.add(identity)


def plain_verdict(item: Version | Upload, verdict: Verdict) -> dict[str, Any]:
    """Return the public JSON form of the verdict on one item."""
    name = {"upload_id": item.upload_id} if isinstance(item, Upload) else {"version_id": item.version_id}
    return {
        "key": item.key,
        **name,
        "action": str(verdict.action),
        "storage_class": verdict.storage_class,
        "rule_id": verdict.rule_id,
        "due": None if verdict.due is None else format_instant(verdict.due),
        "held_by": None if verdict.held_by is None else str(verdict.held_by),
    }


def _version(data: Mapping[str, Any], where: str) -> Version:
    return Version(
        key=text_field(where, "key", data.get("key")),
        version_id=text_field(where, "version_id", data.get("version_id") or NULL),
        last_modified=moment_field(where, "last_modified", data.get("last_modified")),
        is_latest=_flag(where, "is_latest", data.get("is_latest")),
        is_delete_marker=bool(_flag(where, "is_delete_marker", data.get("is_delete_marker"))),
        size=size_field(where, "size", data.get("size")),
        storage_class=text_field(where, "storage_class", data.get("storage_class") or STANDARD),
        tags=_tags(where, data.get("tags")),
        etag=None if data.get("etag") is None else text_field(where, "etag", data["etag"]),
        legal_hold=bool(_flag(where, "legal_hold", data.get("legal_hold"))),
        retain_until=moment_field(where, "retain_until", data.get("retain_until")),
        replication_status=data.get("replication_status")
        and text_field(where, "replication_status", data["replication_status"]),
        restoring=bool(_flag(where, "restoring", data.get("restoring"))),
        restored_until=moment_field(where, "restored_until", data.get("restored_until")),
    )


def _upload(data: Mapping[str, Any], where: str) -> Upload:
    return Upload(
        text_field(where, "key", data.get("key")),
        text_field(where, "upload_id", data.get("upload_id")),
        moment_field(where, "initiated", data.get("initiated")),
    )


def _flag(where: str, name: str, value: Any) -> bool | None:
    """Read a flag, as a boolean or as ON or OFF, which S3 uses."""
    return flag_field(where, name, _HOLD_WORDS.get(value, value) if isinstance(value, str) else value)


def _tags(where: str, value: Any) -> dict[str, str] | None:
    """Read tags as a mapping, or in the form of S3: a list of Key and Value."""
    if value is None:
        return None
    if isinstance(value, list) and all(isinstance(tag, dict) and {*tag} == {"Key", "Value"} for tag in value):
        value = {tag["Key"]: tag["Value"] for tag in value}
    if not isinstance(value, dict) or not all(
        isinstance(key, str) and isinstance(text, str) for key, text in value.items()
    ):
        raise WorldError(f"{where}: tags are {value!r}", fix='write {"project": "blue"}')
    return value
