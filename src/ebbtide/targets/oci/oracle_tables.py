"""
The oracle on rows of the tables of a scan, for registries that are small enough for the driver.

Spark takes half a minute for a handful of images, and the oracle no time at all. A property test compares
their verdicts, sizes and times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from ebbtide.core.errors import MetadataError
from ebbtide.targets.oci.model import Image, ImageDecision, ImageVerdict, RunningImages, Tag
from ebbtide.targets.oci.oracle import judge
from ebbtide.targets.oci.policies.policy import Policies
from ebbtide.targets.oci.tables import image_of, tag_of

Row = Mapping[str, Any]
Name = tuple[str, str, str | None]
_RANK = {ImageDecision.RECYCLE: 1, ImageDecision.DELETE: 2}


def oracle_verdicts(
    rows: Sequence[Row],
    named: Sequence[Row],
    policies: Policies,
    now: datetime,
    running: RunningImages | None,
    oldest_scan: timedelta,
) -> list[dict[str, Any]]:
    """Let the oracle judge rows of both tables, and return rows of IMAGE_VERDICTS."""
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
    one: ImageVerdict, sizes: Mapping[tuple[str, str], int], clocks: Mapping[Any, Any]
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
    """Join tags with their manifests; contradictory tables stop the run."""
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
        why="it cannot be known which images keep which",
        fix="scan again",
    )


def _sizes(
    rows: Sequence[Row], decisions: Mapping[tuple[str, str], ImageDecision]
) -> dict[tuple[str, str], int]:
    """Count every blob for one manifest, as the Spark evaluation does."""
    found = {(row["repository"], row["digest"]): row["size"] or 0 for row in rows}
    counted: set[str] = set()
    for row in sorted(rows, key=lambda row: (_rank(row, decisions), row["repository"], row["digest"])):
        for blob in row["blobs"] or ():
            if blob["digest"] is not None and blob["digest"] not in counted:
                counted.add(blob["digest"])
                found[row["repository"], row["digest"]] += blob["size"] or 0
    return found


def _rank(row: Row, decisions: Mapping[tuple[str, str], ImageDecision]) -> int:
    return _RANK.get(decisions[row["repository"], row["digest"]], 0)
