"""
Read an S3 Inventory report as the contract VERSIONS: what S3 itself wrote about a bucket, a day or so ago.

Columns go by their names, which CSV writes as ``VersionId`` and Parquet and ORC as ``version_id``. A report
knows no order among versions but their times, and neither tags nor uploads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from ebbtide.core.errors import BadInput, GarbledName, MetadataError
from ebbtide.engine.tables.contracts import VERSIONS
from ebbtide.engine.tables.places import read_from
from ebbtide.targets.s3.inventory.manifest import Manifest, open_report
from ebbtide.targets.s3.inventory.scope import covering_prefixes, needs_tags, upload_prefixes
from ebbtide.targets.s3.rules.configuration import Configuration

_ONLY_CURRENT = (
    "the report has no column IsLatest: it is one of current versions only, so all of its rows are current"
    " and rules about noncurrent versions and delete markers do nothing"
)
_REPLACED = "\ufffd"
_TAGS = "map<string,string>"
_NO_UPLOADS = "a report has no multipart uploads, so rules that abort them do nothing"
_NO_LOCKS = "the report has no object lock columns, so none counts as locked; S3 itself will refuse"


@dataclass(frozen=True)
class Reported:
    """What a report says, and what it cannot say."""

    versions: DataFrame
    warnings: tuple[str, ...] = field(default=())


def read_report(
    spark: SparkSession,
    source: str,
    bucket: str,
    configuration: Configuration,
    scratch: Path,
    *,
    options: Mapping[str, str] | None = None,
) -> Reported:
    """
    Read the report whose manifest.json this is, or lies in this folder, on disk or as s3://bucket/path.

    A file that is missing, cut or altered stops the run, and so does a report about another bucket. Only rows
    that an enabled rule can match are given.
    """
    manifest, paths = open_report(source, scratch, options or {})
    if manifest.source_bucket != bucket:
        raise BadInput(
            f"the report is about the bucket {manifest.source_bucket!r}",
            why=f"the rules are those of {bucket!r}",
            fix="name the report of this bucket",
        )
    if not paths:
        return Reported(VERSIONS.read(spark), ("the report has no files: the bucket was empty",))
    raw = _raw(spark, manifest, paths)
    columns = _columns(raw, encoded=manifest.file_format == "CSV")
    if needs_tags(configuration) and not columns.has("tags"):
        raise BadInput(
            "a report has no tags",
            why="a rule of this configuration asks for tags",
            fix="list the bucket instead, without the report",
        )
    rows = VERSIONS.check(raw.select(*columns.versions()))
    return Reported(_within(rows, covering_prefixes(configuration)), _warnings(columns, configuration))


def _raw(spark: SparkSession, manifest: Manifest, paths: Sequence[Path]) -> DataFrame:
    """Read the files as they are."""
    places = [read_from(path) for path in paths]
    if manifest.file_format == "Parquet":
        return spark.read.parquet(*places)
    if manifest.file_format == "ORC":
        return spark.read.orc(places)
    schema = t.StructType([t.StructField(name, t.StringType()) for name in manifest.columns])
    # Quotes inside quotes are doubled, and a line with too many or too few fields must not pass.
    return spark.read.schema(schema).csv(places, header=False, quote='"', escape='"', mode="FAILFAST")


def _within(rows: DataFrame, prefixes: Sequence[str]) -> DataFrame:
    """Leave out what no rule can match."""
    if "" in prefixes:
        return rows
    if not prefixes:
        return rows.where(f.lit(False))
    return rows.where(reduce(or_, (f.col("key").startswith(prefix) for prefix in prefixes)))


def _warnings(columns: _Columns, configuration: Configuration) -> tuple[str, ...]:
    found = []
    if not columns.has("islatest"):
        found.append(_ONLY_CURRENT)
    if upload_prefixes(configuration):
        found.append(_NO_UPLOADS)
    if not columns.has("objectlockretainuntildate") or not columns.has("objectlocklegalholdstatus"):
        found.append(_NO_LOCKS)
    return tuple(found)


def _plain(name: str) -> str:
    """Write a column's name in the one way that all formats share: ETag and e_tag are etag."""
    return name.replace("_", "").lower()


def _columns(raw: DataFrame, *, encoded: bool) -> _Columns:
    texts = {_plain(one.name) for one in raw.schema if isinstance(one.dataType, t.StringType)}
    return _Columns({_plain(name): name for name in raw.columns}, encoded, "tags" in texts)


@dataclass(frozen=True)
class _Columns:
    """The columns of a report, by their plain names."""

    names: Mapping[str, str]
    encoded: bool
    """Whether keys are URL-encoded, as they are in CSV."""
    tags_are_text: bool = False

    def has(self, name: str) -> bool:
        """Tell whether the report has a column."""
        return name in self.names

    def versions(self) -> list[Column]:
        """Give the columns of the contract; what the report does not have is not known."""
        if not self.has("key"):
            raise _odd("the report has no column Key", "its rows name nothing")
        if self.has("islatest") != self.has("isdeletemarker"):
            raise _odd("the report has one of IsLatest and IsDeleteMarker", "markers would pass for objects")
        marker = f.coalesce(self._get("isdeletemarker", "boolean"), f.lit(False))
        latest = self._get("islatest", "boolean") if self.has("islatest") else f.lit(True)
        hold = f.lower(self._get("objectlocklegalholdstatus", "string")) == "on"
        standard = f.coalesce(self._get("storageclass", "string"), f.lit("STANDARD"))
        made = {
            "key": self._key(),
            "version_id": f.coalesce(self._get("versionid", "string"), f.lit("null")),
            "kind": f.when(marker, "marker").otherwise("version"),
            "is_latest": latest,
            "size": f.when(~marker, self._get("size", "bigint")),
            "last_modified": self._get("lastmodifieddate", "timestamp"),
            "etag": f.when(~marker, f.trim(self._get("etag", "string"), f.lit('"'))),
            "storage_class": f.when(~marker, standard),
            "position": f.lit(None).cast("bigint"),
            "tags": self._tags(),
            "legal_hold": f.coalesce(hold, f.lit(False)),
            "retain_until": self._get("objectlockretainuntildate", "timestamp"),
            "replication_status": f.upper(self._get("replicationstatus", "string")),
            "restoring": f.lit(False),
        }
        return [made[name].alias(name) for name in VERSIONS.columns]

    def _get(self, name: str, kind: str) -> Column:
        """Give a column as the type that it should have; nothing at all is null."""
        if not self.has(name):
            return f.lit(None).cast(kind)
        column = f.col(f"`{self.names[name]}`")
        is_text = self.encoded or kind == "string"
        return f.nullif(column, f.lit("")).cast(kind) if is_text else column.cast(kind)

    def _key(self) -> Column:
        """Give the key, decoded once; one that cannot be read beyond doubt fails the job."""
        written = f.col(f"`{self.names['key']}`")
        key = f.try_url_decode(written) if self.encoded else written
        # Java decodes bytes that are no UTF-8 as U+FFFD: each of these must have been written as itself.
        told = _count(f.upper(written), "%EF%BF%BD") if self.encoded else f.lit(0)
        doubt = key.isNull() | (_count(key, _REPLACED) != told) | ~f.is_valid_utf8(key)
        if self.encoded:
            doubt = doubt | written.rlike("[^!-~]")
        return f.when(doubt, f.raise_error(_garbled(written))).otherwise(key)

    def _tags(self) -> Column:
        """Give the tags of a report that has some, which is our addition: as a map, or as a URL's query."""
        none = f.create_map().cast(_TAGS)
        if not self.has("tags"):
            return f.lit(None).cast(_TAGS)
        column = f.col(f"`{self.names['tags']}`")
        if not self.tags_are_text:
            return f.coalesce(column.cast(_TAGS), none)
        pairs = f.transform(f.split(column, "&"), _pair)
        return f.when(f.coalesce(column, f.lit("")) == "", none).otherwise(f.map_from_entries(pairs))


def _pair(text: Column) -> Column:
    """Take one tag apart at its first equals sign."""
    value = f.regexp_replace(text, "^[^=]*=?", "")
    return f.struct(f.url_decode(f.substring_index(text, "=", 1)), f.url_decode(value))


def _count(text: Column, part: str) -> Column:
    """Count how often a text has a part."""
    return f.size(f.split(text, f.lit(f"\\Q{part}\\E").cast("string"), -1)) - 1


def _garbled(name: Column) -> Column:
    """Write the error so that `spark.failures.translated` finds it in what Spark says."""
    error = GarbledName(
        "the report has a key that cannot be trusted: {}",
        why="it is not URL-encoded UTF-8, or a character in it was replaced",
        fix="list the bucket instead, without the report",
    )
    before, after = f"ebbtide.core.errors.GarbledName: {error}\n".split("{}")
    shown = f.coalesce(f.make_valid_utf8(name), f.lit("null"))
    return f.concat(f.lit(before), f.translate(shown, "\n\r", "  "), f.lit(after))


def _odd(what: str, why: str) -> MetadataError:
    return MetadataError(what, why=why, fix="make a report with these columns, or list the bucket instead")
