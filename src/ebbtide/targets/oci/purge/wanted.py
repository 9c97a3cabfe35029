"""What somebody asks to delete now: images by their names, or all that are older than so much (9.0)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ebbtide.core.instant import to_micros
from ebbtide.targets.oci.model import GOES, ImageDecision
from ebbtide.targets.oci.policies.patterns import Glob, glob, tag_pattern
from ebbtide.targets.oci.tables import IMAGES, TAGS

_CLOCK = "clock"


@dataclass(frozen=True)
class Named:
    """One tag, or without one a manifest, that somebody asks to delete."""

    repository: str
    tag: str = ""
    digest: str = ""


@dataclass(frozen=True)
class Wanted:
    """All that somebody asks to delete; what must not go is refused all the same."""

    named: tuple[Named, ...] = ()
    older_than_seconds: int | None = None
    repository: str = "*"
    """A glob of repositories for what is older."""
    tag: str = ".*"
    """A pattern for the whole tag for what is older."""
    untagged: bool = False
    """Whether manifests without a tag are meant too; their age counts from when the last tag was removed."""

    def plain(self) -> dict[str, Any]:
        """Give plain data."""
        return asdict(self)

    @classmethod
    def read(cls, plain: dict[str, Any]) -> Wanted:
        """Read plain data."""
        return cls(**{**plain, "named": tuple(Named(**row) for row in plain["named"])})

    def check(self) -> None:
        """Refuse patterns that are none."""
        glob("--repository", self.repository)
        tag_pattern("--tag", self.tag)


def with_wanted(
    images: DataFrame, tags: DataFrame, wanted: Wanted | None, now: datetime
) -> tuple[DataFrame, DataFrame]:
    """Mark in both tables what somebody asks to delete."""
    if wanted is None:
        return images, tags
    wanted.check()
    manifests = [one for one in wanted.named if one.digest]
    names = [one for one in wanted.named if one.tag]
    asked_images = _is_one_of(manifests, "digest", [one.digest for one in manifests])
    asked_tags = _is_one_of(names, "tag", [one.tag for one in names])
    if wanted.older_than_seconds is None:
        return (
            images.withColumn("delete_requested", asked_images),
            tags.withColumn("delete_requested", asked_tags),
        )
    match = _Match(wanted, to_micros(now - timedelta(seconds=wanted.older_than_seconds)))
    asked = _matched(tags.withColumn("delete_requested", asked_tags), _tag_clock(), match.tags)
    manifests_asked = images.withColumn("delete_requested", asked_images)
    if wanted.untagged:
        manifests_asked = _matched(manifests_asked, _untagged_clock(), match.manifests)
    return IMAGES.check(manifests_asked), TAGS.check(asked)


def _is_one_of(named: list[Named], column: str, values: list[str]) -> Column:
    pairs = [
        (f.col("repository") == one.repository) & (f.col(column) == value)
        for one, value in zip(named, values, strict=True)
    ]
    found = f.lit(False)
    for pair in pairs:
        found = found | pair
    return found


def _tag_clock() -> Column:
    """Give since when a tag has not moved, as far as that is known."""
    return f.coalesce("moved_at", "seen_at")


def _untagged_clock() -> Column:
    """
    Give since when a manifest has had no tag; null if it has one, or never had and follows others.

    A push after that begins it anew, so the later of the two counts. The push alone says nothing: the last
    tag may have been removed today.
    """
    pushed = f.coalesce("pushed_at", "seen_at")
    return f.when(f.col("untagged_since").isNotNull(), f.greatest("untagged_since", pushed))


def _matched(rows: DataFrame, clock: Column, match: Callable[[Iterable[Any]], Iterator[Any]]) -> DataFrame:
    """Mark the rows that match, besides those that are marked already."""
    timed = rows.withColumn(_CLOCK, f.unix_micros(clock))
    return timed.mapInArrow(match, timed.schema).drop(_CLOCK)


@dataclass(frozen=True)
class _Match:
    """Marks what is old enough and has a name that matches, on an executor."""

    wanted: Wanted
    before: int
    """In microseconds: what has stood still since then or longer is old; an unknown clock is not."""

    def tags(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Mark tags of the repositories that are named."""
        repositories, pattern = self._repositories, tag_pattern("--tag", self.wanted.tag)
        for batch in batches:
            rows = _columns(batch, "repository", "tag", _CLOCK)
            found = [
                self._is_old(clock) and repositories.matches(repository) and pattern.matches(tag)
                for repository, tag, clock in rows
            ]
            yield _marked(batch, found)

    def manifests(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Mark manifests without tags of the repositories that are named."""
        repositories = self._repositories
        for batch in batches:
            rows = _columns(batch, "repository", _CLOCK)
            found = [self._is_old(clock) and repositories.matches(repository) for repository, clock in rows]
            yield _marked(batch, found)

    @property
    def _repositories(self) -> Glob:
        return glob("--repository", self.wanted.repository)

    def _is_old(self, clock: int | None) -> bool:
        return clock is not None and clock <= self.before


def _columns(batch: Any, *names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(batch.column(name).to_pylist() for name in names), strict=True)


def _marked(batch: Any, found: Sequence[bool]) -> Any:
    """Add marks to the column of what is asked for."""
    place = batch.schema.get_field_index("delete_requested")
    asked = [bool(was) or now for was, now in zip(batch.column(place).to_pylist(), found, strict=True)]
    return batch.set_column(place, "delete_requested", pa.array(asked, pa.bool_()))


def only_wanted(verdicts: DataFrame, otherwise: DataFrame, images: DataFrame, tags: DataFrame) -> DataFrame:
    """
    Leave of the verdicts what somebody asked for, what goes because of that, and what is refused.

    Who deletes one image must not start the purge of all others: what would have gone anyway (`otherwise` are
    the verdicts if nobody had asked) is left to the purge, unless it was asked for. To ask for all tags of a
    manifest is to ask for the manifest.
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
