"""
What each tag and manifest says of itself, asked row by row of the very functions that the oracle uses.

Times cross into Python as microseconds; equal values, which most rows have, are made into objects once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from ebbtide.core.errors import MetadataError
from ebbtide.core.instant import from_micros, to_micros
from ebbtide.targets.oci.graph import tag_stem
from ebbtide.targets.oci.model import Image, Quarantine, QuarantineState, Tag
from ebbtide.targets.oci.oracle import NO_LAPSE
from ebbtide.targets.oci.policies.policy import Assigned, Policies
from ebbtide.targets.oci.terms import Terms, asked_manifest_terms, asked_tag_terms

_ASSIGNED = ("policy", "expires_at", "can_delete_prior", "recycle")
_QUARANTINE = ("quarantine", "quarantine_since")
_IMAGE = (*_QUARANTINE, *_ASSIGNED, "delete_requested")
_TAG_GIVEN = [
    *("node", "repository", "digest", "tag", "moved_at", "seen_at", "created_at", "requested", "pending")
]
_MANIFEST_GIVEN = [
    *("node", "repository", "digest", "size", "created", "requested", "pending", "lost"),
    *("tags_lapse", "tags_policy", "tags_recycle", "tags_held", "tags_unmatched"),
]
_NUMBER, _TEXT, _FLAG = (
    (t.LongType(), pa.int64()),
    (t.StringType(), pa.string()),
    (t.BooleanType(), pa.bool_()),
)
_TERMS = {
    "lapse": _NUMBER,
    "policy": _TEXT,
    "recycle": _FLAG,
    "pinned": _FLAG,
    "word": _TEXT,
    "unmatched": _FLAG,
}
_NUMBERS = (t.ArrayType(t.IntegerType()), pa.list_(pa.int32()))
_TAG_FOUND = {**_TERMS, "stem": _TEXT, "whole": _FLAG, "rules": _NUMBERS}
"""What is found, with its types in Spark and in Arrow."""
Plain = tuple[int, str, bool, bool, str | None, bool]
_MANY = 10_000
_NOTHING: Plain = (to_micros(NO_LAPSE), "", False, False, None, False)
"""Of what only follows others."""


def with_tag_terms(tags: DataFrame, images: DataFrame, policies: Policies, now: datetime) -> DataFrame:
    """
    Add the terms of each tag: lapse, policy, recycle, pinned, and the word that they hold it by.

    And what its name says: the `stem` of the digest that it may follow, whether that is a `whole` one, and
    the numbers of the `rules` of keep_newest that match. A tag whose manifest is not there stops the run.
    """
    own = [_in_micros(tags, name).alias(f"own_{name}") for name in (*_ASSIGNED, "delete_requested", "copied")]
    times = [_in_micros(tags, name).alias(name) for name in ("moved_at", "seen_at")]
    given = tags.select("repository", "digest", "tag", *times, *own)
    of_image = [_in_micros(images, name).alias(f"image_{name}") for name in _IMAGE]
    created = _in_micros(images, "created_at").alias("created_at")
    known = images.select("repository", "digest", "node", created, *of_image)
    joined = given.join(known, ["repository", "digest"], "left").withColumns(
        {
            "requested": _said("own_delete_requested") | _said("image_delete_requested"),
            "pending": f.coalesce(f.col("image_quarantine") == QuarantineState.PENDING, f.lit(False)),
        }
    )
    return joined.mapInArrow(_TagReader(policies, now), _extended(joined, _TAG_GIVEN, _TAG_FOUND))


def with_manifest_terms(manifests: DataFrame, policies: Policies, now: datetime) -> DataFrame:
    """
    Add the terms of each manifest; what its tags come to is known already, and is passed on.

    It must be known whether it is a `child` of an index, and whether its subject is there (`referrer`).
    """
    read = manifests.select(
        "node",
        "repository",
        "digest",
        f.coalesce("size", f.lit(0)).cast("long").alias("size"),
        f.unix_micros(f.coalesce("pushed_at", "seen_at")).alias("created"),
        _said("delete_requested").alias("requested"),
        f.coalesce(f.col("quarantine") == QuarantineState.PENDING, f.lit(False)).alias("pending"),
        *("lost", "child", "referrer", "tags_lapse", "tags_policy", "tags_recycle", "tags_held"),
        "tags_unmatched",
        _in_micros(manifests, "untagged_since").alias("untagged_since"),
        *(_in_micros(manifests, name).alias(f"image_{name}") for name in _IMAGE),
    )
    return read.mapInArrow(_ManifestReader(policies, now), _extended(read, _MANIFEST_GIVEN, _TERMS))


def _said(name: str) -> Column:
    return f.coalesce(name, f.lit(False))


def _in_micros(frame: DataFrame, name: str) -> Column:
    return f.unix_micros(name) if isinstance(frame.schema[name].dataType, t.TimestampType) else f.col(name)


def _extended(frame: DataFrame, given: Sequence[str], found: Mapping[str, tuple[Any, Any]]) -> t.StructType:
    schema = frame.select(*given).schema
    for name, (kind, _) in found.items():
        schema = schema.add(name, kind)
    return schema


@dataclass(frozen=True)
class _TagReader:
    """Asks the terms of tags on an executor."""

    policies: Policies
    now: datetime

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        columns = [f"own_{name}" for name in _ASSIGNED] + [f"image_{name}" for name in _IMAGE]
        names = ["node", "repository", "tag", "moved_at", "seen_at", "own_delete_requested", "own_copied"]
        names += columns
        for batch in batches:
            rows = zip(*(batch.column(name).to_pylist() for name in names), strict=True)
            yield _with(batch, _TAG_GIVEN, [self._found(row) for row in rows], _TAG_FOUND)

    def _found(self, row: Sequence[Any]) -> tuple[Any, ...]:
        node, repository, name, moved, seen, asked, copied, *values = row
        if node is None or not name:
            raise _lost(repository, name)
        tag = Tag(name, _moment(moved), _assigned(*values[:4]), bool(asked), _moment(seen), bool(copied))
        image = _image(repository, *values[4:])
        stem = tag_stem(name)
        rules = self.policies.keep_newest
        return (
            *_plain(asked_tag_terms(image, tag, self.policies, self.now), self.now),
            stem.text if stem else None,
            stem.whole if stem else None,
            [number for number, rule in enumerate(rules) if rule.matches(repository, name)],
        )


@dataclass(frozen=True)
class _ManifestReader:
    """Asks the terms of manifests on an executor."""

    policies: Policies
    now: datetime

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        columns = [f"image_{name}" for name in _IMAGE]
        names = ["repository", "created", "untagged_since", "tags_lapse", "child", "referrer", *columns]
        for batch in batches:
            rows = zip(*(batch.column(name).to_pylist() for name in names), strict=True)
            found = [self._found(*row) for row in rows]
            yield _with(batch, _MANIFEST_GIVEN, found, _TERMS)

    def _found(self, repository: str, created: int, untagged: int, *row: Any) -> Plain:
        tags_lapse, child, referrer, *values = row
        policy, expires, prior, recycle = values[2:6]
        image = Image(
            repository,
            "",
            () if tags_lapse is None else (_ANY_TAG,),
            seen_at=_moment(created),
            untagged_since=_moment(untagged),
            quarantine=_quarantine(*values[:2]),
            assigned=_assigned(policy, expires, prior, recycle),
            delete_requested=bool(values[6]),
        )
        terms = asked_manifest_terms(image, self.policies, self.now, child=child, referrer=referrer)
        return _plain(terms, self.now)


_ANY_TAG = Tag("any")
"""A manifest's terms depend on whether it has tags, and not on which."""


def _with(batch: Any, given: Sequence[str], rows: Sequence[Any], found: Mapping[str, tuple[Any, Any]]) -> Any:
    """Put what was found beside the columns that were given."""
    columns = list(zip(*rows, strict=True)) or [()] * len(found)
    arrays = [pa.array(values, kind) for values, (_, kind) in zip(columns, found.values(), strict=True)]
    return pa.RecordBatch.from_arrays(
        [*(batch.column(name) for name in given), *arrays], names=[*given, *found]
    )


def _plain(terms: Terms | None, now: datetime) -> Plain:
    if terms is None:
        return _NOTHING
    word = terms.hold(now) or None
    return to_micros(terms.lapse), terms.policy, terms.recycle, terms.pinned, word, terms.unmatched


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


@lru_cache(_MANY)
def _assigned(policy: str | None, expires: int | None, prior: bool | None, recycle: bool | None) -> Assigned:  # noqa: FBT001 - values of a row
    return Assigned(policy, _moment(expires), prior, recycle)


@lru_cache(_MANY)
def _image(repository: str, quarantine: str | None, since: int | None, *values: Any) -> Image:
    """Make what a tag's terms need of its manifest."""
    *assigned, asked = values
    state = _quarantine(quarantine, since)
    return Image(
        repository, "", quarantine=state, assigned=_assigned(*assigned), delete_requested=bool(asked)
    )


def _quarantine(state: str | None, since: int | None) -> Quarantine | None:
    if state is None:
        return None
    try:
        return Quarantine(QuarantineState(state), _moment(since))
    except ValueError:
        raise MetadataError(
            f"a quarantine of an image is {state!r}",
            why="nobody can say whether it may go",
            fix="make it pending, failed or none",
        ) from None


def _lost(repository: str | None, tag: str | None) -> MetadataError:
    return MetadataError(
        f"the manifest of {repository}:{tag} is not in the table of images",
        why="a tag whose manifest is not known cannot be judged",
        fix="scan the registry again",
    )
