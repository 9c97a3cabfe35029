"""What somebody asks to delete now: images by their names, or all that are older than so much (9.0)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ebbtide.registry.model import Decision
from ebbtide.registry.tables import TAGS
from ebbtide.rules.images.patterns import glob, tag_pattern
from ebbtide.rules.instant import to_micros

GOES = (str(Decision.RECYCLE), str(Decision.DELETE))
"""The decisions by which something goes."""


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
    """Whether manifests without a tag are meant too, by the time that they were pushed or first seen."""

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
    before = now - timedelta(seconds=wanted.older_than_seconds)
    old = f.coalesce(f.unix_micros(f.coalesce("moved_at", "seen_at")) <= to_micros(before), f.lit(False))
    candidates = tags.withColumn("delete_requested", asked_tags).withColumn("old", old)
    matched = candidates.mapInArrow(_Matching(wanted), candidates.schema).drop("old")
    return images.withColumn("delete_requested", asked_images | _old_untagged(wanted, before)), TAGS.check(
        matched
    )


def _is_one_of(named: list[Named], column: str, values: list[str]) -> Column:
    pairs = [
        (f.col("repository") == one.repository) & (f.col(column) == value)
        for one, value in zip(named, values, strict=True)
    ]
    found = f.lit(False)
    for pair in pairs:
        found = found | pair
    return found


def _old_untagged(wanted: Wanted, before: datetime) -> Column:
    """Tell of a manifest without a tag that it is old; where nobody knows since when, it is not."""
    if not wanted.untagged:
        return f.lit(False)
    begun = f.unix_micros(f.coalesce("pushed_at", "seen_at"))
    return f.col("untagged_since").isNotNull() & f.coalesce(begun <= to_micros(before), f.lit(False))


@dataclass(frozen=True)
class _Matching:
    """Marks the old tags whose names match, on an executor."""

    wanted: Wanted

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        repositories, pattern = (
            glob("--repository", self.wanted.repository),
            tag_pattern("--tag", self.wanted.tag),
        )
        for batch in batches:
            rows = zip(
                batch.column("repository").to_pylist(),
                batch.column("tag").to_pylist(),
                batch.column("old").to_pylist(),
                batch.column("delete_requested").to_pylist(),
                strict=True,
            )
            asked = [
                named or (old and repositories.matches(repository) and pattern.matches(tag))
                for repository, tag, old, named in rows
            ]
            place = batch.schema.get_field_index("delete_requested")
            yield batch.set_column(place, "delete_requested", pa.array(asked, pa.bool_()))


def only_wanted(verdicts: DataFrame, otherwise: DataFrame, images: DataFrame, tags: DataFrame) -> DataFrame:
    """
    Leave of the verdicts what somebody asked for, what goes because of that, and what is refused.

    Who deletes one image must not start the purge of all others: what would have gone anyway (`otherwise` are
    the verdicts if nobody had asked) is left to the purge, unless it was asked for.
    """
    key = ["repository", "digest", "tag"]
    asked = f.coalesce("delete_requested", f.lit(False))
    manifests = images.where(asked).select("repository", "digest")
    named = (
        tags.where(asked)
        .select(*key)
        .unionByName(tags.join(manifests, ["repository", "digest"], "left_semi").select(*key))
        .unionByName(manifests.withColumn("tag", f.lit("")))
    )
    going = verdicts.where(f.col("decision").isin(*GOES))
    anyway = otherwise.where(f.col("decision").isin(*GOES)).select(*key).join(named, key, "left_anti")
    refused = verdicts.where(f.col("decision") == str(Decision.REFUSE))
    return going.join(anyway, key, "left_anti").unionByName(refused)
