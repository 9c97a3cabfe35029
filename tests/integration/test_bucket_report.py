"""S3 Inventory reports: the same table from CSV, Parquet and ORC, and no doubt about any file."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote_plus

import pyarrow as pa
import pytest
from pyarrow import orc, parquet

from ebbtide.core.errors import BadInput, EbbtideError, GarbledName, MetadataError, NotFound
from ebbtide.engine.spark.failures import own_errors
from ebbtide.targets.s3.inventory.report import read_report
from ebbtide.targets.s3.rules.configuration import Configuration, Expiration, Filter, Rule

pytestmark = pytest.mark.spark

COLUMNS = {
    "Bucket": "bucket",
    "Key": "key",
    "VersionId": "version_id",
    "IsLatest": "is_latest",
    "IsDeleteMarker": "is_delete_marker",
    "Size": "size",
    "LastModifiedDate": "last_modified_date",
    "ETag": "e_tag",
    "StorageClass": "storage_class",
    "IsMultipartUploaded": "is_multipart_uploaded",
    "ReplicationStatus": "replication_status",
    "ObjectLockRetainUntilDate": "object_lock_retain_until_date",
    "ObjectLockMode": "object_lock_mode",
    "ObjectLockLegalHoldStatus": "object_lock_legal_hold_status",
}
DAY = datetime(2020, 1, 1, 12, 30, 1, tzinfo=UTC)
QUOTED = 'q/"quoted",comma'
FAR = datetime(2099, 1, 1, tzinfo=UTC)
ROWS = [
    ("b", "p/a b+%é", "v2", True, False, 5, DAY, "e2", "STANDARD", False, "PENDING", FAR, "GOVERNANCE", "On"),
    ("b", "p/a b+%é", "v1", False, False, 0, DAY, "e1", "GLACIER", True, None, None, None, "Off"),
    ("b", "p/gone", "v3", True, True, None, DAY, None, None, None, None, None, None, None),
    (
        "b",
        'q/"quoted",comma',
        "",
        True,
        False,
        7,
        DAY,
        "e3",
        "STANDARD",
        False,
        "COMPLETED",
        None,
        None,
        None,
    ),
]
EXPECTED = {
    ("p/a b+%é", "v2"): ("version", True, 5, DAY, "e2", "STANDARD", None, None, True, FAR, "PENDING", False),
    ("p/a b+%é", "v1"): ("version", False, 0, DAY, "e1", "GLACIER", None, None, False, None, None, False),
    ("p/gone", "v3"): ("marker", True, None, DAY, None, None, None, None, False, None, None, False),
    (QUOTED, "null"): (
        *("version", True, 7, DAY, "e3", "STANDARD", None, None, False, None, "COMPLETED", False),
    ),
}
EVERYTHING = Configuration((Rule("all", True, Filter(), Expiration(days=1)),))
TAGGED = Configuration((Rule("t", True, Filter(tags=(("k", "v"),)), Expiration(days=1)),))

Table = dict[str, list]
Writer = Callable[[Table], bytes]


class Written(str):
    """A key that is written to a CSV file as it stands."""

    __slots__ = ()


def table_of(*left_out: str, **more: list) -> Table:
    """Give the rows as columns, with some left out and others added."""
    whole = {name: [row[at] for row in ROWS] for at, name in enumerate(COLUMNS)}
    return {name: column for name, column in {**whole, **more}.items() if name not in left_out}


def as_csv(table: Table) -> bytes:
    """Write what S3 writes: quoted, without a header, with encoded keys, packed."""
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    texts = [[_text(name, one) for one in column] for name, column in table.items()]
    writer.writerows(zip(*texts, strict=True))
    return gzip.compress(text.getvalue().encode())


def _text(name: str, value: object) -> str:
    if isinstance(value, Written):
        return value
    if name == "Key":
        return quote_plus(str(value), safe="/")
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def as_arrow(table: Table) -> pa.Table:
    """Make a table with the names and types that Parquet and ORC have."""
    columns = {COLUMNS.get(name, name): column for name, column in table.items()}
    return pa.table(
        {
            name: column if isinstance(column, pa.Array) else pa.array(column, _kind(name))
            for name, column in columns.items()
        }
    )


def _kind(name: str) -> pa.DataType:
    if name.endswith("_date"):
        return pa.timestamp("ms", tz="UTC")
    if name.startswith("is_"):
        return pa.bool_()
    return pa.int64() if name == "size" else pa.string()


def as_parquet(table: Table) -> bytes:
    """Write a Parquet file."""
    sink = io.BytesIO()
    parquet.write_table(as_arrow(table), sink)
    return sink.getvalue()


def as_orc(table: Table) -> bytes:
    """Write an ORC file."""
    sink = io.BytesIO()
    orc.write_table(as_arrow(table), sink)
    return sink.getvalue()


FORMATS: dict[str, tuple[Writer, str]] = {
    "CSV": (as_csv, "csv.gz"),
    "Parquet": (as_parquet, "parquet"),
    "ORC": (as_orc, "orc"),
}


def write_report(root: Path, name: str, *tables: Table, **changes: object) -> Path:
    """Write a report as S3 lays it out, and give the path of its manifest."""
    writer, ending = FORMATS[name]
    (root / "dest/b/daily/data").mkdir(parents=True)
    (root / "dest/b/daily/2020-01-02T00-00Z").mkdir()
    files = []
    for number, table in enumerate(tables):
        data = writer(table)
        key = f"dest/b/daily/data/part-{number}.{ending}"
        (root / key).write_bytes(data)
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        files.append({"key": key, "size": len(data), "MD5checksum": md5})
    schema = ", ".join(tables[0]) if name == "CSV" and tables else "message s3.inventory { }"
    manifest = {"sourceBucket": "b", "fileFormat": name, "fileSchema": schema, "files": files, **changes}
    path = root / "dest/b/daily/2020-01-02T00-00Z/manifest.json"
    path.write_text(json.dumps(manifest))
    return path


def rows_of(frame) -> dict[tuple[str, str], tuple]:
    """Give the rows by key and version, with times in UTC."""
    return {
        (row[0], row[1]): tuple(
            one.replace(tzinfo=UTC) if isinstance(one, datetime) else one for one in row[2:]
        )
        for row in frame.collect()
    }


@pytest.mark.parametrize("name", FORMATS)
def test_all_formats_say_the_same(spark, tmp_path, name):
    """Whatever the files are, the table is the same, and it comes from all of them."""
    whole = table_of()
    halves = [
        {key: column[:2] for key, column in whole.items()},
        {key: column[2:] for key, column in whole.items()},
    ]
    path = write_report(tmp_path, name, *halves)
    for source in (path, path.parent):
        found = read_report(spark, str(source), "b", EVERYTHING, tmp_path / "scratch")

        assert EXPECTED == rows_of(found.versions)
        assert () == found.warnings


def test_only_what_a_rule_can_match_is_read(spark, tmp_path):
    """Rows outside of all prefixes are left out; without a rule there are none."""
    path = str(write_report(tmp_path, "Parquet", table_of()))
    some = Configuration((Rule("p", True, Filter("q/"), Expiration(days=1), abort_days=1),))
    found = read_report(spark, path, "b", some, tmp_path)

    assert ["q/"] == [key[:2] for key, _ in rows_of(found.versions)]
    assert any("uploads" in warning for warning in found.warnings)
    assert {} == rows_of(read_report(spark, path, "b", Configuration(()), tmp_path).versions)


@pytest.mark.parametrize("name", FORMATS)
def test_columns_that_are_missing_are_unknown(spark, tmp_path, name):
    """Without IsLatest all rows are current, which is said; a time or size that is missing is null."""
    kept = ("Bucket", "Key", "ETag")
    path = write_report(tmp_path, name, table_of(*(column for column in COLUMNS if column not in kept)))
    found = read_report(spark, str(path), "b", EVERYTHING, tmp_path)
    row = rows_of(found.versions)["p/gone", "null"]

    assert ("version", True, None, None, None, "STANDARD") == row[:6]
    assert ["IsLatest", "object lock"] == [
        word for word in ("IsLatest", "object lock") if any(word in warning for warning in found.warnings)
    ]


@pytest.mark.parametrize("name", FORMATS)
def test_tags_are_our_addition(spark, tmp_path, name):
    """A report with a column of tags serves rules that ask for them."""
    path = write_report(tmp_path, name, table_of(tags=["k=v&a%20b=1%3D2", "k=", "", None]))
    found = read_report(spark, str(path), "b", TAGGED, tmp_path).versions.select("key", "version_id", "tags")

    assert [{"k": "v", "a b": "1=2"}, {"k": ""}, {}, {}] == [
        rows_of(found)[key, version][0] for key, version in EXPECTED
    ]


def test_tags_may_be_a_map(spark, tmp_path):
    """Parquet can hold tags as they are."""
    tags = pa.array([[("k", "v")], [], None, [("k", "w")]], pa.map_(pa.string(), pa.string()))
    path = write_report(tmp_path, "Parquet", table_of(tags=tags))
    found = read_report(spark, str(path), "b", TAGGED, tmp_path).versions.select("key", "version_id", "tags")

    assert [{"k": "v"}, {}, {}, {"k": "w"}] == [rows_of(found)[key, version][0] for key, version in EXPECTED]


def test_rules_with_tags_need_tags(spark, tmp_path):
    """A report without tags cannot say which objects such a rule means."""
    path = write_report(tmp_path, "Parquet", table_of())

    with pytest.raises(BadInput, match="list the bucket instead"):
        read_report(spark, str(path), "b", TAGGED, tmp_path)


def test_a_report_of_another_bucket_is_refused(spark, tmp_path):
    """Rules of one bucket are not judged by what another holds."""
    with pytest.raises(BadInput, match="of the bucket 'b'"):
        read_report(spark, str(write_report(tmp_path, "CSV", table_of())), "c", EVERYTHING, tmp_path)


def test_an_empty_report_is_an_empty_bucket(spark, tmp_path):
    """A bucket without objects has a report without files."""
    found = read_report(spark, str(write_report(tmp_path, "ORC")), "b", EVERYTHING, tmp_path)

    assert ({}, 1) == (rows_of(found.versions), len(found.warnings))


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _alter(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"?")


@pytest.mark.parametrize(
    ("harm", "words"), [(Path.unlink, "is missing"), (_cut, "bytes"), (_alter, "was altered")]
)
def test_a_file_that_is_not_what_the_manifest_says_stops(spark, tmp_path, harm, words):
    """A file that is missing, cut or altered could have said anything."""
    path = write_report(tmp_path, "Parquet", table_of())
    harm(tmp_path / "dest/b/daily/data/part-0.parquet")

    with pytest.raises(MetadataError, match=words):
        read_report(spark, str(path), "b", EVERYTHING, tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"fileFormat": "Avro"},
        {"files": [{"key": "x", "size": 1}]},
        {"files": [{"key": "x", "size": 1, "MD5checksum": "0"}] * 2},
        {"files": [{"key": "../x", "size": 1, "MD5checksum": "0"}]},
        {"files": [{"key": "data/_x", "size": 1, "MD5checksum": "0"}]},
        {"files": None},
        {"fileSchema": None},
    ],
    ids=["format", "no MD5", "twice", "above", "hidden", "no files", "no schema"],
)
def test_a_manifest_that_makes_no_sense_stops(spark, tmp_path, changes):
    """Whatever a manifest does not say as it should is a doubt."""
    path = write_report(tmp_path, "CSV", table_of(), **changes)

    with pytest.raises(MetadataError):
        read_report(spark, str(path), "b", EVERYTHING, tmp_path)


@pytest.mark.parametrize("left_out", ["Key", "IsLatest", "IsDeleteMarker"])
def test_a_report_that_cannot_be_understood_stops(spark, tmp_path, left_out):
    """Without keys nothing is named, and with half of the version columns markers pass for objects."""
    path = write_report(tmp_path, "Parquet", table_of(left_out))

    with pytest.raises(MetadataError):
        read_report(spark, str(path), "b", EVERYTHING, tmp_path)


def test_a_row_that_cannot_be_read_raises(spark, tmp_path):
    """A size that is no number is not taken for none."""
    path = write_report(tmp_path, "CSV", table_of(Size=[1, 2, 3, "many"]))
    found = read_report(spark, str(path), "b", EVERYTHING, tmp_path)

    with pytest.raises(Exception, match="many"):
        found.versions.collect()


def test_a_report_that_is_not_there_is_named(spark, tmp_path):
    """A wrong path is no empty report."""
    with pytest.raises(NotFound, match="there is no report"):
        read_report(spark, str(tmp_path / "nothing"), "b", EVERYTHING, tmp_path)


def test_a_report_is_fetched_from_s3(spark, s3_server, bucket, tmp_path):
    """A report in a bucket is fetched and checked first; a file that is not there stops."""
    path = write_report(tmp_path, "Parquet", table_of())
    client = s3_server.client()
    keys = [one.relative_to(tmp_path).as_posix() for one in sorted(tmp_path.rglob("*")) if one.is_file()]
    for key in keys:
        client.put_object(Bucket=bucket, Key=key, Body=(tmp_path / key).read_bytes())
    place = f"s3://{bucket}/{path.relative_to(tmp_path).as_posix()}"
    scratch = tmp_path / "scratch"
    found = read_report(spark, place, "b", EVERYTHING, scratch, options=s3_server.options)

    assert EXPECTED == rows_of(found.versions)

    client.delete_object(Bucket=bucket, Key=keys[-1])
    with pytest.raises(EbbtideError, match="is missing"):
        read_report(spark, place, "b", EVERYTHING, scratch, options=s3_server.options)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("CSV", "x%FFy"),
        ("CSV", "x%zz"),
        ("CSV", "x y"),
        ("CSV", "x\ufffdy"),
        ("Parquet", "x\ufffdy"),
    ],
)
def test_a_key_that_cannot_be_trusted_stops(spark, tmp_path, name, key):
    """Bytes that are no UTF-8, half an escape, a key that is not encoded and one that was replaced stop."""
    path = write_report(tmp_path, name, table_of(Key=["a", "b", Written("c%EF%BF%BD%2B"), Written(key)]))
    found = read_report(spark, str(path), "b", EVERYTHING, tmp_path)

    with pytest.raises(GarbledName, match="the report has a key that cannot be trusted"), own_errors():
        found.versions.collect()


def test_a_key_of_a_report_is_decoded_once(spark, tmp_path):
    """A replacement character that was written as one, a literal %2F and a plus sign are what they are."""
    keys = ["c\ufffd", "a%2Fb", "a+b", "x\x01\n y"]
    path = write_report(tmp_path, "CSV", table_of(Key=keys))
    found = read_report(spark, str(path), "b", EVERYTHING, tmp_path)

    assert sorted(keys) == sorted(row.key for row in found.versions.select("key").collect())
