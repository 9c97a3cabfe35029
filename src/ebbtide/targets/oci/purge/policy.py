"""
The policy of a purge: everything that decides it besides the registry. The plan keeps it word for word.

It consists of the image policies, the running images, and delete requests of a user: images by name, or all
that are older than some age (requirement 9.0).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ebbtide.core.errors import BadInput, MetadataError, SafetyStop
from ebbtide.core.instant import format_instant, to_micros
from ebbtide.targets.oci.model import GOES, OLDEST_SCAN, ImageDecision, RunningImages
from ebbtide.targets.oci.policies.document import read_policies, write_policies
from ebbtide.targets.oci.policies.patterns import Glob, glob, tag_pattern
from ebbtide.targets.oci.policies.policy import Policies
from ebbtide.targets.oci.running import running_of, scan_doubt
from ebbtide.targets.oci.tables import IMAGES, TAGS

_CLOCK = "clock"


@dataclass(frozen=True)
class RequestedImage:
    """One tag, or without one a manifest, that a user asks to delete."""

    repository: str
    tag: str = ""
    digest: str = ""


@dataclass(frozen=True)
class DeleteRequest:
    """Everything that a user asks to delete; what must not go is refused all the same."""

    named: tuple[RequestedImage, ...] = ()
    older_than_seconds: int | None = None
    repository: str = "*"
    """A glob of repositories for the age."""
    tag: str = ".*"
    """A pattern of the whole tag for the age."""
    untagged: bool = False
    """Whether untagged manifests are meant too; their age counts from when the last tag was removed."""

    def plain(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)

    @classmethod
    def read(cls, plain: dict[str, Any]) -> DeleteRequest:
        """Parse plain data."""
        return cls(**{**plain, "named": tuple(RequestedImage(**row) for row in plain["named"])})

    def check(self) -> None:
        """Refuse invalid patterns."""
        glob("--repository", self.repository)
        tag_pattern("--tag", self.tag)


def with_requests(
    images: DataFrame, tags: DataFrame, request: DeleteRequest | None, now: datetime
) -> tuple[DataFrame, DataFrame]:
    """Mark in both tables what a user asks to delete."""
    if request is None:
        return images, tags
    request.check()
    manifests = [one for one in request.named if one.digest]
    names = [one for one in request.named if one.tag]
    asked_images = _is_one_of(manifests, "digest", [one.digest for one in manifests])
    asked_tags = _is_one_of(names, "tag", [one.tag for one in names])
    if request.older_than_seconds is None:
        return (
            images.withColumn("delete_requested", asked_images),
            tags.withColumn("delete_requested", asked_tags),
        )
    match = _Match(request, to_micros(now - timedelta(seconds=request.older_than_seconds)))
    asked = _matched(tags.withColumn("delete_requested", asked_tags), _tag_clock(), match.tags)
    manifests_asked = images.withColumn("delete_requested", asked_images)
    if request.untagged:
        manifests_asked = _matched(manifests_asked, _untagged_clock(), match.manifests)
    return IMAGES.check(manifests_asked), TAGS.check(asked)


def _is_one_of(named: list[RequestedImage], column: str, values: list[str]) -> Column:
    pairs = [
        (f.col("repository") == one.repository) & (f.col(column) == value)
        for one, value in zip(named, values, strict=True)
    ]
    found = f.lit(False)
    for pair in pairs:
        found = found | pair
    return found


def _tag_clock() -> Column:
    """Return since when a tag has not moved, as far as that is known."""
    return f.coalesce("moved_at", "seen_at")


def _untagged_clock() -> Column:
    """
    Return since when a manifest has had no tag; null if it has one, or never had and is referenced.

    A later push starts it anew, so the later of the two counts. The push alone says nothing: the last tag may
    have been removed today.
    """
    pushed = f.coalesce("pushed_at", "seen_at")
    return f.when(f.col("untagged_since").isNotNull(), f.greatest("untagged_since", pushed))


def _matched(rows: DataFrame, clock: Column, match: Callable[[Iterable[Any]], Iterator[Any]]) -> DataFrame:
    """Mark the rows that match, besides those that are marked already."""
    timed = rows.withColumn(_CLOCK, f.unix_micros(clock))
    return timed.mapInArrow(match, timed.schema).drop(_CLOCK)


@dataclass(frozen=True)
class _Match:
    """Marks old items with matching names, on an executor."""

    request: DeleteRequest
    before: int
    """In microseconds: what has not changed since then is old; an unknown clock is not."""

    def tags(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Mark tags of the matching repositories."""
        repositories, pattern = self._repositories, tag_pattern("--tag", self.request.tag)
        for batch in batches:
            rows = _columns(batch, "repository", "tag", _CLOCK)
            found = [
                self._is_old(clock) and repositories.matches(repository) and pattern.matches(tag)
                for repository, tag, clock in rows
            ]
            yield _marked(batch, found)

    def manifests(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Mark untagged manifests of the matching repositories."""
        repositories = self._repositories
        for batch in batches:
            rows = _columns(batch, "repository", _CLOCK)
            found = [self._is_old(clock) and repositories.matches(repository) for repository, clock in rows]
            yield _marked(batch, found)

    @property
    def _repositories(self) -> Glob:
        return glob("--repository", self.request.repository)

    def _is_old(self, clock: int | None) -> bool:
        return clock is not None and clock <= self.before


def _columns(batch: Any, *names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(batch.column(name).to_pylist() for name in names), strict=True)


def _marked(batch: Any, found: Sequence[bool]) -> Any:
    """Add marks to the column of requests."""
    place = batch.schema.get_field_index("delete_requested")
    asked = [bool(was) or now for was, now in zip(batch.column(place).to_pylist(), found, strict=True)]
    return batch.set_column(place, "delete_requested", pa.array(asked, pa.bool_()))


def only_requested(
    verdicts: DataFrame, otherwise: DataFrame, images: DataFrame, tags: DataFrame
) -> DataFrame:
    """
    Return of the verdicts only what was requested, what goes because of that, and what is refused.

    A request to delete one image must not start the purge of all others: what would have gone anyway
    (`otherwise` are the verdicts without the request) is left to the purge, unless it was requested. A
    request for all tags of a manifest includes the manifest.
    """
    key = ["repository", "digest", "tag"]
    asked = f.coalesce("delete_requested", f.lit(False))
    manifests = images.where(asked).select("repository", "digest")
    whole = tags.groupBy("repository", "digest").agg(f.bool_and(asked).alias("all"))
    named = (
        tags.where(asked)
        .select(*key)
        .unionByName(tags.join(manifests, ["repository", "digest"], "left_semi").select(*key))
        .unionByName(manifests.withColumn("tag", f.lit("")))
        .unionByName(whole.where("all").select("repository", "digest", f.lit("").alias("tag")))
    )
    going = verdicts.where(f.col("decision").isin(*GOES))
    anyway = otherwise.where(f.col("decision").isin(*GOES)).select(*key).join(named, key, "left_anti")
    refused = verdicts.where(f.col("decision") == str(ImageDecision.REFUSE))
    return going.join(anyway, key, "left_anti").unionByName(refused)


@dataclass(frozen=True)
class PurgePolicy:
    """What decides a purge: image policies, running images, and a delete request."""

    policies: Policies
    running: RunningImages | None = None
    oldest_scan: timedelta = OLDEST_SCAN
    """How old the list of running images may be."""
    request: DeleteRequest | None = None

    def dated(self, now: datetime) -> PurgePolicy:
        """Return it with the time of the plan for a list of running images that has none."""
        if self.running is None or self.running.scanned_at is not None:
            return self
        return replace(self, running=replace(self.running, scanned_at=now))

    def check_running(self, now: datetime) -> None:
        """Stop if the list of running images cannot be trusted at this moment."""
        doubt = scan_doubt(self.running, now, self.oldest_scan)
        if doubt:
            raise SafetyStop(
                doubt,
                why="an image that runs and is not known to run would not be protected",
                fix="scan again what runs, and plan again with --running",
            )

    def to_json(self) -> str:
        """Write the policy; equal policies are always the same text."""
        plain = {
            "policies": write_policies(self.policies),
            "running": _plain_running(self.running),
            "oldest_scan_seconds": int(self.oldest_scan.total_seconds()),
            "wanted": None if self.request is None else self.request.plain(),
        }
        return json.dumps(plain, sort_keys=True, ensure_ascii=False)

    @property
    def hash(self) -> str:
        """The hash of the text."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


def read_purge_policy(text: str) -> PurgePolicy:
    """Parse the policy of a plan."""
    try:
        plain: dict[str, Any] = json.loads(text)
        running, request = plain["running"], plain["wanted"]
        return PurgePolicy(
            read_policies(plain["policies"]),
            None if running is None else running_of(running, "the plan's running images"),
            timedelta(seconds=plain["oldest_scan_seconds"]),
            None if request is None else DeleteRequest.read(request),
        )
    except (ValueError, KeyError, TypeError, BadInput) as broken:
        raise MetadataError(f"the policy of the plan cannot be read: {broken}", fix="plan again") from None


def _plain_running(running: RunningImages | None) -> dict[str, Any] | None:
    if running is None:
        return None
    moment = running.scanned_at
    return {
        "images": sorted(str(reference) for reference in running.references),
        "scanned_at": None if moment is None else format_instant(moment),
        "failed": running.failed or None,
    }
