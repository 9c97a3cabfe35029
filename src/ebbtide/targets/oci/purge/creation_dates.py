"""
Creation dates of images, read if the newest of several tags cannot be determined otherwise.

Registries give no times, so tags that appeared between two scans, or before the first, all have one time.
Only the `created` field of their configurations tells which of them are the newest. That takes two requests
per image, so it is read only for tags among which a keep_newest rule has to choose, and once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from ebbtide.core.errors import EbbtideError
from ebbtide.targets.oci.client.manifest import INDEXES, parse_object, read_content
from ebbtide.targets.oci.client.names import follows_a_digest
from ebbtide.targets.oci.client.registry import Registry
from ebbtide.targets.oci.policies.policy import KeepNewest

MOST_READ = 2000
"""How many images are asked in one plan; tags of others are kept until a later plan has asked them."""
MORE_NEEDED = (
    f"the creation dates of {MOST_READ} images were read, and more are needed to tell which tags are the"
    " newest; the tags of the others are kept until later plans have read theirs"
)
_AT_ONCE = 8
_DEEPEST = 4
_LARGEST = 4 * 1024 * 1024
_EARLIEST = datetime(2010, 1, 1, tzinfo=UTC)
"""Before there were images: reproducible builds write 1970 or 1980, which says nothing."""
_INSTANT = re.compile(r"(\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d)(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_MATCHED = "repository string, digest string, rule int, moved boolean, at bigint"
_MATCHED_ARROW = pa.schema(
    [
        ("repository", pa.string()),
        ("digest", pa.string()),
        ("rule", pa.int32()),
        ("moved", pa.bool_()),
        ("at", pa.int64()),
    ]
)

Name = tuple[str, str]
"""A repository and a digest."""


def undecided_images(tags: DataFrame, rules: Sequence[KeepNewest]) -> DataFrame:
    """
    Find the images of tags that have one time and of which a rule keeps some and not all.

    Returns `repository` and `digest`. A tag of unknown time that a rule keeps anyway is not among them.
    """
    times = [f.unix_micros(name).alias(name) for name in ("moved_at", "seen_at")]
    given = tags.select("repository", "digest", "tag", *times)
    matched = given.mapInArrow(_Matching(tuple(rules)), _MATCHED)
    count = f.get(f.array(*(f.lit(rule.count) for rule in rules)), f.col("rule"))
    by_time = Window.partitionBy("repository", "rule").orderBy(f.col("at").desc())
    later = by_time.rangeBetween(Window.unboundedPreceding, -1)
    tied = Window.partitionBy("repository", "rule", "moved", "at")
    placed = matched.withColumns(
        {
            "newer": f.coalesce(f.count_if(f.col("moved")).over(later), f.lit(0)),
            "together": f.count(f.lit(1)).over(tied),
        }
    )
    undecided = (f.col("newer") < count) & (f.col("newer") + f.col("together") > count)
    return placed.where(undecided).select("repository", "digest").distinct()


def images_to_ask(tags: DataFrame, rules: Sequence[KeepNewest], known: DataFrame | None) -> list[Name]:
    """Return the images whose dates decide and were not asked before; one more than are asked in one plan."""
    undecided = undecided_images(tags, rules)
    if known is not None:
        undecided = undecided.join(known, "digest", "left_anti")
    rows = undecided.orderBy("repository", "digest").limit(MOST_READ + 1).toArrow().to_pylist()
    return [(row["repository"], row["digest"]) for row in rows]


@dataclass(frozen=True)
class _Matching:
    """Yields each tag for every rule that matches it, on an executor; skips tags of signatures."""

    rules: tuple[KeepNewest, ...]

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            rows = [found for row in batch.to_pylist() for found in self._matched(row)]
            yield pa.RecordBatch.from_pylist(rows, schema=_MATCHED_ARROW)

    def _matched(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        moved, seen = row["moved_at"], row["seen_at"]
        if follows_a_digest(row["tag"]) or (moved is None and seen is None):
            return
        at = seen if moved is None else moved
        for number, rule in enumerate(self.rules):
            if rule.matches(row["repository"], row["tag"]):
                named = {"repository": row["repository"], "digest": row["digest"]}
                yield {**named, "rule": number, "moved": moved is not None, "at": at}


def read_creation_dates(
    registry: Registry, names: Sequence[Name], now: datetime
) -> dict[str, datetime | None]:
    """
    Ask images when they were built, several at once: dates by digest, None if an image has none.

    One that cannot be read is left out, so that it is asked again; without a date its tags are kept.
    """

    def ask(name: Name) -> tuple[str, datetime | None] | None:
        try:
            return name[1], _created(registry, *name, now, _DEEPEST)
        except EbbtideError:
            return None

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return dict(found for found in threads.map(ask, names) if found is not None)


def _created(registry: Registry, repository: str, digest: str, now: datetime, depth: int) -> datetime | None:
    """Return when an image was built; an index is as new as the newest of its images."""
    manifest = registry.manifest(repository, digest)
    content = read_content(manifest)
    if manifest.media_type in INDEXES:
        inner = [
            _created(registry, repository, child.digest, now, depth - 1)
            for child in content.children[:MOST_READ]
            if depth
        ]
        return max((date for date in inner if date is not None), default=None)
    config = content.blobs[0]
    if config.size > _LARGEST:
        return None
    body = b"".join(registry.blob(repository, config.digest))
    return creation_date(parse_object(body, f"configuration {config.digest}").get("created"), now)


def creation_date(text: object, now: datetime) -> datetime | None:
    """Parse the `created` field; a date from before there were images, or from the future, is none."""
    found = _INSTANT.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    # Builders write nanoseconds, of which Python takes microseconds.
    fraction = f"{(found[2] or '.')[:7]:0<7}"
    try:
        moment = datetime.fromisoformat(f"{found[1]}{fraction}{found[3]}".upper())
    except ValueError:
        return None
    return moment.astimezone(UTC) if _EARLIEST <= moment <= now else None


def with_creation_dates(images: DataFrame, dates: DataFrame | None) -> DataFrame:
    """Add to images when they were built, as far as they were asked."""
    if dates is None:
        return images
    return images.drop("created_at").join(dates, "digest", "left")
