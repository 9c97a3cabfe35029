"""A bucket listed by Spark's executors: exactly what boto3 lists, however it was split or interrupted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from tests.services.flaky_proxy import FlakyProxy, access_denied, flaky_proxy
from tests.services.seaweed import S3Server, fresh_bucket

from ebbtide.core.errors import MetadataError, NotFound, StoreError
from ebbtide.storage.store import StoreSpec
from ebbtide.targets.s3.inventory.listing import ListingLimits, list_bucket
from ebbtide.targets.s3.rules.configuration import Configuration, Expiration, Filter, Rule

pytestmark = pytest.mark.spark

DAYS = Expiration(days=1)
SMALL = ListingLimits(pages=2, rows_a_page=4, ranges_a_core=2)
"""So that few versions are many pages, and long ranges are handed back."""
FAR = datetime(2099, 1, 1, tzinfo=UTC)
ODD = ["a b", "a.b", "a/b", "a+b", "é/日本", "a%2Fb"]


def about(*prefixes: str, **more) -> Configuration:
    """Make a configuration with one rule for each prefix."""
    return Configuration(tuple(Rule(prefix, True, Filter(prefix), DAYS, **more) for prefix in prefixes))


@pytest.fixture(scope="module")
def filled(s3_server: S3Server) -> Iterator[str]:
    """Give a bucket with versions and markers below three prefixes, one of them long."""
    client = s3_server.client()
    with fresh_bucket(s3_server) as name:
        client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
        keys = [f"flat/{number:02}" for number in range(20)]
        keys += [f"deep/{folder}/{number}" for folder in "xyz" for number in range(3)] + ["other/1"]
        for key in [*keys, *keys[::3], "flat/07", "flat/07", "flat/07"]:
            client.put_object(Bucket=name, Key=key, Body=b"x" * len(key), Tagging="team=one")
        client.delete_object(Bucket=name, Key="flat/03")
        client.create_multipart_upload(Bucket=name, Key="flat/upload")
        yield name


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FlakyProxy]:
    """Run a proxy in front of the server."""
    with flaky_proxy(s3_server.endpoint) as running:
        yield running


def spec_of(server: S3Server, bucket: str, *, endpoint: str = "", ordered: str = "yes") -> StoreSpec:
    """Say how to open a bucket; its keys are such that SeaweedFS lists them in order."""
    options = {**server.options, "endpoint": endpoint or server.endpoint, "ordered": ordered}
    return StoreSpec(f"s3://{bucket}", options)


def with_boto3(server: S3Server, bucket: str, *prefixes: str) -> list[tuple]:
    """List as everybody does."""
    client = server.client()
    found = []
    for prefix in prefixes:
        answer = client.list_object_versions(Bucket=bucket, Prefix=prefix)
        for kind, name in (("version", "Versions"), ("marker", "DeleteMarkers")):
            found += [
                (one["Key"], one["VersionId"], kind, one["IsLatest"], one.get("Size"), one["LastModified"])
                for one in answer.get(name, [])
            ]
    return sorted(found)


def shown(frame) -> list[tuple]:
    """Give the rows of a listing in the same form."""
    rows = frame.select("key", "version_id", "kind", "is_latest", "size", "last_modified").collect()
    return sorted((*row[:5], row[5].replace(tzinfo=UTC)) for row in rows)


@pytest.mark.parametrize("prefixes", [("",), ("deep/y", "flat/0")])
def test_a_listing_is_what_boto3_lists(spark, s3_server, filled, tmp_path, prefixes):
    """Split and split again, a listing has every row once, and only below the prefixes of rules."""
    seen: list[tuple[int, int]] = []
    found = list_bucket(
        spark,
        spec_of(s3_server, filled),
        about(*prefixes),
        tmp_path,
        limits=SMALL,
        on_progress=lambda _step, done, total: seen.append((done, total)),
    )
    newest = {row.version_id for row in found.where("position = 0").collect()}

    assert with_boto3(s3_server, filled, *prefixes) == shown(found)
    assert {row.version_id for row in found.where("is_latest").collect()} == newest
    assert seen[-1][0] == seen[-1][1] == len(list((tmp_path / "versions").glob("*.parquet")))
    assert len(seen) > 2  # ranges were handed back


def test_a_server_without_key_order_is_listed_whole(spark, s3_server, bucket, tmp_path):
    """What has no order is not split, and still every odd key is there."""
    for key in ODD:
        s3_server.client().put_object(Bucket=bucket, Key=key, Body=b"")
    found = list_bucket(spark, spec_of(s3_server, bucket, ordered="no"), about(""), tmp_path)

    assert with_boto3(s3_server, bucket, "") == shown(found)
    assert 1 == len(list((tmp_path / "versions").glob("*.parquet")))


def test_ranges_go_around_what_is_left_out(spark, s3_server, filled, tmp_path):
    """Versions below a prefix that is left out are not listed where keys come in order; all others are."""
    found = list_bucket(
        spark, spec_of(s3_server, filled), about(""), tmp_path, left_out=["deep/"], limits=SMALL
    )

    assert with_boto3(s3_server, filled, "flat/", "other/") == shown(found)


def test_uploads_are_rows_too(spark, s3_server, filled, tmp_path):
    """Rules that abort uploads have those below their prefix listed, and no version."""
    rule = Rule("u", True, Filter("flat/"), abort_days=1)
    rows = list_bucket(spark, spec_of(s3_server, filled), Configuration((rule,)), tmp_path).collect()

    assert [("flat/upload", "upload", None, None)] == [
        (row.key, row.kind, row.size, row.is_latest) for row in rows
    ]
    assert rows[0].version_id
    assert rows[0].last_modified


def test_no_rule_lists_nothing(spark, s3_server, filled, tmp_path):
    """A configuration without an enabled rule asks for nothing."""
    off = Configuration((Rule("off", False, Filter(""), DAYS),))

    assert [] == list_bucket(spark, spec_of(s3_server, filled), off, tmp_path).collect()


def test_tags_are_asked_for_only_where_a_rule_needs_them(spark, s3_server, filled, proxy, tmp_path):
    """Versions that a rule with tags can match by key and size have theirs; no other is asked."""
    tagged = Filter("flat/", (("team", "one"),), larger_than=6)
    rules = Configuration((Rule("t", True, tagged, DAYS), Rule("p", True, Filter("other/"), DAYS)))
    found = list_bucket(spark, spec_of(s3_server, filled, endpoint=proxy.endpoint), rules, tmp_path)
    tags = {(row.key, row.kind): row.tags for row in found.collect()}
    asked = [request for request in proxy.requests if "tagging" in request.query]
    flat = found.where("key like 'flat/%' and kind = 'version'").count()

    assert ({"team": "one"}, None, None) == (
        tags["flat/03", "version"],
        tags["flat/03", "marker"],
        tags["other/1", "version"],
    )
    assert flat == len(asked)


def test_locks_are_asked_for_where_a_bucket_has_them(spark, s3_server, tmp_path):
    """Holds and retention of a bucket with object lock are in the table."""
    client = s3_server.client()
    with fresh_bucket(s3_server) as name:
        client.delete_bucket(Bucket=name)
        client.create_bucket(Bucket=name, ObjectLockEnabledForBucket=True)
        client.put_object(Bucket=name, Key="a", Body=b"", ObjectLockLegalHoldStatus="ON")
        until = {"ObjectLockMode": "GOVERNANCE", "ObjectLockRetainUntilDate": FAR}
        client.put_object(Bucket=name, Key="b", Body=b"", **until)
        client.delete_object(Bucket=name, Key="b")
        rows = list_bucket(spark, spec_of(s3_server, name), about(""), tmp_path).collect()
    found = {(row.key, row.kind): (row.legal_hold, row.retain_until) for row in rows}

    assert {
        ("a", "version"): (True, None),
        ("b", "version"): (False, FAR.replace(tzinfo=None)),
        ("b", "marker"): (False, None),
    } == found


def is_versions_below(prefix: str):
    """Recognise a page of versions below a prefix."""

    def recognise(request) -> bool:
        asked = parse_qs(request.query, keep_blank_values=True)
        return request.method == "GET" and "versions" in asked and [prefix] == asked.get("prefix")

    return recognise


def times(files: Path) -> dict[str, int]:
    """Say when each file of a listing was written."""
    return {path.name: path.stat().st_mtime_ns for path in files.glob("*.parquet")}


def test_an_interrupted_listing_goes_on(spark, s3_server, filled, proxy, tmp_path):
    """A page that cannot be had stops the listing; later only what is missing is listed."""
    files = tmp_path / "versions"

    def refuse_late(request, forward):
        deadline = time.monotonic() + 300
        while not any(files.glob("*.parquet")) and time.monotonic() < deadline:
            time.sleep(0.05)
        return access_denied(request, forward)

    spec = spec_of(s3_server, filled, endpoint=proxy.endpoint)
    limits = ListingLimits(ranges_a_core=1)
    proxy.inject(is_listing_itself("flat/"), refuse_late)
    with pytest.raises(StoreError, match="AccessDenied"):
        list_bucket(spark, spec, about("deep/", "flat/"), tmp_path, limits=limits)
    finished = times(files)
    proxy.clear()
    found = list_bucket(spark, spec, about("deep/", "flat/"), tmp_path, limits=limits)
    again = [request for request in proxy.requests if is_versions_below("deep/")(request)]

    assert finished
    assert [] == again
    assert finished.items() <= times(files).items()
    assert with_boto3(s3_server, filled, "deep/", "flat/") == shown(found)


def is_listing_itself(prefix: str):
    """Recognise a page of versions that is no probe for where to split."""
    return lambda request: is_versions_below(prefix)(request) and "max-keys=1000" in request.query


def test_another_listing_begins_anew(spark, s3_server, filled, tmp_path):
    """What was listed for other rules is not taken for this listing; other files stay."""
    (tmp_path / "mine").write_text("")
    list_bucket(spark, spec_of(s3_server, filled), about("deep/"), tmp_path)
    found = list_bucket(spark, spec_of(s3_server, filled), about("other/"), tmp_path)

    assert with_boto3(s3_server, filled, "other/") == shown(found)
    assert (tmp_path / "mine").exists()


@pytest.mark.parametrize("damage", ["note", "file"])
def test_a_damaged_listing_is_not_resumed(spark, s3_server, filled, tmp_path, damage):
    """Nobody guesses what a broken file covers."""
    list_bucket(spark, spec_of(s3_server, filled), about("other/"), tmp_path)
    files: dict[str, Path] = {
        "note": tmp_path / "listing.json",
        "file": next(tmp_path.glob("versions/*.parquet")),
    }
    files[damage].write_bytes(b"{")

    with pytest.raises(MetadataError, match="damaged"):
        list_bucket(spark, spec_of(s3_server, filled), about("other/"), tmp_path)


def test_a_missing_bucket_is_named(spark, s3_server, tmp_path):
    """A bucket that is not there is no empty one."""
    with pytest.raises(NotFound, match="no bucket"):
        list_bucket(spark, spec_of(s3_server, "no-such-bucket"), about(""), tmp_path)
