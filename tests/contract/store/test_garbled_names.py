"""Names that a listing may garble: on a real server, and behind a proxy that makes it worse."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tests.contract.store.conftest import is_listing
from tests.contract.store.test_s3_versions import FAST, ODD, Place, kept, names_of, place  # noqa: F401
from tests.services.flaky_proxy import Response

from ebbtide.core.errors import GarbledName
from ebbtide.storage.s3 import S3Store
from ebbtide.storage.store import StoreSpec

KEYS = [*ODD, "x\x01y", "line\nfeed", "carriage\rreturn", "fd\ufffd", "a%b", "\x7f", "p q/r+s/t%20u"]
GARBLED = "x\ufffdy"


def is_versions(request) -> bool:
    """Recognise a page of versions."""
    return request.method == "GET" and "versions" in request.query


def is_uploads(request) -> bool:
    """Recognise a page of uploads."""
    return request.method == "GET" and "uploads" in request.query


def altered(pattern: bytes, by: bytes):
    """Let the server answer, and replace something in what it says."""

    def answer(_request, forward) -> Response:
        page = forward()
        return replace(page, body=re.sub(pattern, by, page.body))

    return answer


def store_of(place: Place, endpoint: str = "", *, ordered: str = "no") -> S3Store:  # noqa: F811
    """Open the bucket as a store."""
    options = {**place.server.options, "endpoint": endpoint or place.server.endpoint, "ordered": ordered}
    return S3Store(StoreSpec(f"s3://{place.name}", options), FAST)


def keys_of(store: S3Store, prefix: str = "") -> list[str]:
    """List keys alone."""
    return [key for batch in store.list(prefix) for key in batch["key"].to_pylist()]


def test_current_objects_keep_their_names(place):  # noqa: F811
    """Control characters, percent and plus signs, blanks, newlines and emoji come as they were written."""
    for key in KEYS:
        place.put(key)

    assert sorted(KEYS) == keys_of(store_of(place))
    assert "p q/" in list(store_of(place).children(""))
    assert ["p q/r+s/t%20u"] == keys_of(store_of(place), "p q/r+s/")


def test_a_version_whose_name_the_server_garbled_stops_the_listing(kept):  # noqa: F811
    """SeaweedFS encodes no versions: a control character comes as U+FFFD, and nobody takes that for a key."""
    kept.put("fine/a")
    kept.put("bad/x\x01y")

    assert ["fine/a"] == [key for key, _ in names_of(kept.bucket(), "fine/")]
    for page in (1, 1000):
        with pytest.raises(GarbledName, match=f"s3://{kept.name}/.*bad/{GARBLED}"):
            names_of(kept.bucket(page=page))


def test_an_upload_whose_name_the_server_garbled_stops_the_listing(kept):  # noqa: F811
    """So does an upload, though the server claims that its name is encoded."""
    kept.client.create_multipart_upload(Bucket=kept.name, Key="x\x01y")

    with pytest.raises(GarbledName, match=f"s3://{kept.name}/"):
        list(kept.bucket().uploads())


@pytest.mark.parametrize(
    ("pattern", "by"),
    [
        (rb"<EncodingType>url</EncodingType>|%01", "\ufffd".encode()),
        (rb"x%01y", GARBLED.encode()),
        (rb"x%01y", b"x%y"),
        (rb"x%01y", b"x%FFy"),
        (rb"x%01y", b"x\x01y"),
        (rb"x%01y", b"x\xffy"),
    ],
    ids=["no encoding", "replaced", "half an escape", "no UTF-8", "no XML", "no UTF-8 in XML"],
)
def test_a_page_of_objects_that_is_garbled_on_its_way_stops_the_listing(place, proxy, pattern, by):  # noqa: F811
    """Whatever becomes of a name between the server and here, it is its own name or none."""
    place.put("x\x01y")
    place.put("z\ufffd")
    proxy.inject(is_listing, altered(pattern, by))
    with pytest.raises(GarbledName, match=f"s3://{place.name}/"):
        keys_of(store_of(place, proxy.endpoint))


def test_folders_and_tokens_are_read_as_carefully(place, proxy):  # noqa: F811
    """A garbled folder hides its objects, and a garbled token goes on at another place."""
    place.put("x\x01y/a")
    proxy.inject(is_listing, altered(rb"x%01y/", f"{GARBLED}/".encode()))
    with pytest.raises(GarbledName):
        list(store_of(place, proxy.endpoint).children(""))
    proxy.clear()
    token = f"<NextContinuationToken>{GARBLED}</NextContinuationToken></ListBucketResult>"
    proxy.inject(is_listing, altered(rb"</ListBucketResult>", token.encode()))
    with pytest.raises(GarbledName):
        keys_of(store_of(place, proxy.endpoint))


def test_a_server_that_encodes_versions_is_decoded_once(kept, proxy):  # noqa: F811
    """Keys, folders and the key to go on from are decoded, and a literal %2F stays one."""
    row = "<Version><Key>a%252Fb%01+c</Key><VersionId>1</VersionId><IsLatest>true</IsLatest><Size>1</Size>"
    row += "<LastModified>2020-01-01T00:00:00.000Z</LastModified></Version>"
    said = "<EncodingType>url</EncodingType>"
    first = f"<IsTruncated>true</IsTruncated><NextKeyMarker>a%252Fb%01+c</NextKeyMarker>{row}"
    last = "<IsTruncated>false</IsTruncated>"

    def page(request, _forward) -> Response:
        body = last if "key-marker=a%252Fb%01%20c" in request.query else first
        return Response(200, {}, f"<ListVersionsResult>{said}{body}</ListVersionsResult>".encode())

    proxy.inject(is_versions, page)

    assert [("a%2Fb\x01 c", "1")] == names_of(kept.bucket(endpoint=proxy.endpoint, ordered="yes"))


def test_uploads_of_an_encoding_and_of_a_lying_server_keep_their_names(kept, proxy):  # noqa: F811
    """What the server says of its encoding is believed only if an answer without it is another."""
    keys = ["a+b", "a%2Fb", "c d", "é", "plain"]
    for key in keys:
        kept.client.create_multipart_upload(Bucket=kept.name, Key=key)
    found = [key for batch in kept.bucket().uploads() for key in batch["key"].to_pylist()]

    assert sorted(keys) == sorted(found)
