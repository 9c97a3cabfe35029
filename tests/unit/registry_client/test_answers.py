"""What registries say: challenges, errors, waits and manifests, taken apart."""

from __future__ import annotations

import json

import httpx
import pytest

from ebbtide.core.errors import MetadataError, StoreError, Unsupported
from ebbtide.storage.rate_limit import Backoff
from ebbtide.targets.oci.client.authorization import Challenge, parse_challenges
from ebbtide.targets.oci.client.credentials import Credentials
from ebbtide.targets.oci.client.http import Connection, Request, error_codes, retry_after
from ebbtide.targets.oci.client.manifest import (
    DOCKER_LIST,
    DOCKER_MANIFEST,
    OCI_INDEX,
    OCI_MANIFEST,
    read_content,
)
from ebbtide.targets.oci.client.names import digest_of
from ebbtide.targets.oci.client.registry import Manifest, RegistryOptions

BLOB = {"mediaType": "x/y", "digest": digest_of(b"blob"), "size": 4}


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ('Basic realm="x"', [Challenge("basic", "x")]),
        ("Basic", [Challenge("basic")]),
        ('bearer realm="https://t/x?a=b,c",service=s', [Challenge("bearer", "https://t/x?a=b,c", "s")]),
        (
            'Bearer realm="https://t",scope="repository:a:pull,push repository:b:pull", Basic realm="r"',
            [
                Challenge("bearer", "https://t", "", "repository:a:pull,push repository:b:pull"),
                Challenge("basic", "r"),
            ],
        ),
        (r'Bearer realm="a\"b"', [Challenge("bearer", 'a"b')]),
        ("", []),
        ("=;=", []),
    ],
)
def test_challenges(header: str, expected: list[Challenge]):
    """Challenges are read with commas inside quotes, several in a header, and any case."""
    assert expected == parse_challenges([header])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"errors": [{"code": "DENIED"}, {"code": "UNSUPPORTED"}]}, ("DENIED", "UNSUPPORTED")),
        ({"errors": [{"code": "password=hush"}]}, ()),
        ({"errors": [{}]}, ()),
        ({"errors": None}, ()),
        ([], ()),
    ],
)
def test_codes(body: object, expected: tuple[str, ...]):
    """Of an error only codes of the usual form are taken over."""
    assert expected == error_codes(json.dumps(body).encode())


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, 0.0),
        ({"retry-after": "12"}, 12.0),
        ({"retry-after": "-1"}, 0.0),
        ({"retry-after": "soon"}, 0.0),
        ({"retry-after": "Thu, 01 Jan 2026 00:01:00 GMT"}, 0.0),
        ({"retry-after": "Thu, 01 Jan 2026 00:01:00 GMT", "date": "Thu, 01 Jan 2026 00:00:00 GMT"}, 60.0),
        ({"retry-after": "Thu, 01 Jan 2026 00:00:00 GMT", "date": "Thu, 01 Jan 2026 00:01:00 GMT"}, 0.0),
    ],
)
def test_wanted_waits(headers: dict[str, str], expected: float):
    """A wait is read in seconds, or as a time on the server's own clock; what is neither asks for none."""
    assert expected == retry_after(httpx.Headers(headers))


def manifest(media_type: str, **document: object) -> Manifest:
    """Make a manifest of a kind."""
    body = json.dumps({"schemaVersion": 2, **document}).encode()
    return Manifest(digest_of(body), media_type, body)


@pytest.mark.parametrize("kind", [OCI_MANIFEST, DOCKER_MANIFEST])
def test_an_image(kind: str):
    """An image points at its configuration and layers, and perhaps at a subject."""
    layer = {**BLOB, "digest": digest_of(b"layer")}
    found = read_content(manifest(kind, mediaType=kind, config=BLOB, layers=[layer], subject=BLOB))

    assert [digest_of(b"blob"), digest_of(b"layer")] == [blob.digest for blob in found.blobs]
    assert (digest_of(b"blob"), (), "x/y") == (found.subject, found.children, found.artifact_type)


@pytest.mark.parametrize("kind", [OCI_INDEX, DOCKER_LIST])
def test_an_index(kind: str):
    """An index points at its children, and need not say itself what it is."""
    found = read_content(manifest(kind, manifests=[BLOB]))

    assert ([digest_of(b"blob")], ()) == ([child.digest for child in found.children], found.blobs)


@pytest.mark.parametrize(
    "damaged",
    [
        manifest(OCI_MANIFEST, layers=[]),
        manifest(OCI_MANIFEST, config=BLOB),
        manifest(OCI_MANIFEST, config=BLOB, layers=None),
        manifest(OCI_MANIFEST, config=BLOB, layers="x"),
        manifest(OCI_MANIFEST, config=BLOB, layers=[{**BLOB, "digest": "md5:0"}]),
        manifest(OCI_MANIFEST, config=BLOB, layers=[{**BLOB, "size": True}]),
        manifest(OCI_MANIFEST, config=BLOB, layers=[{**BLOB, "annotations": []}]),
        manifest(OCI_MANIFEST, config=BLOB, layers=[], subject={}),
        manifest(OCI_MANIFEST, config=BLOB, layers=[], manifests=[BLOB]),
        manifest(OCI_MANIFEST, config=BLOB, layers=[], mediaType=OCI_INDEX),
        manifest(OCI_MANIFEST, config=BLOB, layers=[], schemaVersion=1),
        manifest(OCI_INDEX),
        manifest(OCI_INDEX, manifests=[BLOB], layers=[]),
        Manifest(digest_of(b""), OCI_INDEX, b""),
        Manifest(digest_of(b"["), OCI_INDEX, b"[" * 100_000),
    ],
)
def test_manifests_that_are_none(damaged: Manifest):
    """A manifest that is cut, contradicts itself or could be read in two ways is an error."""
    with pytest.raises(MetadataError):
        read_content(damaged)


def test_a_manifest_of_an_unknown_kind():
    """A kind of manifest that is not known is told apart from a damaged one."""
    with pytest.raises(Unsupported):
        read_content(manifest("application/vnd.oci.artifact.manifest.v1+json", blobs=[]))


def secure_wire(answer: httpx.Response) -> tuple[Connection, list[httpx.Request]]:
    """Make a line to an https registry that always answers this; a real one would need a certificate."""
    asked: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(answer.status_code, headers=answer.headers, stream=httpx.ByteStream(b"{}"))

    known = Credentials("me", "hush")
    wire = Connection("https://r.example", RegistryOptions(), known, Backoff(tries=1), proxies=False)
    wire._http = httpx.Client(transport=httpx.MockTransport(handle))
    return wire, asked


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(307, headers={"location": "http://r.example/v2/"}),
        httpx.Response(401, headers={"www-authenticate": 'Bearer realm="http://r.example/token"'}),
        httpx.Response(401, headers={"www-authenticate": 'Bearer realm="ftp://r.example/token"'}),
    ],
)
def test_no_step_down_to_plain_http(answer: httpx.Response):
    """An https registry that leads to plain http, for data or for a token, is not followed there."""
    wire, asked = secure_wire(answer)
    with pytest.raises(StoreError, match=r"plain http|unsafe"):
        wire.send(Request("look", "GET", "/v2/"))

    assert ["https://r.example/v2/"] == [str(request.url) for request in asked]
