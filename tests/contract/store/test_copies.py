"""What is kept when an object gets another key on S3, and what is not moved because it cannot be kept."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.contract.store.test_contract import keys_of
from tests.services.flaky_proxy import FlakyProxy, Request, What, access_denied, error

from ebbtide.core.decision import Outcome
from ebbtide.storage.s3 import S3Store
from ebbtide.storage.s3_copy import ObjectMover, Sizes
from ebbtide.storage.store import DeleteResult, MoveRequest

IN_ONE = Sizes()
IN_PARTS = Sizes(one_copy=1024, server_part=5 * 1024**2)
BODY = os.urandom(4096)
BESIDE: dict[str, Any] = {
    "CacheControl": "no-store",
    "ContentDisposition": "inline",
    "ContentEncoding": "x",
    "ContentLanguage": "de",
    "ContentType": "text/x",
    "Expires": datetime(2040, 1, 1, tzinfo=UTC),
    "Metadata": {"who": "me", "odd": "=?UTF-8?B?w6Q=?="},
}
KMS = {
    "x-amz-server-side-encryption": "aws:kms",
    "x-amz-server-side-encryption-aws-kms-key-id": "arn:aws:kms:eu-central-1:1:key/k",
    "x-amz-server-side-encryption-bucket-key-enabled": "true",
}
RESTORED = {"x-amz-restore": 'ongoing-request="false", expiry-date="Fri, 01 Jan 2100 00:00:00 GMT"'}
GLACIER = {"x-amz-storage-class": "GLACIER"}


def put(store: S3Store, key: str, **beside: Any) -> None:
    """Write an object past Ebbtide."""
    objects = store._mover.objects
    objects.client.put_object(Bucket=objects.bucket, Key=objects.root + key, Body=BODY, **beside)


def head(store: S3Store, key: str) -> dict[str, Any]:
    """Ask the server what it has beside the bytes."""
    objects = store._mover.objects
    named: Any = {"Bucket": objects.bucket, "Key": objects.root + key}
    found = objects.client.head_object(**named)
    tags = objects.client.get_object_tagging(**named)["TagSet"]
    return {**{name: found.get(name) for name in (*BESIDE, "StorageClass")}, "tags": tags}


def move(store: S3Store, source: str, target: str, sizes: Sizes = IN_ONE) -> DeleteResult:
    """Move one object."""
    (result,) = ObjectMover(store._mover.objects, sizes).move([MoveRequest(source, target)])
    return result


def with_headers(headers: dict[str, str]) -> What:
    """Let the server answer, and say more than it does, if it has the object."""

    def answer(_request: Request, forward: Any) -> Any:
        found = forward()
        return replace(found, headers={**found.headers, **headers}) if found.status == 200 else found

    return answer


def is_head(request: Request) -> bool:
    """Recognise who asks what there is beside the bytes."""
    return request.method == "HEAD"


def is_read(request: Request) -> bool:
    """Recognise who reads bytes."""
    return request.method == "GET" and "range" in lower(request)


def is_copy(request: Request) -> bool:
    """Recognise a copy, whole or of a part."""
    return request.method == "PUT" and "x-amz-copy-source" in lower(request)


def is_beginning(request: Request) -> bool:
    """Recognise what says how a copy is to be kept: the copy itself, or the beginning of one in parts."""
    return (is_copy(request) and "uploadId" not in request.query) or (
        request.method == "POST" and "uploads" in request.query
    )


def names_class(request: Request) -> bool:
    """Recognise who asks for a storage class."""
    return is_beginning(request) and "x-amz-storage-class" in lower(request)


def lower(request: Request) -> dict[str, str]:
    """Give the headers of a request by their names in small letters."""
    return {name.lower(): value for name, value in request.headers.items()}


def asked(proxy: FlakyProxy) -> dict[str, str]:
    """Give the headers of the one request that began a copy."""
    (request,) = [one for one in proxy.requests if is_beginning(one)]
    return lower(request)


@pytest.mark.parametrize("sizes", [IN_ONE, IN_PARTS], ids=["in one", "in parts"])
@pytest.mark.parametrize("storage_class", ["STANDARD_IA", "GLACIER"])
def test_what_is_beside_the_bytes_comes_along_there_and_back(s3_store, storage_class, sizes):
    """Headers, metadata, tags and class are kept by both ways; this server reads all classes at once."""
    put(s3_store, "a", Tagging="k=v", StorageClass=storage_class, **BESIDE)
    before = head(s3_store, "a")
    there = move(s3_store, "a", "b", sizes)
    aside = head(s3_store, "b")
    back = move(s3_store, "b", "a", sizes)

    assert {**BESIDE, "StorageClass": storage_class, "tags": [{"Key": "k", "Value": "v"}]} == before
    assert (Outcome.DELETED, Outcome.DELETED) == (there.outcome, back.outcome), (there, back)
    assert before == aside == head(s3_store, "a")
    assert (["a"], BODY) == (keys_of(s3_store), s3_store.read("a"))


@pytest.mark.parametrize("sizes", [IN_ONE, IN_PARTS], ids=["in one", "in parts"])
def test_class_key_and_redirection_are_asked_for(s3_store, proxy, sizes):
    """A copy is asked for as the original is kept; a server that refuses that has changed nothing."""
    put(s3_store, "a")
    said = {**KMS, "x-amz-storage-class": "ONEZONE_IA", "x-amz-website-redirect-location": "/x"}
    proxy.inject(is_head, with_headers(said))
    proxy.inject(is_beginning, access_denied)
    result = move(s3_store, "a", "b", sizes)

    assert Outcome.DENIED is result.outcome
    assert said == {name: value for name, value in asked(proxy).items() if name in said}
    assert (["a"], BODY) == (keys_of(s3_store), s3_store.read("a"))


@pytest.mark.parametrize("said", [{}, {"x-amz-server-side-encryption": "AES256"}])
def test_what_is_kept_in_the_usual_way_is_not_asked_for(s3_store, proxy, said):
    """Of a standard object, under the server's own key, the copy is as the bucket's settings say."""
    put(s3_store, "a")
    proxy.inject(is_head, with_headers(said))
    result = move(s3_store, "a", "b")

    assert Outcome.DELETED is result.outcome
    assert [] == [name for name in asked(proxy) if "encryption" in name or "class" in name]


@pytest.mark.parametrize("storage_class", ["GLACIER", "DEEP_ARCHIVE", "INTELLIGENT_TIERING", "odd tier"])
def test_an_archived_object_is_not_even_copied(s3_store, proxy, storage_class):
    """What the store must restore first stays, and the reason says what to do; no copy is tried."""
    put(s3_store, "a")
    proxy.inject(is_head, with_headers({"x-amz-storage-class": storage_class}))
    proxy.inject(is_read, error(403, "InvalidObjectState"))
    result = move(s3_store, "a", "b")

    assert Outcome.FAILED is result.outcome
    assert f"archived (class {storage_class})" in result.reason
    assert "ask the store to restore it" in result.reason
    assert [] == [one for one in proxy.requests if is_beginning(one)]
    assert ["a"] == keys_of(s3_store)


@pytest.mark.parametrize("sizes", [IN_ONE, IN_PARTS], ids=["in one", "in parts"])
@pytest.mark.parametrize("code", ["InvalidObjectState", "ObjectNotInActiveTierError"])
def test_a_copy_that_is_refused_because_of_an_archive_says_so(s3_store, proxy, code, sizes):
    """Archived between look and copy, the object stays for the same reason, and no upload is left open."""
    put(s3_store, "a")
    proxy.inject(is_copy, error(403, code))
    result = move(s3_store, "a", "b", sizes)
    objects = s3_store._mover.objects
    uploads = objects.client.list_multipart_uploads(Bucket=objects.bucket, Prefix=objects.root)

    assert (Outcome.FAILED, True) == (result.outcome, "ask the store to restore it" in result.reason)
    assert (["a"], []) == (keys_of(s3_store), uploads.get("Uploads", []))


def test_an_archived_object_that_was_restored_is_moved(s3_store, proxy):
    """While the store has it readable it is copied in its class, and its etag proves the copy unread."""
    put(s3_store, "a", StorageClass="GLACIER")
    proxy.inject(is_head, with_headers(RESTORED))
    result = move(s3_store, "a", "b")

    assert Outcome.DELETED is result.outcome, result
    assert "GLACIER" == asked(proxy)["x-amz-storage-class"]
    assert (["b"], BODY) == (keys_of(s3_store), s3_store.read("b"))


@pytest.mark.parametrize("way", ["in parts", "by a key of its own"])
def test_a_copy_that_could_not_be_proven_is_not_made(s3_store, proxy, way):
    """A copy of what is archived is archived; if its etag says nothing of its bytes, all stays as it is."""
    put(s3_store, "a")
    proxy.inject(is_head, with_headers({**GLACIER, **RESTORED, **(KMS if way != "in parts" else {})}))
    result = move(s3_store, "a", "b", IN_PARTS if way == "in parts" else IN_ONE)

    assert (Outcome.FAILED, True) == (result.outcome, "a copy of it could not be verified" in result.reason)
    assert [] == [one for one in proxy.requests if is_beginning(one)]
    assert ["a"] == keys_of(s3_store)


@pytest.mark.parametrize("sizes", [IN_ONE, IN_PARTS], ids=["in one", "in parts"])
def test_a_tier_that_nobody_can_write_to_is_given_up(s3_store, proxy, sizes):
    """Where the class is one that the store alone gives, the copy has the usual class and all the bytes."""
    put(s3_store, "a")
    proxy.inject(is_head, with_headers({"x-amz-storage-class": "odd tier"}))
    proxy.inject(names_class, error(400, "InvalidStorageClass"))
    result = move(s3_store, "a", "b", sizes)

    assert Outcome.DELETED is result.outcome, result
    assert (["b"], BODY) == (keys_of(s3_store), s3_store.read("b"))
