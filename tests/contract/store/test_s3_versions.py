"""What a bucket says of its versions, uploads, tags and locks, on a real server and on a lying one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from urllib.parse import quote

import pytest
from tests.contract.store.conftest import FAST
from tests.services.flaky_proxy import FlakyProxy, Response, access_denied, dropped, slow_down, truncated
from tests.services.seaweed import S3Server, fresh_bucket

from ebbtide.core.errors import AddressError, GarbledName, NotFound, StoreError
from ebbtide.storage.s3_bucket import LockState, VersionedBucket, open_bucket
from ebbtide.storage.store import StoreSpec

ODD = ["a b", "a+b", "a%2Fb", "a&<b>", 'a"b', "é/日本", "😀", "tab\tx", "~#?", "folder/"]
FAR = datetime(2099, 1, 1, tzinfo=UTC)
MANY = 1_050


@dataclass(frozen=True)
class Place:
    """A bucket for one test, with a plain client to look behind our back."""

    server: S3Server
    name: str

    @property
    def client(self):
        """Make a plain client."""
        return self.server.client()

    def bucket(self, *, page: int = 1000, **options: str) -> VersionedBucket:
        """Open the bucket as we do."""
        spec = StoreSpec(f"s3://{self.name}", {**self.server.options, **options})
        return VersionedBucket(spec, FAST, page=page)

    def versioning(self, status: str) -> None:
        """Switch versions on, or off again."""
        self.client.put_bucket_versioning(Bucket=self.name, VersioningConfiguration={"Status": status})

    def put(self, key: str, body: bytes = b"", **more) -> str:
        """Write an object and give its version."""
        return self.client.put_object(Bucket=self.name, Key=key, Body=body, **more).get("VersionId", "null")

    def delete(self, key: str) -> str:
        """Delete an object and give the version of its delete marker."""
        return self.client.delete_object(Bucket=self.name, Key=key).get("VersionId", "null")


@pytest.fixture
def place(s3_server: S3Server) -> Iterator[Place]:
    """Give a fresh bucket without versions."""
    with fresh_bucket(s3_server) as name:
        yield Place(s3_server, name)


@pytest.fixture
def kept(place: Place) -> Place:
    """Give a fresh bucket that keeps versions."""
    place.versioning("Enabled")
    return place


def rows_of(bucket: VersionedBucket, prefix: str = "", **more) -> list[dict]:
    """List versions as dictionaries."""
    return [row for batch in bucket.versions(prefix, **more) for row in batch.to_pylist()]


def names_of(bucket: VersionedBucket, prefix: str = "", **more) -> list[tuple[str, str]]:
    """List keys and versions."""
    return [(row["key"], row["version_id"]) for row in rows_of(bucket, prefix, **more)]


def test_versions_and_markers_come_newest_first(kept):
    """Each version and each delete marker is a row; position counts them from the newest on."""
    ids = [kept.put("k", b"1"), kept.delete("k"), kept.put("k", b"333"), kept.delete("k")]
    found = rows_of(kept.bucket())

    assert ids[::-1] == [row["version_id"] for row in found]
    assert [0, 1, 2, 3] == [row["position"] for row in found]
    assert [True, False, False, False] == [row["is_latest"] for row in found]
    assert [True, False, True, False] == [row["is_delete_marker"] for row in found]
    assert [None, 3, None, 1] == [row["size"] for row in found]
    assert [None, "STANDARD", None, "STANDARD"] == [row["storage_class"] for row in found]
    assert [None, "310dcbbf4cce62f762a2aaa148d556bd"] == [row["etag"] for row in found[:2]]
    assert {True} == {row["last_modified"].tzinfo is not None for row in found}


def test_a_bucket_without_versions_has_null_versions(place):
    """An object of a bucket that never kept versions is its one null version."""
    place.put("k")

    assert [("k", "null", True, 0)] == [
        (row["key"], row["version_id"], row["is_latest"], row["position"]) for row in rows_of(place.bucket())
    ]
    assert ("Disabled", False) == (place.bucket().versioning(), place.bucket().mfa_delete())


def test_the_latest_null_version_comes_first(place):
    """SeaweedFS lists a null version last; after suspending it is the newest, and so it gets position 0."""
    place.put("k", b"old")
    place.versioning("Enabled")
    ids = [place.put("k"), place.put("k")]
    place.versioning("Suspended")
    place.delete("k")
    found = rows_of(place.bucket())

    assert ["null", *ids[::-1]] == [row["version_id"] for row in found]
    assert [(True, 0), (False, 1), (False, 2)] == [(row["is_latest"], row["position"]) for row in found]
    assert found[0]["is_delete_marker"]
    assert "Suspended" == place.bucket().versioning()


def test_a_key_of_many_pages_is_one_row_of_versions(kept):
    """More versions of a key than a page holds are joined, none twice, and keep their order."""
    client = kept.client
    ids = [client.put_object(Bucket=kept.name, Key="hot", Body=b"")["VersionId"] for _ in range(MANY)]
    kept.put("i")
    for ordered in ("yes", "no"):
        found = rows_of(kept.bucket(ordered=ordered))

        assert ids[::-1] == [row["version_id"] for row in found if row["key"] == "hot"]
        assert [*range(MANY), 0] == [row["position"] for row in found]
        assert 2 == sum(row["is_latest"] for row in found)


def test_odd_keys_come_as_they_are(kept):
    """Blanks, plus signs, percent signs, XML's own characters and any script pass unchanged."""
    for key in ODD:
        kept.put(key)

    assert sorted(ODD) == [key for key, _ in names_of(kept.bucket())]
    assert sorted(ODD) == [key for key, _ in names_of(kept.bucket(page=3))]


def test_a_range_has_all_between_its_ends(kept):
    """A range begins behind one key and ends with another, with all versions of each key in it."""
    ids = {key: [kept.put(key), kept.put(key)][::-1] for key in ("p/a", "p/b", "p/c", "p/d", "q")}

    def expected(*keys: str) -> list[tuple[str, str]]:
        return [(key, version) for key in keys for version in ids[key]]

    for bucket in [kept.bucket(), *(kept.bucket(page=page, ordered="yes") for page in (1, 2, 3, 1000))]:
        assert expected("p/b", "p/c") == names_of(bucket, "p/", after="p/a", up_to="p/c")
        assert expected("p/b", "p/c", "p/d") == names_of(bucket, "p/", after="p/a")
        assert expected("p/b") == names_of(bucket, after="p/aa", up_to="p/bb")
        assert [] == names_of(bucket, "p/", after="p/d")


def test_the_next_key_and_the_next_folders_are_found(kept):
    """What is behind a place, deleted or not, is found with one request each."""
    for key in ("p/a/1", "p/b/2", "p/c", "q"):
        kept.put(key)
    kept.delete("p/b/2")
    bucket = kept.bucket(ordered="yes")

    assert ("p/a/1", "p/b/2", None) == (
        bucket.next_key("p/", ""),
        bucket.next_key("p/", "p/a/1"),
        bucket.next_key("p/", "p/c"),
    )
    assert ["p/a/", "p/b/"] == bucket.folders("p/", "")
    assert ["p/b/"] == bucket.folders("p/", "p/a/1")


def test_a_server_without_key_order_loses_no_part_of_a_key(kept):
    """What SeaweedFS loses between its pages is asked for by itself; a key is there whole or not at all."""
    keys = [f"{name}{number}" for name in ("a/", "a.", "a-x/", "b") for number in range(4)] + ["a", "b"]
    whole = sorted((key, kept.put(key)) for key in keys for _ in range(2))
    client = kept.client
    plain = client.get_paginator("list_object_versions").paginate(
        Bucket=kept.name, PaginationConfig={"PageSize": 5}
    )
    lossy = {(one["Key"], one["VersionId"]) for page in plain for one in page["Versions"]}

    assert len(lossy) < len(whole)
    assert whole == sorted(names_of(kept.bucket(page=5)))


def test_uploads_are_listed(kept):
    """Each upload that was begun is a row with its very key, over as many pages as it takes."""
    begun = sorted(
        (key, kept.client.create_multipart_upload(Bucket=kept.name, Key=key)["UploadId"])
        for key in ("u/1", "u/1", "u.1", "é +%41", "v")
    )
    found = [row for batch in kept.bucket().uploads() for row in batch.to_pylist()]
    below = [row["key"] for batch in kept.bucket().uploads("u/") for row in batch.to_pylist()]

    assert begun == sorted((row["key"], row["upload_id"]) for row in found)
    assert ["u/1", "u/1"] == below
    assert {True} == {row["initiated"] <= datetime.now(UTC) for row in found}


def test_uploads_go_on_over_pages(kept, proxy):
    """A page of uploads that leads to another is followed, and one that leads nowhere raises."""
    bucket = kept.bucket(endpoint=proxy.endpoint)
    proxy.inject(lambda request: "key-marker=a" in request.query, canned_uploads("b"))
    proxy.inject(is_upload_listing, canned_uploads("a", more=True))

    assert ["a", "b"] == [key for batch in bucket.uploads() for key in batch["key"].to_pylist()]

    proxy.clear()
    proxy.inject(is_upload_listing, canned_uploads("a", more=True))
    with pytest.raises(StoreError, match="but not where"):
        list(bucket.uploads())


def test_uploads_that_xml_cannot_hold_are_asked_for_encoded(kept, proxy):
    """A key with a control character breaks the page; encoded, it comes as it is."""
    bucket = kept.bucket(endpoint=proxy.endpoint)
    proxy.inject(lambda request: "encoding-type" in request.query, canned_uploads("a%01+b%2B", encoded=True))
    proxy.inject(is_upload_listing, canned_uploads("a\x01 b+"))

    assert ["a\x01 b+"] == [key for batch in bucket.uploads() for key in batch["key"].to_pylist()]


def is_upload_listing(request) -> bool:
    """Recognise a page of uploads."""
    return request.method == "GET" and "uploads" in request.query


def canned_uploads(*keys: str, more: bool = False, encoded: bool = False):
    """Answer with a page of uploads; `more` says that another follows behind its last key."""
    rows = "".join(
        f"<Upload><Key>{key}</Key><UploadId>{number}</UploadId>"
        "<Initiated>2020-01-01T00:00:00.000Z</Initiated></Upload>"
        for number, key in enumerate(keys)
    )
    said = f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>"
    said += f"<NextKeyMarker>{keys[-1]}</NextKeyMarker>" if more else ""
    said += "<EncodingType>url</EncodingType>" if encoded else ""
    body = f"<ListMultipartUploadsResult>{said}{rows}</ListMultipartUploadsResult>"
    return lambda request, forward: Response(200, {}, body.encode())


def test_tags_are_those_of_the_version(kept):
    """Each version has its own tags; one that is gone has none at all, not no tags."""
    first = kept.put("k", Tagging=f"a=1&{quote('b c')}={quote('é=&')}")
    second = kept.put("k")
    bucket = kept.bucket()

    assert {"a": "1", "b c": "é=&"} == bucket.tags("k", first)
    assert {} == bucket.tags("k", second)
    assert (None, None) == (bucket.tags("k", "00000000"), bucket.tags("away", "null"))
    assert (LockState(), None) == (bucket.lock("k", first), bucket.lock("away", "null"))


@pytest.fixture
def locking(s3_server: S3Server) -> Iterator[Place]:
    """Give a fresh bucket that can lock objects."""
    client = s3_server.client()
    with fresh_bucket(s3_server) as name:
        client.delete_bucket(Bucket=name)
        client.create_bucket(Bucket=name, ObjectLockEnabledForBucket=True)
        yield Place(s3_server, name)


def test_locks_are_those_of_the_version(locking):
    """Retention, legal hold and the bucket's default are seen on the versions that have them."""
    ids = [
        locking.put("k", ObjectLockMode="GOVERNANCE", ObjectLockRetainUntilDate=FAR),
        locking.put("k", ObjectLockLegalHoldStatus="ON"),
        locking.put("k"),
    ]
    bucket = locking.bucket()

    assert bucket.object_lock_enabled()
    assert [LockState(retain_until=FAR), LockState(legal_hold=True), LockState()] == [
        bucket.lock("k", version) for version in ids
    ]

    default = {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 3}}
    locking.client.put_object_lock_configuration(
        Bucket=locking.name, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": default}
    )
    later = bucket.lock("k", locking.put("k"))

    assert later is not None
    assert later.retain_until is not None


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"x-amz-replication-status": "PENDING"}, LockState(replication_status="PENDING")),
        ({"x-amz-restore": 'ongoing-request="true"'}, LockState(restoring=True)),
        ({"x-amz-restore": 'ongoing-request="false", expiry-date="x"'}, LockState()),
    ],
)
def test_replication_and_restores_are_seen(kept, proxy, headers, expected):
    """A version that is on its way to another bucket, or back from the archive, says so."""
    proxy.inject(lambda request: request.method == "HEAD", lambda *_: Response(200, headers))

    assert expected == kept.bucket(endpoint=proxy.endpoint).lock("k", "v")


def test_a_bucket_without_settings_says_so(place):
    """No lifecycle, no lock and no replication are answers, not errors."""
    bucket = place.bucket()

    assert (None, False, False) == (
        bucket.lifecycle(),
        bucket.object_lock_enabled(),
        bucket.replicated(),
    )


def test_the_lifecycle_configuration_is_given_as_boto3_reads_it(kept, proxy):
    """What the bucket has is given whole, without what belongs to the answer alone."""
    body = (
        "<LifecycleConfiguration><Rule><ID>r</ID><Status>Enabled</Status><Filter><Prefix>p/</Prefix></Filter>"
        "<Expiration><Days>3</Days></Expiration></Rule></LifecycleConfiguration>"
    )
    proxy.inject(lambda request: "lifecycle" in request.query, lambda *_: Response(200, {}, body.encode()))
    rule = {"ID": "r", "Status": "Enabled", "Filter": {"Prefix": "p/"}, "Expiration": {"Days": 3}}

    assert {"Rules": [rule]} == kept.bucket(endpoint=proxy.endpoint).lifecycle()


@pytest.mark.parametrize("ask", ["versioning", "lifecycle", "object_lock_enabled", "replicated"])
def test_settings_that_are_denied_raise(kept, proxy, ask):
    """A bucket that does not say how it is set up is not taken for one without settings."""
    proxy.inject(lambda request: True, access_denied)

    with pytest.raises(StoreError, match="AccessDenied"):
        getattr(kept.bucket(endpoint=proxy.endpoint), ask)()


@pytest.mark.parametrize("ask", ["tags", "lock"])
def test_a_version_that_is_denied_raises(kept, proxy, ask):
    """Only what is gone has no tags; what may not be read could have any."""
    proxy.inject(lambda request: True, access_denied)

    with pytest.raises(StoreError):
        getattr(kept.bucket(endpoint=proxy.endpoint), ask)("k", "null")


@pytest.mark.parametrize("ask", ["versions", "uploads"])
def test_a_missing_bucket_is_named(s3_server, ask):
    """A bucket that is not there is no empty one."""
    bucket = VersionedBucket(StoreSpec("s3://no-such-bucket", s3_server.options), FAST)

    with pytest.raises(NotFound, match="no bucket"):
        list(getattr(bucket, ask)())
    with pytest.raises(NotFound, match="no bucket"):
        bucket.versioning()


@pytest.mark.parametrize("ask", ["versions", "uploads"])
def test_wrong_credentials_raise(kept, monkeypatch, ask):
    """A server that does not believe us has not said that there is nothing."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")

    with pytest.raises(StoreError, match="SignatureDoesNotMatch"):
        list(getattr(kept.bucket(), ask)())


@pytest.mark.parametrize("url", ["s3://bucket/prefix", "file:///tmp"])
def test_what_is_no_bucket_is_refused(url):
    """Rules are about whole keys of a bucket, so there is no prefix to open."""
    with pytest.raises(AddressError, match="is not a bucket"):
        VersionedBucket(StoreSpec(url))


def test_a_process_opens_a_bucket_once(kept):
    """Tasks of one process share the connection."""
    spec = kept.bucket().spec

    assert open_bucket(spec) is open_bucket(StoreSpec(spec.url, dict(spec.options)))


def canned_versions(*keys: str, more: str = "", version: str = "", without: bytes = b""):
    """Answer with a page of versions, or with what is left of it; the next page begins behind `more`."""
    rows = "".join(
        f"<Version><Key>{key}</Key><VersionId>v{number}</VersionId>"
        f"<IsLatest>{'false' if number else 'true'}</IsLatest>"
        "<Size>1</Size><LastModified>2020-01-01T00:00:00.000Z</LastModified></Version>"
        for key, group in groupby(keys)
        for number, _ in enumerate(group)
    )
    said = f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>"
    said += f"<NextKeyMarker>{more}</NextKeyMarker>" if more else ""
    said += f"<NextVersionIdMarker>{version}</NextVersionIdMarker>" if version else ""
    body = f"<ListVersionsResult>{said}{rows}</ListVersionsResult>".encode()
    return lambda request, forward: Response(200, {}, body.replace(without, b"") if without else body)


def is_listing(request) -> bool:
    """Recognise a page of versions."""
    return request.method == "GET" and "versions" in request.query


def is_later_page(request) -> bool:
    """Recognise every such page but the first."""
    return is_listing(request) and "key-marker" in request.query


@pytest.fixture
def behind_proxy(kept: Place, proxy: FlakyProxy) -> VersionedBucket:
    """Open a bucket, as one in key order, through a proxy that can lie."""
    return kept.bucket(endpoint=proxy.endpoint, ordered="yes")


@pytest.mark.parametrize("trouble", [dropped, truncated, slow_down])
def test_a_page_that_fails_once_is_asked_for_again(behind_proxy, kept, proxy, trouble):
    """A passing trouble on the line is not seen by whoever lists."""
    version = kept.put("a")
    proxy.inject(is_listing, trouble, times=2)

    assert [("a", version)] == names_of(behind_proxy)


@pytest.mark.parametrize("trouble", [dropped, truncated, slow_down, access_denied])
def test_a_listing_that_fails_on_its_second_page_raises(behind_proxy, proxy, trouble):
    """The first page is not the whole: if the next cannot be had, the listing raises."""
    proxy.inject(is_later_page, trouble)
    proxy.inject(is_listing, canned_versions("a", "b", more="b"))

    with pytest.raises(StoreError):
        names_of(behind_proxy)


def test_versions_of_a_key_join_over_pages(behind_proxy, proxy):
    """A key that ends a page goes on in the next; the place in it is asked for by key and version."""
    proxy.inject(is_later_page, canned_versions("b", "b", "c"))
    proxy.inject(is_listing, canned_versions("a", "b", more="b", version="v0"))
    batches = [batch.to_pydict() for batch in behind_proxy.versions()]

    assert [["a"], ["b", "b", "b"], ["c"]] == [batch["key"] for batch in batches]
    assert [[0], [0, 1, 2], [0]] == [batch["position"] for batch in batches]
    assert "version-id-marker=v0" in proxy.requests[-1].query


@pytest.mark.parametrize(
    "answer",
    [
        canned_versions("ab", "aa"),
        canned_versions("a", more="a"),
        lambda *_: Response(200, {}, b"<html/>"),
        lambda *_: Response(200, {}, b"<ListVersionsResult></ListVersionsResult>"),
        canned_versions("elsewhere"),
        canned_versions("a", without=b"<Size>1</Size>"),
        canned_versions("a", without=b"true</IsLatest>"),
        canned_versions("a", more="x", without=b"<NextKeyMarker>x</NextKeyMarker>"),
    ],
    ids=["disorder", "loop", "html", "unsaid", "elsewhere", "sizeless", "broken", "nowhere"],
)
def test_a_listing_that_makes_no_sense_raises(behind_proxy, proxy, answer):
    """A server that lists out of order, in circles, or something else is not believed."""
    proxy.inject(is_listing, answer)

    with pytest.raises((StoreError, GarbledName)):
        names_of(behind_proxy, "a")


def test_a_key_before_the_start_raises(behind_proxy, proxy):
    """A server that ignores where to begin would give keys to two ranges; the start itself is left out."""
    proxy.inject(is_listing, canned_versions("a", "b", "b", "c"))

    assert ["b", "b", "c"] == [key for key, _ in names_of(behind_proxy, after="a")]
    with pytest.raises(StoreError, match="ordered=no"):
        names_of(behind_proxy, after="b")


def test_a_key_that_cannot_be_made_whole_raises(kept, proxy):
    """Where versions may be lost and the key cannot be listed by itself, nobody pretends to know it."""
    proxy.inject(is_later_page, canned_versions("a c"))
    proxy.inject(is_listing, canned_versions("a", "a b", more="a b"))

    with pytest.raises(StoreError, match="loses versions of 'a'"):
        names_of(kept.bucket(endpoint=proxy.endpoint))
