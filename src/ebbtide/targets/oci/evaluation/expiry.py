"""
Until when each tag and manifest stays by itself, as Spark columns.

The *terms* of a tag or manifest are a struct: when it lapses, by which policy, whether that is a pin, whether
it goes through the bin, why the date is unknown, whether the values were assigned with a date, and whether
they apply only because no rule matches. Times are microseconds since the epoch.

Python is used for two things only, on executors: to look up policies by their names, of which there are few,
and to match tags against the patterns of rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from ebbtide.core.errors import MetadataError
from ebbtide.core.instant import MICROSECONDS_A_DAY, NEVER, to_micros
from ebbtide.targets.oci.evaluation.graph import NO_LAPSE
from ebbtide.targets.oci.model import (
    NEVER_DELETE,
    NO_DATE,
    NO_POLICY,
    UNKNOWN_POLICY,
    UNKNOWN_TIME,
    UNMATCHED,
    QuarantineState,
)
from ebbtide.targets.oci.policies.policy import (
    KEEP,
    QUARANTINE_FAILED,
    UNTAGGED,
    Policies,
    Policy,
    Unit,
    same_name,
)

TERMS = ["lapse", "policy", "recycle", "pinned", "word", "unmatched"]
"""The columns that are added to tags and manifests; `word` says what holds it, null if nothing does."""

_ASSIGNED = ("policy", "expires_at", "can_delete_prior", "recycle")
_NEVER = to_micros(NEVER)
_MOST_DAYS, _MOST_MONTHS = 4_000_000, 120_000
"""Longer periods end after the calendar, as these do; larger numbers would overflow."""
_LAST_YEAR = 9999
_NAMED_AFTER_DIGEST = r"\A([a-z0-9]+)-([0-9a-f]+)(\.sig|\.att|\.sbom)?\z"
_LONGEST_VALUE = 64


class PolicyColumns:
    """The policies of a registry as literal arrays, so that columns can look them up by their number."""

    def __init__(self, policies: Policies) -> None:
        self.policies = policies
        self.keys = sorted(policies.named)
        found = [policies.named[key] for key in self.keys]
        self._names = _literals([policy.name for policy in found], "string")
        self._days = _literals([_days(policy) for policy in found], "bigint")
        self._months = _literals([_months(policy) for policy in found], "int")
        self._pinned = _literals([not policy.can_delete_prior for policy in found], "boolean")
        self._recycle = _literals([policy.recycle for policy in found], "boolean")

    def number(self, policy: Policy) -> Column:
        """Return the number of a system policy."""
        return f.lit(self.keys.index(same_name(policy.name)))

    def name(self, number: Column) -> Column:
        """Return the name of a policy."""
        return f.get(self._names, number)

    def pinned(self, number: Column) -> Column:
        """Return whether a policy pins what it is assigned to."""
        return f.get(self._pinned, number)

    def recycle(self, number: Column) -> Column:
        """Return whether a policy sends images through the bin."""
        return f.get(self._recycle, number)

    def counted(self, number: Column, since: Column) -> Column:
        """Return the terms of a policy from a moment on; without a moment a period cannot be counted."""
        days, months = f.get(self._days, number), f.get(self._months, number)
        has_period = days.isNotNull() | months.isNotNull()
        in_days = since + days * MICROSECONDS_A_DAY
        moment = f.timestamp_micros(since)
        year = f.floor((f.year(moment) * 12 + f.month(moment) - 1 + months) / 12)
        in_months = f.unix_micros(moment + f.make_ym_interval(f.lit(0), months))
        lapse = (
            f.when(since.isNull() | ~has_period, _NEVER)
            .when(days.isNotNull(), f.least(in_days, f.lit(_NEVER)))
            .when(year > _LAST_YEAR, _NEVER)
            .otherwise(in_months)
        )
        doubt = f.when(since.isNull() & has_period, UNKNOWN_TIME)
        pinned, recycle = self.pinned(number), self.recycle(number)
        return _terms(lapse, self.name(number), number, pinned, recycle, doubt=doubt)

    def assigned(self, owner: str, moved: Column | None = None, counted_from: Column | None = None) -> Column:
        """
        Return the terms of assigned values, null if there are none.

        A date before `moved` was meant for what the tag named before. A policy without values counts from
        `moved`, or from `counted_from`.
        """
        policy, expires, prior, recycle = (f.col(f"{owner}_{name}") for name in _ASSIGNED)
        number = f.col(f"{owner}_number")
        no_moment = f.lit(None).cast("bigint")
        start = no_moment if moved is None else moved
        empty = policy.isNull() & expires.isNull() & f.coalesce(prior, f.lit(True))
        bare = expires.isNull() & prior.isNull()
        spent = f.coalesce(expires < start, f.lit(False))
        unknown = f.when(policy != "", policy).otherwise(NO_POLICY)
        counting = f.coalesce(start, no_moment if counted_from is None else counted_from)
        no_policy = _terms(
            f.lit(_NEVER), unknown, number, f.lit(False), f.lit(True), doubt=f.lit(UNKNOWN_POLICY)
        )
        dated = _terms(
            f.coalesce(expires, f.lit(_NEVER)),
            f.coalesce(self.name(number), unknown),
            number,
            f.coalesce(~prior, self.pinned(number), f.lit(False)),
            f.coalesce(recycle, self.recycle(number), f.lit(True)),
            dated=True,
        )
        return (
            f.when(empty, None)
            .when(bare & number.isNotNull(), self.counted(number, counting))
            .when(bare, no_policy)
            .when(spent & number.isNotNull(), self.counted(number, start))
            .when(~spent, dated)
        )

    def failed(self, terms: Column) -> Column:
        """Return the terms of an image that failed its check, null if it did not; an assigned date counts."""
        own = f.coalesce(terms["dated"] & (terms["number"] == self.number(QUARANTINE_FAILED)), f.lit(False))
        counted = self.counted(self.number(QUARANTINE_FAILED), f.col("image_quarantine_since"))
        is_failed = f.col("image_quarantine") == str(QuarantineState.FAILED)
        return f.when(is_failed & own, terms).when(is_failed, counted)


def _literals(values: Sequence[Any], kind: str) -> Column:
    return f.array(*(f.lit(value).cast(kind) for value in values))


def _days(policy: Policy) -> int | None:
    period = policy.period
    return min(period.number, _MOST_DAYS) if period is not None and period.unit is Unit.DAYS else None


def _months(policy: Policy) -> int | None:
    period = policy.period
    if period is None or period.unit is Unit.DAYS:
        return None
    return min(period.number * (12 if period.unit is Unit.YEARS else 1), _MOST_MONTHS)


def _terms(
    lapse: Column,
    policy: Column,
    number: Column,
    pinned: Column,
    recycle: Column,
    *,
    doubt: Column | None = None,
    dated: bool = False,
    unmatched: Column | None = None,
) -> Column:
    return f.struct(
        lapse.cast("bigint").alias("lapse"),
        policy.alias("policy"),
        number.cast("int").alias("number"),
        pinned.alias("pinned"),
        recycle.alias("recycle"),
        (f.lit(None).cast("string") if doubt is None else doubt).alias("doubt"),
        f.lit(dated).alias("dated"),
        (f.lit(False) if unmatched is None else unmatched).alias("unmatched"),
    )


def policy_numbers(policies: Policies, *rows: DataFrame) -> DataFrame:
    """Return the number of each policy name that is assigned to something: name, number; null if unknown."""
    names = reduce(DataFrame.union, (part.select("policy") for part in rows)).where("policy is not null")
    finder = _PolicyFinder(policies, tuple(PolicyColumns(policies).keys))
    return names.distinct().mapInArrow(finder, "name string, number int")


def with_tag_terms(
    tags: DataFrame, images: DataFrame, policies: Policies, numbers: DataFrame, now: datetime
) -> DataFrame:
    """
    Add the terms of each tag, and what its name says.

    `stem` is the digest that it may be named after, `whole` whether that is a complete one, `rules` the
    numbers of the keep_newest rules that match. A tag whose manifest is absent stops the run. `numbers` are
    those of `policy_numbers`.
    """
    columns = PolicyColumns(policies)
    own = [_in_micros(tags, name).alias(f"own_{name}") for name in (*_ASSIGNED, "delete_requested", "copied")]
    times = [_in_micros(tags, name).alias(name) for name in ("moved_at", "seen_at")]
    given = tags.select("repository", "digest", "tag", *times, *own)
    joined = given.join(_image_columns(images), ["repository", "digest"], "left")
    known = _numbered(_numbered(joined, "own", numbers), "image", numbers).withColumns(
        {
            "requested": _flag("own_delete_requested") | _flag("image_delete_requested"),
            "pending": _flag(f.col("image_quarantine") == str(QuarantineState.PENDING)),
            "clock": f.coalesce("moved_at", "seen_at"),
        }
    )
    schema = t.StructType([*known.schema.fields, t.StructField("rule", t.IntegerType()), _RULES])
    matched = known.mapInArrow(_RuleMatcher(policies, tuple(columns.keys)), schema)
    return _tag_terms(matched, columns, to_micros(now)).select(
        *("node", "repository", "digest", "tag", "moved_at", "seen_at", "created_at", "requested", "pending"),
        *TERMS,
        *("stem", "whole", "rules"),
    )


_RULES = t.StructField("rules", t.ArrayType(t.IntegerType()))


def _tag_terms(tags: DataFrame, columns: PolicyColumns, now: int) -> DataFrame:
    """
    Decide which terms of a tag count.

    Its own values come first, then those of its manifest, unless these are of the Untagged policy. A pin of
    the manifest counts if it lasts longer. A failed check replaces what is not pinned. Values that a scan
    copied, and tags without values, follow the rules of today.
    """
    clock = f.col("clock")
    is_untagged = f.coalesce(f.col("image_number") == columns.number(UNTAGGED), f.lit(False))
    rows = tags.withColumns(
        {
            "own": columns.assigned("own", clock),
            "inherited": f.when(~is_untagged, columns.assigned("image", clock)),
            "image_terms": columns.assigned("image"),
        }
    )
    pin = f.col("image_terms")
    rows = rows.withColumns(
        {"pin": f.when(pin["dated"] & pin["pinned"], pin), "first": f.coalesce("own", "inherited")}
    )
    pin, first = f.col("pin"), f.col("first")
    lasts_longer = f.struct(pin["lapse"], pin["pinned"]) > f.struct(first["lapse"], first["pinned"])
    overruled = f.coalesce(pin.isNotNull() & first.isNotNull() & lasts_longer, f.lit(False))
    rows = rows.withColumn("overruled", overruled).withColumn(
        "chosen", f.when(f.col("overruled"), pin).otherwise(first)
    )
    chosen = f.col("chosen")
    is_pinned = f.coalesce(chosen["pinned"], f.lit(False))
    by_rules = chosen.isNull() | (_flag("own_copied") & f.col("own").isNotNull() & ~f.col("overruled"))
    rows = rows.withColumn("failed", f.when(~is_pinned, columns.failed(chosen))).withColumn(
        "terms",
        f.coalesce("failed", f.when(by_rules, _rule_terms(columns, clock)).otherwise(chosen)),
    )
    terms = f.col("terms")
    pinned_later = pin.isNotNull() & ~terms["pinned"] & (pin["lapse"] > now)
    asked = f.when(f.coalesce(pinned_later, f.lit(False)), pin).otherwise(_lapsing_now(terms, now))
    rows = rows.withColumn("terms", f.when(f.col("requested"), asked).otherwise(terms))
    return _with_name_parts(_flattened(rows, now))


def _rule_terms(columns: PolicyColumns, clock: Column) -> Column:
    """Return the terms of a tag without a choice of a person: the copied ones, or those of its rule."""
    chosen, rule = f.col("chosen"), f.col("rule")
    unmatched = rule.isNull()
    if columns.policies.keeps_unmatched:
        nothing = _terms(f.lit(_NEVER), f.lit(KEEP), f.lit(None), f.lit(False), f.lit(True))
        kept = f.coalesce(chosen, nothing).withField("doubt", f.lit(UNMATCHED))
        found = f.when(unmatched, kept).otherwise(f.coalesce(chosen, columns.counted(rule, clock)))
    else:
        default = f.lit(columns.keys.index(same_name(columns.policies.unmatched)))
        found = f.coalesce(chosen, columns.counted(f.coalesce(rule, default), clock))
    return found.withField("unmatched", unmatched)


def _lapsing_now(terms: Column, now: int) -> Column:
    """Let terms lapse now because a user asks for it; a pin is not moved by that."""
    asked = (
        terms.withField("lapse", f.least(terms["lapse"], f.lit(now)))
        .withField("doubt", f.lit(None).cast("string"))
        .withField("unmatched", f.lit(False))
    )
    return f.when(terms["pinned"] & (terms["lapse"] > now), terms).otherwise(asked)


def _with_name_parts(tags: DataFrame) -> DataFrame:
    """Add the digest that a tag is named after, as tags write it, and whether it is a complete one."""
    value = f.regexp_extract("tag", _NAMED_AFTER_DIGEST, 2)
    stem = f.concat_ws("-", f.regexp_extract("tag", _NAMED_AFTER_DIGEST, 1), value)
    is_named = f.col("tag").rlike(_NAMED_AFTER_DIGEST)
    return tags.withColumns(
        {"stem": f.when(is_named, stem), "whole": f.when(is_named, f.length(value) == _LONGEST_VALUE)}
    )


def with_manifest_terms(
    manifests: DataFrame, policies: Policies, numbers: DataFrame, now: datetime
) -> DataFrame:
    """
    Add the terms of each manifest; the columns about its tags are passed on.

    Given are whether it is a `child` of an index, and whether its subject exists (`referrer`).
    """
    columns = PolicyColumns(policies)
    read = manifests.select(
        "node",
        "repository",
        "digest",
        f.coalesce("size", f.lit(0)).cast("long").alias("size"),
        f.unix_micros(f.coalesce("pushed_at", "seen_at")).alias("created"),
        _flag("delete_requested").alias("requested"),
        _flag(f.col("quarantine") == str(QuarantineState.PENDING)).alias("pending"),
        *("lost", "child", "referrer", "tags_lapse", "tags_policy", "tags_recycle", "tags_held"),
        "tags_unmatched",
        _in_micros(manifests, "untagged_since").alias("untagged_since"),
        *(_in_micros(manifests, name).alias(f"image_{name}") for name in (*_QUARANTINE, *_ASSIGNED)),
    )
    terms = _manifest_terms(_numbered(read, "image", numbers), columns, to_micros(now))
    return terms.select(
        *("node", "repository", "digest", "size", "created", "requested", "pending", "lost"),
        *("tags_lapse", "tags_policy", "tags_recycle", "tags_held", "tags_unmatched"),
        *TERMS,
    )


_QUARANTINE = ("quarantine", "quarantine_since")


def _manifest_terms(manifests: DataFrame, columns: PolicyColumns, now: int) -> DataFrame:
    """
    Decide which terms of a manifest count; null if it only follows its tags, indexes or subject.

    With tags only values that are not of the Untagged policy count, and a failed check leaves it to the tags.
    Without tags a date from before its last tag was removed is spent, and the Untagged policy counts from
    then.
    """
    untagged, clock = f.col("untagged_since"), f.col("created")
    has_tags = f.col("tags_lapse").isNotNull()
    rows = manifests.withColumn("own", columns.assigned("image", counted_from=clock))
    own = f.col("own")
    is_untagged = f.coalesce(f.col("image_number") == columns.number(UNTAGGED), f.lit(False))
    is_bare = f.col("image_expires_at").isNull() & f.col("image_can_delete_prior").isNull()
    is_failed = _flag(f.col("image_quarantine") == str(QuarantineState.FAILED))
    tagged = f.when(~is_untagged & ~(is_failed & ~own["pinned"]), own)
    valid = own.isNotNull() & ~f.coalesce(own["lapse"] < untagged, f.lit(False))
    since = f.when(untagged.isNotNull(), f.greatest(untagged, clock))
    follows = f.col("referrer") | (f.col("child") & untagged.isNull())
    alone = (
        f.when(valid & own["pinned"], own)
        .when(is_failed, columns.failed(own))
        .when(valid & ~(is_untagged & is_bare), own)
        .when(~follows, columns.counted(columns.number(UNTAGGED), since))
    )
    rows = rows.withColumn("terms", f.when(has_tags, tagged).otherwise(alone))
    terms = f.col("terms")
    deletable = f.when(~has_tags & ~f.col("child"), columns.counted(columns.number(UNTAGGED), f.lit(now)))
    rows = rows.withColumn("terms", f.when(f.col("requested"), f.coalesce(terms, deletable)).otherwise(terms))
    asked = f.when(terms.isNotNull(), _lapsing_now(terms, now))
    return _flattened(rows.withColumn("terms", f.when(f.col("requested"), asked).otherwise(terms)), now)


def _flattened(rows: DataFrame, now: int) -> DataFrame:
    """Replace the terms by the columns TERMS; without terms they are those of what only follows others."""
    terms, lapse = f.col("terms"), f.col("terms.lapse")
    second = f.date_format(f.timestamp_micros(lapse), "yyyy-MM-dd'T'HH:mm:ss'Z'")
    word = (
        f.when(terms["doubt"].isNotNull() | (lapse <= now), terms["doubt"])
        .when((lapse == _NEVER) & terms["pinned"], NEVER_DELETE)
        .when(lapse == _NEVER, NO_DATE)
        .when(terms["pinned"], f.concat(f.lit("pinned until "), second))
    )
    return rows.withColumns(
        {
            "lapse": f.coalesce(lapse, f.lit(NO_LAPSE)),
            "policy": f.coalesce(terms["policy"], f.lit("")),
            "recycle": f.coalesce(terms["recycle"], f.lit(False)),
            "pinned": f.coalesce(terms["pinned"], f.lit(False)),
            "word": word,
            "unmatched": f.coalesce(terms["unmatched"], f.lit(False)),
        }
    )


def _flag(value: Column | str) -> Column:
    return f.coalesce(value, f.lit(False))


def _in_micros(frame: DataFrame, name: str) -> Column:
    return f.unix_micros(name) if isinstance(frame.schema[name].dataType, t.TimestampType) else f.col(name)


def _image_columns(images: DataFrame) -> DataFrame:
    """Return what the terms of tags need to know about their manifests."""
    names = (*_QUARANTINE, *_ASSIGNED, "delete_requested")
    created = _in_micros(images, "created_at").alias("created_at")
    renamed = [_in_micros(images, name).alias(f"image_{name}") for name in names]
    return images.select("repository", "digest", "node", created, *renamed)


def _numbered(rows: DataFrame, owner: str, numbers: DataFrame) -> DataFrame:
    """Add the number of an assigned policy, null if no policy has its name."""
    renamed = numbers.withColumnsRenamed({"name": f"{owner}_policy", "number": f"{owner}_number"})
    return rows.join(renamed, f"{owner}_policy", "left")


@dataclass(frozen=True)
class _PolicyFinder:
    """Looks policies up by name, on an executor."""

    policies: Policies
    keys: tuple[str, ...]

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            names = batch.column("policy").to_pylist()
            found = [self.policies.find(name) for name in names]
            numbers = [None if one is None else self.keys.index(same_name(one.name)) for one in found]
            arrays = [batch.column("policy"), pa.array(numbers, pa.int32())]
            yield pa.RecordBatch.from_arrays(arrays, names=["name", "number"])


@dataclass(frozen=True)
class _RuleMatcher:
    """Matches tags against rules on an executor: the first assign rule, and all keep_newest rules."""

    policies: Policies
    keys: tuple[str, ...]

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            columns = (batch.column(name).to_pylist() for name in ("node", "repository", "tag"))
            found = [self._matched(*row) for row in zip(*columns, strict=True)]
            rules = pa.array([rule for rule, _ in found], pa.int32())
            newest = pa.array([numbers for _, numbers in found], pa.list_(pa.int32()))
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, rules, newest], names=[*batch.schema.names, "rule", "rules"]
            )

    def _matched(self, node: int | None, repository: str, tag: str) -> tuple[int | None, list[int]]:
        if node is None or not tag:
            raise MetadataError(
                f"the manifest of {repository}:{tag} is not in the table of images",
                why="a tag whose manifest is unknown cannot be judged",
                fix="scan the registry again",
            )
        rule = next((one for one in self.policies.assign if one.matches(repository, tag)), None)
        numbers = [n for n, one in enumerate(self.policies.keep_newest) if one.matches(repository, tag)]
        return None if rule is None else self.keys.index(same_name(rule.policy)), numbers
