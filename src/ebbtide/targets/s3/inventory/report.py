"""
S3 Inventory reports: what S3 itself listed about a day ago, read as the table VERSIONS.

Columns are found by name, which is ``VersionId`` in CSV and ``version_id`` in Parquet and ORC. A report has
no order of versions other than their times, no tags and no uploads. Its manifest lists every file of it, and
each file is compared with the size and MD5 in the manifest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from pathlib import Path, PurePosixPath
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from ebbtide.core.errors import AddressError, BadInput, GarbledName, MetadataError, NotFound
from ebbtide.engine.tables.contracts import VERSIONS
from ebbtide.engine.tables.counted import read_from
from ebbtide.storage.address import Place, is_full, locate
from ebbtide.storage.store import StoreSpec, open_store
from ebbtide.targets.s3.rules.configuration import (
    Configuration,
    covering_prefixes,
    needs_tags,
    upload_prefixes,
)

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
    """The versions of a report, and warnings about what it does not contain."""

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
    Read a report, given its manifest.json or the folder with it, on disk or as s3://bucket/path.

    Raise if a file is missing, truncated or altered, or if the report is of another bucket. Only rows that an
    enabled rule can match are returned.
    """
    manifest, paths = open_report(source, scratch, options or {})
    if manifest.source_bucket != bucket:
        raise BadInput(
            f"the report is of the bucket {manifest.source_bucket!r}",
            why=f"the rules are those of {bucket!r}",
            fix="use the report of this bucket",
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


def _raw(spark: SparkSession, manifest: ReportManifest, paths: Sequence[Path]) -> DataFrame:
    """Read the files without conversion."""
    places = [read_from(path) for path in paths]
    if manifest.file_format == "Parquet":
        return spark.read.parquet(*places)
    if manifest.file_format == "ORC":
        return spark.read.orc(places)
    schema = t.StructType([t.StructField(name, t.StringType()) for name in manifest.columns])
    # Quotes inside quotes are doubled. A line with too many or too few fields must raise.
    return spark.read.schema(schema).csv(places, header=False, quote='"', escape='"', mode="FAILFAST")


def _within(rows: DataFrame, prefixes: Sequence[str]) -> DataFrame:
    """Return only the rows that a rule can match."""
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
    """Normalize the name of a column, so that ETag and e_tag are both etag."""
    return name.replace("_", "").lower()


def _columns(raw: DataFrame, *, encoded: bool) -> _Columns:
    texts = {_plain(one.name) for one in raw.schema if isinstance(one.dataType, t.StringType)}
    return _Columns({_plain(name): name for name in raw.columns}, encoded, "tags" in texts)


@dataclass(frozen=True)
class _Columns:
    """The columns of a report, by their normalized names."""

    names: Mapping[str, str]
    encoded: bool
    """Whether keys are URL-encoded, as they are in CSV."""
    tags_are_text: bool = False

    def has(self, name: str) -> bool:
        """Return True if the report has a column."""
        return name in self.names

    def versions(self) -> list[Column]:
        """Return the columns of VERSIONS; what the report does not have is null."""
        if not self.has("key"):
            raise _odd("the report has no column Key", "its rows do not name objects")
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
        """Return a column with the right type; empty text is null."""
        if not self.has(name):
            return f.lit(None).cast(kind)
        column = f.col(f"`{self.names[name]}`")
        is_text = self.encoded or kind == "string"
        return f.nullif(column, f.lit("")).cast(kind) if is_text else column.cast(kind)

    def _key(self) -> Column:
        """Return the key, decoded once; a key that cannot be read for certain fails the job."""
        written = f.col(f"`{self.names['key']}`")
        key = f.try_url_decode(written) if self.encoded else written
        # Java decodes invalid UTF-8 as U+FFFD, so each U+FFFD must have been in the text.
        told = _count(f.upper(written), "%EF%BF%BD") if self.encoded else f.lit(0)
        doubt = key.isNull() | (_count(key, _REPLACED) != told) | ~f.is_valid_utf8(key)
        if self.encoded:
            doubt = doubt | written.rlike("[^!-~]")
        return f.when(doubt, f.raise_error(_garbled(written))).otherwise(key)

    def _tags(self) -> Column:
        """Return the tags, which S3 does not write and Ebbtide accepts: a map, or the query of a URL."""
        none = f.create_map().cast(_TAGS)
        if not self.has("tags"):
            return f.lit(None).cast(_TAGS)
        column = f.col(f"`{self.names['tags']}`")
        if not self.tags_are_text:
            return f.coalesce(column.cast(_TAGS), none)
        pairs = f.transform(f.split(column, "&"), _pair)
        return f.when(f.coalesce(column, f.lit("")) == "", none).otherwise(f.map_from_entries(pairs))


def _pair(text: Column) -> Column:
    """Split one tag at its first equals sign."""
    value = f.regexp_replace(text, "^[^=]*=?", "")
    return f.struct(f.url_decode(f.substring_index(text, "=", 1)), f.url_decode(value))


def _count(text: Column, part: str) -> Column:
    """Count the occurrences of a substring."""
    return f.size(f.split(text, f.lit(f"\\Q{part}\\E").cast("string"), -1)) - 1


def _garbled(name: Column) -> Column:
    """Format the error so that `spark.failures.translated` finds it in Spark's message."""
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


_FORMATS = ("CSV", "Parquet", "ORC")
_CHUNK = 1 << 20
_THREADS = 4


@dataclass(frozen=True)
class ReportFile:
    """One data file of the manifest."""

    key: str
    size: int
    md5: str


_Pair = tuple[Path, ReportFile]


@dataclass(frozen=True)
class ReportManifest:
    """The content of a manifest.json."""

    source_bucket: str
    file_format: str
    columns: tuple[str, ...]
    """The columns of CSV files, which have no header; other formats contain their columns."""
    files: tuple[ReportFile, ...]


def parse_manifest(text: bytes) -> ReportManifest:
    """Parse a manifest.json; raise MetadataError if anything is missing."""
    try:
        said = json.loads(text)
        files = tuple(ReportFile(one["key"], int(one["size"]), one["MD5checksum"]) for one in said["files"])
        found = ReportManifest(said["sourceBucket"], said["fileFormat"], _csv_columns(said), files)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _doubt("the manifest of the report cannot be read", f"it has no {error}") from None
    if found.file_format not in _FORMATS:
        raise _doubt(f"the report has the format {found.file_format!r}", f"known are {', '.join(_FORMATS)}")
    if len({one.key for one in files}) != len(files):
        raise _doubt("the manifest names a file twice", "its rows would count twice")
    return found


def _csv_columns(said: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the columns of CSV files; other formats contain them."""
    if said["fileFormat"] != "CSV":
        return ()
    return tuple(name.strip() for name in said["fileSchema"].split(","))


def open_report(source: str, scratch: Path, options: Mapping[str, str]) -> tuple[ReportManifest, list[Path]]:
    """
    Return the manifest of a report and its files on disk, each checked against its size and MD5.

    The source is a manifest.json or its folder, on disk or as s3://bucket/path, which is downloaded first.
    """
    if is_full(source) and not source.startswith("file:"):
        return _fetched(locate(source), scratch, options)
    path = Path("/", locate(source).path)
    manifest_path = path / "manifest.json" if path.is_dir() else path
    if not manifest_path.is_file():
        raise NotFound(f"there is no report at {manifest_path}", fix="give the path of its manifest.json")
    manifest = parse_manifest(manifest_path.read_bytes())
    paths = [_find(manifest_path.parent, one) for one in manifest.files]
    _on_threads(lambda pair: _check_file(*pair), list(zip(paths, manifest.files, strict=True)))
    return manifest, paths


def _fetched(place: Place, scratch: Path, options: Mapping[str, str]) -> tuple[ReportManifest, list[Path]]:
    """Download a report from the bucket that has its manifest."""
    if place.scheme != "s3":
        raise AddressError(
            f"{place.url} cannot be the place of a report", fix="use a folder or s3://bucket/path"
        )
    store = open_store(StoreSpec(f"s3://{place.host}", dict(options)))
    name = place.path if place.path.endswith(".json") else f"{place.path}/manifest.json"
    manifest = parse_manifest(store.read(name))
    folder = scratch / "report"
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number:06}-{_name(one)}" for number, one in enumerate(manifest.files)]

    def fetch(pair: _Pair) -> None:
        try:
            data = store.read(pair[1].key)
        except NotFound:
            raise _doubt(f"{pair[1].key} of the report is missing", "its rows are unknown") from None
        _check(pair[1], len(data), hashlib.md5(data, usedforsecurity=False).hexdigest())
        pair[0].write_bytes(data)

    _on_threads(fetch, list(zip(paths, manifest.files, strict=True)))
    return manifest, paths


def _on_threads(work: Callable[[_Pair], None], pairs: list[_Pair]) -> None:
    """Call `work` for all files on threads; raise the first error."""
    with ThreadPoolExecutor(_THREADS) as threads:
        list(threads.map(work, pairs))


def _find(folder: Path, one: ReportFile) -> Path:
    """
    Find a file near its manifest: at its key below any parent folder, or by its name in `data`.

    Keys are those of the bucket that the report was written to; a copy on disk may start at any part of them.
    """
    parts = PurePosixPath(one.key).parts
    if ".." in parts or one.key.startswith("/"):
        raise _doubt(f"the manifest names {one.key!r}", "that is not the key of a data file")
    name = _name(one)
    near = [folder / name, folder / "data" / name, folder.parent / "data" / name]
    for path in [*(base / one.key for base in (folder, *folder.parents)), *near]:
        if path.is_file():
            return path
    raise _doubt(f"{one.key} of the report is missing", "its rows are unknown")


def _name(one: ReportFile) -> str:
    name = PurePosixPath(one.key).name
    if name.startswith(("_", ".")) or not name:
        raise _doubt(f"the manifest names {one.key!r}", "Spark ignores files with such names")
    return name


def _check_file(path: Path, one: ReportFile) -> None:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    _check(one, path.stat().st_size, digest.hexdigest())


def _check(one: ReportFile, size: int, md5: str) -> None:
    """Compare the size and MD5 of a file with the manifest."""
    if size != one.size:
        raise _doubt(f"{one.key} of the report has {size} bytes", f"the manifest says {one.size}")
    if md5 != one.md5.lower():
        raise _doubt(f"{one.key} of the report was altered", "its MD5 differs from the manifest")


def _doubt(what: str, why: str) -> MetadataError:
    return MetadataError(what, why=why, fix="fetch the report again, or list the bucket instead")
