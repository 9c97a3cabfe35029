"""
Judging a registry, on Spark or, where there are few images, by the oracle itself.

Spark takes half a minute for a handful of images, and the oracle no time at all; they say the same, which is
how the evaluation is tested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from ebbtide.core.errors import MetadataError
from ebbtide.targets.oci.evaluation.verdicts import evaluate
from ebbtide.targets.oci.model import OLDEST_SCAN, Decision, Image, Judgement, Running, Tag
from ebbtide.targets.oci.oracle import judge
from ebbtide.targets.oci.policies.policy import Policies
from ebbtide.targets.oci.rows import image_of, tag_of
from ebbtide.targets.oci.tables import IMAGES, TAGS, VERDICTS

FEW = 20_000
"""So many tags and manifests fit into the driver's memory many times over."""

Row = Mapping[str, Any]
Name = tuple[str, str, str | None]
_RANK = {Decision.RECYCLE: 1, Decision.DELETE: 2}


def judged(
    images: DataFrame,
    tags: DataFrame,
    policies: Policies,
    now: datetime,
    running: Running | None = None,
    oldest_scan: timedelta = OLDEST_SCAN,
    *,
    count: int,
    scratch: Path,
) -> DataFrame:
    """Judge every manifest and tag: images and tags in, verdicts out; `count` is how many there are."""
    if count > FEW:
        return evaluate(images, tags, policies, now, running, oldest_scan, scratch=scratch)
    rows, named = (table.toArrow().to_pylist() for table in (IMAGES.check(images), TAGS.check(tags)))
    found = judged_rows(rows, named, policies, now, running, oldest_scan)
    schema = to_arrow_schema(VERDICTS.schema, timezone="UTC")
    return VERDICTS.check(images.sparkSession.createDataFrame(pa.Table.from_pylist(found, schema)))


def judged_rows(
    rows: Sequence[Row],
    named: Sequence[Row],
    policies: Policies,
    now: datetime,
    running: Running | None,
    oldest_scan: timedelta,
) -> list[dict[str, Any]]:
    """Let the oracle judge rows of both tables, and give rows of VERDICTS."""
    images = _images(rows, named)
    judgements = judge(policies, images, now, running, oldest_scan)
    decisions = {(one.repository, one.digest): one.decision for one in judgements if one.tag is None}
    sizes = _sizes(rows, decisions)
    clocks: dict[Name, datetime | None] = {}
    for image in images:
        clocks[image.repository, image.digest, None] = image.clock
        clocks |= {(image.repository, image.digest, tag.name): tag.clock for tag in image.tags}
    return [_verdict(one, sizes, clocks) for one in judgements]


def _verdict(
    one: Judgement, sizes: Mapping[tuple[str, str], int], clocks: Mapping[Any, Any]
) -> dict[str, Any]:
    return {
        "repository": one.repository,
        "digest": one.digest,
        "tag": one.tag or "",
        "decision": str(one.decision),
        "policy": one.policy,
        "deadline": one.deadline,
        "held_by": list(one.held_by),
        "size": 0 if one.tag else sizes[one.repository, one.digest],
        "created": clocks[one.repository, one.digest, one.tag],
        "unmatched": one.unmatched,
    }


def _images(rows: Sequence[Row], named: Sequence[Row]) -> list[Image]:
    """Put tags to their manifests; tables that contradict themselves stop the run."""
    keys = [(row["repository"], row["digest"]) for row in rows]
    names = [(row["repository"], row["tag"]) for row in named]
    if len({*keys}) != len(keys) or len({*names}) != len(names):
        raise _damaged("a manifest or a tag is there twice")
    if any(None in key or "" in key for key in (*keys, *names)):
        raise _damaged("a manifest or a tag has no name")
    tags: dict[tuple[str, str], list[Tag]] = {key: [] for key in keys}
    for row in named:
        key = (row["repository"], row["digest"])
        if key not in tags:
            raise _damaged(f"the manifest of {row['repository']}:{row['tag']} is not there")
        tags[key].append(tag_of(row))
    try:
        return [image_of(row, tuple(tags[key])) for row, key in zip(rows, keys, strict=True)]
    except ValueError as broken:
        raise _damaged(str(broken)) from None


def _damaged(what: str) -> MetadataError:
    return MetadataError(
        f"the tables of the registry contradict themselves: {what}",
        why="what keeps what cannot be known",
        fix="scan again",
    )


def _sizes(rows: Sequence[Row], decisions: Mapping[tuple[str, str], Decision]) -> dict[tuple[str, str], int]:
    """Count every blob for one manifest; see :mod:`ebbtide.targets.oci.evaluation.sizes`."""
    found = {(row["repository"], row["digest"]): row["size"] or 0 for row in rows}
    counted: set[str] = set()
    for row in sorted(rows, key=lambda row: (_rank(row, decisions), row["repository"], row["digest"])):
        for blob in row["blobs"] or ():
            if blob["digest"] is not None and blob["digest"] not in counted:
                counted.add(blob["digest"])
                found[row["repository"], row["digest"]] += blob["size"] or 0
    return found


def _rank(row: Row, decisions: Mapping[tuple[str, str], Decision]) -> int:
    return _RANK.get(decisions[row["repository"], row["digest"]], 0)
