"""The joins of a scan with the one before, and with what registries told, to which the clocks are applied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ebbtide.registry.documents import MEDIA_TYPES
from ebbtide.registry.graph import follows_a_digest
from ebbtide.registry.inventory.clocks import (
    ManifestRecord,
    Standing,
    TagRecord,
    manifest_record,
    tag_record,
)
from ebbtide.registry.inventory.columns import ASSIGNED_ARROW, FOUND_ARROW, UTC_TIME
from ebbtide.registry.inventory.events import PUSH
from ebbtide.registry.inventory.manifests import KEY
from ebbtide.registry.tables import IMAGES, TAGS
from ebbtide.rules.images.policies import Policies
from ebbtide.rules.images.policy import UNTAGGED, Assigned
from ebbtide.tables.contracts import Contract

_ASSIGNED = [name for name, _ in ASSIGNED_ARROW]
_TAGS_ARROW = pa.schema(
    [
        ("repository", pa.string()),
        ("tag", pa.string()),
        ("digest", pa.string()),
        ("moved_at", UTC_TIME),
        ("seen_at", UTC_TIME),
        *ASSIGNED_ARROW,
    ]
)
_CONTENT = [field for field in FOUND_ARROW if field.name not in ("missing", "fresh")]
_IMAGES_ARROW = pa.schema(
    [
        *_CONTENT,
        ("pushed_at", UTC_TIME),
        ("seen_at", UTC_TIME),
        ("untagged_since", UTC_TIME),
        *ASSIGNED_ARROW,
    ]
)


def dated_tags(
    tags: DataFrame,
    earlier: DataFrame,
    events: DataFrame,
    *,
    scanned: Mapping[str, datetime],
    policies: Policies,
    now: datetime,
) -> DataFrame:
    """Give the table TAGS for tags that were found; `scanned` is when each repository was last scanned."""
    before = earlier.select(
        "repository", "tag", *_renamed("before_", "digest", "moved_at", "seen_at", *_ASSIGNED)
    )
    pushes = events.where((f.col("action") == PUSH) & (f.col("tag") != ""))
    newest = pushes.groupBy("repository", "tag").agg(f.max(f.struct("at", "digest")).alias("push"))
    rows = tags.join(before, ["repository", "tag"], "left").join(newest, ["repository", "tag"], "left")
    told = f.when(f.col("push.digest") == f.col("digest"), f.col("push.at"))
    dater = _TagDater(dict(scanned), policies, now)
    return rows.withColumn("pushed", told).drop("push").mapInArrow(dater, _spark_schema(TAGS, _TAGS_ARROW))


def dated_images(
    found: DataFrame,
    tags: DataFrame,
    earlier_images: DataFrame,
    earlier_tags: DataFrame,
    events: DataFrame,
    *,
    held: frozenset[str],
    policies: Policies,
    now: datetime,
) -> DataFrame:
    """Give the table IMAGES for manifests that are there; in the repositories that are held all stay."""
    times = ["pushed_at", "seen_at", "untagged_since"]
    before = earlier_images.select(*KEY, *_renamed("before_", *times, *_ASSIGNED))
    facts = _facts(found, tags, earlier_tags, events)
    rows = found.join(facts, KEY, "left").join(before, KEY, "left")
    dater = _ImageDater(held, policies, now)
    return rows.mapInArrow(dater, _spark_schema(IMAGES, _IMAGES_ARROW))


def _facts(found: DataFrame, tags: DataFrame, earlier_tags: DataFrame, events: DataFrame) -> DataFrame:
    """Say of each manifest whether it has a tag, had one, is led to, and when its last push was."""
    subjects = found.select("repository", f.col("digest").alias("subject"))
    rows = [
        (tags, "tagged"),
        (earlier_tags, "was_tagged"),
        (found.select("repository", f.explode("children").alias("digest")), "led"),
        (found.join(subjects, ["repository", "subject"], "left_semi"), "led"),
    ]
    names = ("tagged", "was_tagged", "led")
    parts = [
        part.select(*KEY, *[f.lit(name == fact).alias(name) for name in names], _no_time().alias("pushed"))
        for part, fact in rows
    ]
    pushes = events.where(f.col("action") == PUSH).withColumn("pushed", f.col("at"))
    parts.append(pushes.select(*KEY, *[f.lit(False).alias(name) for name in names], "pushed"))
    together = parts[0]
    for part in parts[1:]:
        together = together.unionByName(part)
    return together.groupBy(*KEY).agg(*[f.max(name).alias(name) for name in (*names, "pushed")])


def _no_time() -> Column:
    return f.lit(None).cast("timestamp")


def _renamed(prefix: str, *names: str) -> list[Column]:
    return [f.col(name).alias(f"{prefix}{name}") for name in names]


def _spark_schema(contract: Contract, columns: Any) -> str:
    """Give the columns that a dater makes; a scan has nothing to say in the others."""
    return ", ".join(f"{name} {contract.schema[name].dataType.simpleString()}" for name in columns.names)


@dataclass(frozen=True)
class _TagDater:
    """Applies the clocks to tags on an executor."""

    scanned: Mapping[str, datetime]
    policies: Policies
    now: datetime

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            rows = [self._dated(row) for row in batch.to_pylist()]
            yield pa.RecordBatch.from_pylist(rows, schema=_TAGS_ARROW)

    def _dated(self, row: Mapping[str, Any]) -> dict[str, Any]:
        repository, tag = row["repository"], row["tag"]
        earlier = (
            TagRecord(row["before_digest"], row["before_moved_at"], row["before_seen_at"], _assigned(row))
            if row["before_digest"] is not None
            else None
        )
        found = tag_record(
            row["digest"],
            earlier,
            pushed=row["pushed"],
            scanned=self.scanned.get(repository),
            policy=None if follows_a_digest(tag) else self.policies.for_tag(repository, tag),
            now=self.now,
        )
        return {
            "repository": repository,
            "tag": tag,
            "digest": found.digest,
            "moved_at": found.moved_at,
            "seen_at": found.seen_at,
            **_columns(found.assigned),
        }


@dataclass(frozen=True)
class _ImageDater:
    """Applies the clocks to manifests on an executor."""

    held: frozenset[str]
    policies: Policies
    now: datetime

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            rows = [self._dated(row) for row in batch.to_pylist()]
            yield pa.RecordBatch.from_pylist(rows, schema=_IMAGES_ARROW)

    def _dated(self, row: Mapping[str, Any]) -> dict[str, Any]:
        earlier = (
            ManifestRecord(
                row["before_pushed_at"], row["before_seen_at"], row["before_untagged_since"], _assigned(row)
            )
            if row["before_seen_at"] is not None
            else None
        )
        held = row["repository"] in self.held or row["media_type"] not in MEDIA_TYPES
        standing = Standing(bool(row["tagged"]), bool(row["was_tagged"]), bool(row["led"]), held)
        found = manifest_record(
            standing, earlier, pushed=row["pushed"], untagged=self.policies.the(UNTAGGED), now=self.now
        )
        return {
            **{field.name: row[field.name] for field in _CONTENT},
            "pushed_at": found.pushed_at,
            "seen_at": found.seen_at,
            "untagged_since": found.untagged_since,
            **_columns(found.assigned),
        }


def _assigned(row: Mapping[str, Any]) -> Assigned:
    return Assigned(*[row[f"before_{name}"] for name in _ASSIGNED])


def _columns(assigned: Assigned) -> dict[str, Any]:
    return {name: getattr(assigned, name) for name in _ASSIGNED}
