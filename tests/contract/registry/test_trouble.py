"""A registry that is slow, refuses, lies or hangs up: what the client makes of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.contract.registry.conftest import FAST, connected
from tests.services.flaky_proxy import FlakyProxy, Request, Response, dropped, flaky_proxy, truncated
from tests.services.image_kit import push_image, push_signature

from ebbtide.core.errors import (
    Denied,
    EbbtideError,
    MetadataError,
    NotFound,
    SlowDown,
    StoreError,
    Unsupported,
)
from ebbtide.targets.oci.client.distribution import RegistryClient
from ebbtide.targets.oci.client.manifest import OCI_INDEX, OCI_MANIFEST
from ebbtide.targets.oci.client.names import digest_of
from ebbtide.targets.oci.client.registry import Ability
from ebbtide.targets.s3.seaweedfs import reserved_ports


def answers(status: int, body: object = None, **headers: str):
    """Answer this in place of the registry."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _request, _forward: Response(status, named, data)


def asks(method: str, part: str) -> Callable[[Request], bool]:
    """Recognise requests of a method whose path has a part."""
    return lambda request: request.method == method and part in request.path


def counted(proxy: FlakyProxy, method: str, part: str) -> int:
    """Count the requests that arrived."""
    return sum(asks(method, part)(request) for request in proxy.requests)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_busy_registry_is_asked_again(client: RegistryClient, proxy: FlakyProxy, repository, status: int):
    """A listing, a read and a delete get through a registry that is busy twice each."""
    pushed = push_image(client, repository, ["v1"])
    for method, part in (("GET", "/tags/"), ("GET", "/manifests/v1"), ("DELETE", "/manifests/")):
        proxy.inject(asks(method, part), answers(status, {"errors": []}), times=2)

    assert ["v1"] == list(client.tags(repository))
    assert pushed.manifest == client.manifest(repository, "v1")
    assert client.delete_manifest(repository, pushed.digest)


@pytest.mark.parametrize(("status", "error"), [(429, SlowDown), (503, SlowDown), (500, StoreError)])
def test_a_registry_that_stays_busy(client: RegistryClient, proxy: FlakyProxy, repository, status, error):
    """After the last try a busy registry is an error, and was asked no more often than that."""
    push_image(client, repository, ["v1"])
    proxy.inject(asks("GET", "/tags/"), answers(status))
    with pytest.raises(error, match=str(status)):
        list(client.tags(repository))

    assert FAST.tries == counted(proxy, "GET", "/tags/")


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"Retry_After": "7"}, 7.0),
        ({"Retry_After": "Thu, 01 Jan 2026 00:00:09 GMT", "Date": "Thu, 01 Jan 2026 00:00:00 GMT"}, 9.0),
    ],
)
def test_retry_after_is_obeyed(proxy: FlakyProxy, client: RegistryClient, repository, headers, wait):
    """A registry that names a wait, in seconds or as a time, is left alone for so long."""
    push_image(client, repository, ["v1"])
    proxy.inject(asks("GET", "/tags/"), answers(429, {}, **headers), times=1)
    slept: list[float] = []
    patient = replace(FAST, sleep=slept.append, draw=lambda low, _high: low)
    with connected(proxy.endpoint, backoff=patient) as waiting:
        found = list(waiting.tags(repository))

    assert ["v1"] == found
    assert [wait, 0.0] == slept


def test_a_wait_that_is_too_long(client: RegistryClient, proxy: FlakyProxy):
    """A registry that wants an hour without requests gets it, and the run says so and ends."""
    proxy.inject(asks("GET", "/_catalog"), answers(429, {}, Retry_After="3600"))
    with pytest.raises(SlowDown, match="3600 seconds"):
        list(client.repositories())

    assert 1 == counted(proxy, "GET", "/_catalog")


def test_broken_lines_are_tried_again(client: RegistryClient, proxy: FlakyProxy, repository: str):
    """Lines that end without an answer or in the middle of one are tried again."""
    pushed = push_image(client, repository, ["v1"])
    proxy.inject(asks("GET", "/tags/"), dropped, times=1)
    proxy.inject(asks("GET", "/manifests/"), truncated, times=2)

    assert ["v1"] == list(client.tags(repository))
    assert pushed.manifest == client.manifest(repository, "v1")


@pytest.mark.parametrize("trouble", [dropped, truncated])
def test_a_line_that_stays_broken(client: RegistryClient, proxy: FlakyProxy, repository: str, trouble):
    """A line that breaks at every try is an error that names no URL."""
    push_image(client, repository, ["v1"])
    proxy.inject(asks("GET", "/tags/"), trouble)
    with pytest.raises(StoreError, match="connection broke") as raised:
        list(client.tags(repository))

    assert "http" not in str(raised.value)


def test_a_registry_that_is_not_there():
    """A registry that does not listen is an error, also when something was to be deleted."""
    with reserved_ports(1) as (port,), connected(f"http://127.0.0.1:{port}") as client:
        for ask in (lambda: list(client.repositories()), lambda: client.delete_tag("app", "v1")):
            with pytest.raises(StoreError, match="ConnectError"):
                ask()


def test_a_registry_that_hangs(proxy: FlakyProxy):
    """A registry that takes a request and says nothing is given up after the time limit."""
    release = threading.Event()

    def hang(_request: Request, _forward: Callable[[], Response]) -> Response:
        release.wait(300)
        return Response(0, sent=None)

    proxy.inject(asks("GET", "/_catalog"), hang)
    with connected(proxy.endpoint, backoff=replace(FAST, tries=1), timeout="1") as client:
        try:
            with pytest.raises(StoreError, match="ReadTimeout"):
                list(client.repositories())
        finally:
            release.set()


def test_a_lost_answer_to_a_delete(client: RegistryClient, proxy: FlakyProxy, repository: str):
    """A delete whose answer was lost is sent again, finds nothing more to do, and is no error."""
    pushed = push_image(client, repository, ["v1"])

    def lose(_request: Request, forward: Callable[[], Response]) -> Response:
        forward()
        return Response(0, sent=None)

    proxy.inject(asks("DELETE", "/manifests/"), lose, times=1)

    assert not client.delete_manifest(repository, pushed.digest)
    assert [] == list(client.tags(repository))


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (400, "NAME_INVALID", StoreError),
        (400, "UNSUPPORTED", Unsupported),
        (401, "UNAUTHORIZED", Denied),
        (403, "DENIED", Denied),
        (404, "NAME_UNKNOWN", NotFound),
        (405, "UNSUPPORTED", Unsupported),
        (418, "TEAPOT", StoreError),
    ],
)
def test_refusals_in_our_words(client: RegistryClient, proxy: FlakyProxy, status, code, error):
    """Each refusal becomes its error at the first try, with the registry's code and what to do."""
    proxy.inject(asks("GET", "/tags/"), answers(status, {"errors": [{"code": code, "message": "hush"}]}))
    with pytest.raises(error) as raised:
        list(client.tags("app"))

    assert error is type(raised.value)
    assert (f"{status} {code}" in str(raised.value), True) == (True, bool(raised.value.fix))
    assert "hush" not in str(raised.value)
    assert 1 == counted(proxy, "GET", "/tags/")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"tags": 1}',
        b'{"tags": [1]}',
        b'{"tags": ["../x"]}',
        b'{"tags": ["v1"',
    ],
)
def test_an_answer_that_is_none(client: RegistryClient, proxy: FlakyProxy, body: bytes):
    """A listing that cannot be understood is an error and never an empty list."""
    proxy.inject(asks("GET", "/tags/"), answers(200, body))
    with pytest.raises(MetadataError):
        list(client.tags("app"))


def test_null_stands_for_no_tags(client: RegistryClient, proxy: FlakyProxy):
    """The null that emptied repositories have for tags is an empty list."""
    proxy.inject(asks("GET", "/tags/"), answers(200, {"name": "app", "tags": None}))

    assert [] == list(client.tags("app"))


LINK = '</v2/app/tags/list?last={}>; rel="next"'


@pytest.mark.parametrize(
    "pages",
    [
        {"": (["a"], LINK.format("x")), "x": (["b"], LINK.format("x"))},
        {"": (["a"], LINK.format("x")), "x": (["b"], LINK.format("y")), "y": (["c"], LINK.format("x"))},
        {"": (["a"], LINK.format("x")), "x": (["a"], LINK.format("y")), "y": (["c"], "")},
        {"": (["a"], '<http://elsewhere.example/v2/app/tags/list?last=x>; rel="next"')},
        {"": (["a"], "nonsense")},
    ],
    ids=["loop of one", "loop of two", "a page twice", "another host", "no link"],
)
def test_pages_that_do_not_end_well(client: RegistryClient, proxy: FlakyProxy, pages):
    """A listing whose pages go round, repeat or lead away is an error, since tags would be missed."""

    def page(request: Request, _forward: Callable[[], Response]) -> Response:
        tags, link = pages[request.query.partition("last=")[2]]
        headers = {"Link": link} if link else {}
        return Response(200, headers, json.dumps({"tags": tags}).encode())

    proxy.inject(asks("GET", "/tags/"), page)
    with pytest.raises(MetadataError, match="to the end"):
        list(client.tags("app"))


def test_pages_without_links(proxy: FlakyProxy):
    """A registry that cuts its list at the page size and does not say so is asked for the rest."""
    tags = ["a", "b", "c", "d", "e"]

    def page(request: Request, _forward: Callable[[], Response]) -> Response:
        last = request.query.partition("last=")[2]
        rest = [tag for tag in tags if tag > last][:2]
        return Response(200, {}, json.dumps({"tags": rest}).encode())

    proxy.inject(asks("GET", "/tags/"), page)
    with connected(proxy.endpoint, page="2") as client:
        assert tags == list(client.tags("app"))


def test_a_list_that_is_never_cut(proxy: FlakyProxy):
    """A registry that gives all tags at once, whatever the page size, is read once through."""
    proxy.inject(asks("GET", "/tags/"), answers(200, {"tags": ["a", "b", "c"]}))
    with connected(proxy.endpoint, page="2") as client:
        assert ["a", "b", "c"] == list(client.tags("app"))


def test_a_manifest_with_other_bytes(client: RegistryClient, proxy: FlakyProxy, repository: str):
    """A manifest that does not hash to the digest asked for or answered is an error, at any reference."""
    pushed = push_image(client, repository, ["v1"])
    forged = pushed.manifest.body.replace(b"amd64", b"arm64") + b" "
    honest = {"Content_Type": OCI_MANIFEST}
    proxy.inject(asks("GET", "/v1"), answers(200, forged, Docker_Content_Digest=pushed.digest, **honest))
    proxy.inject(asks("GET", pushed.digest), answers(200, forged, **honest))
    for reference in ("v1", pushed.digest):
        with pytest.raises(MetadataError, match="its bytes have the digest"):
            client.manifest(repository, reference)


def test_a_manifest_of_another_digest(client: RegistryClient, proxy: FlakyProxy, repository: str):
    """An answer for another digest than was asked for is not believed, although its bytes fit it."""
    other = b"{}"
    proxy.inject(
        lambda request: "/manifests/" in request.path,
        answers(200, other, Content_Type=OCI_MANIFEST, Docker_Content_Digest=digest_of(other)),
    )
    for ask in (client.manifest, client.resolve):
        with pytest.raises(MetadataError, match="another manifest"):
            ask(repository, digest_of(b"wanted"))


@pytest.mark.parametrize(
    "kind", ["application/vnd.docker.distribution.manifest.v1+prettyjws", "text/html", ""]
)
def test_a_manifest_of_an_unknown_kind(client: RegistryClient, proxy: FlakyProxy, kind: str):
    """A manifest of a kind whose digest cannot be checked is Unsupported, so that it can be left alone."""
    proxy.inject(asks("GET", "/manifests/"), answers(200, {"schemaVersion": 1}, Content_Type=kind))
    with pytest.raises(Unsupported):
        client.manifest("app", "v1")


def test_a_manifest_without_limits(client: RegistryClient, proxy: FlakyProxy):
    """An answer larger than any manifest is given up and not read into memory."""
    proxy.inject(asks("GET", "/manifests/"), answers(200, b" " * 5_000_000, Content_Type=OCI_MANIFEST))
    with pytest.raises(MetadataError, match="larger than"):
        client.manifest("app", "v1")


def test_a_head_without_a_digest(client: RegistryClient, proxy: FlakyProxy, repository: str):
    """A registry whose HEAD names no digest is asked for the manifest, which is hashed here."""
    pushed = push_image(client, repository, ["v1"])
    proxy.inject(asks("HEAD", "/manifests/"), answers(200, b"", Content_Type=OCI_MANIFEST))

    assert pushed.digest == client.resolve(repository, "v1").digest


def test_a_blob_with_other_bytes(client: RegistryClient, proxy: FlakyProxy, repository: str):
    """A blob that is not what its digest says, or breaks off, is an error before it ends."""
    pushed = push_image(client, repository, ["v1"])
    proxy.inject(asks("GET", "/blobs/"), answers(200, b"other"), times=1)
    with pytest.raises(MetadataError):
        list(client.blob(repository, pushed.blobs[0]))
    proxy.inject(asks("GET", "/blobs/"), truncated, times=1)
    with pytest.raises(StoreError):
        list(client.blob(repository, pushed.blobs[0]))


def test_the_referrers_api_is_used_where_it_is(client: RegistryClient, proxy: FlakyProxy, repository: str):
    """Where there is a referrers API its pages are read to the end, and no tag is."""
    rows = [{"mediaType": OCI_MANIFEST, "digest": digest_of(name), "size": 1} for name in (b"a", b"b")]
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX}
    link = f'</v2/{repository}/referrers/{digest_of(b"x")}?page=2>; rel="next"'
    proxy.inject(lambda r: r.query == "page=2", answers(200, {**index, "manifests": rows[1:]}))
    proxy.inject(asks("GET", "/referrers/"), answers(200, {**index, "manifests": rows[:1]}, Link=link))
    found = client.referrers(repository, digest_of(b"x"))

    assert [row["digest"] for row in rows] == [row.digest for row in found]
    assert 0 == counted(proxy, "GET", "/manifests/")


@pytest.mark.parametrize(("second", "error"), [(404, NotFound), (200, MetadataError)])
def test_referrers_that_break_off(client: RegistryClient, proxy: FlakyProxy, second: int, error: type):
    """A second page of referrers that is missing or leads back to itself is an error, not the end."""
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX}
    row = {"mediaType": OCI_MANIFEST, "digest": digest_of(b"a"), "size": 1}
    link = f'</v2/app/referrers/{digest_of(b"x")}?page=2>; rel="next"'
    later = answers(second, {**index, "manifests": []}, Link=link)
    proxy.inject(lambda r: r.query == "page=2", later, times=20)
    proxy.inject(asks("GET", "/referrers/"), answers(200, {**index, "manifests": [row]}, Link=link))
    with pytest.raises(error):
        client.referrers("app", digest_of(b"x"))

    assert 2 == counted(proxy, "GET", "/referrers/")


def test_the_missing_referrers_api_is_asked_once(client: RegistryClient, proxy: FlakyProxy, repository: str):
    """A repository that has shown to have no referrers API is not asked for it again."""
    signed = push_image(client, repository, ["v1"])
    push_signature(client, repository, signed)
    found = [len(client.referrers(repository, signed.digest)) for _ in range(3)]

    assert [1, 1, 1] == found
    assert 1 == counted(proxy, "GET", "/referrers/")


def test_a_referrers_list_that_fails_is_not_empty(client: RegistryClient, proxy: FlakyProxy, repository: str):
    """Referrers that cannot be listed are an error, since a signature would look like rubbish."""
    for trouble in (answers(500), answers(200, {}), answers(403)):
        proxy.clear()
        proxy.inject(asks("GET", "/referrers/"), trouble)
        with pytest.raises(EbbtideError):
            client.referrers(repository, digest_of(b"x"))


@pytest.mark.parametrize(
    ("status", "ability"),
    [
        (202, Ability.UNKNOWN),
        (400, Ability.NO),
        (401, Ability.DENIED),
        (403, Ability.DENIED),
        (404, Ability.YES),
        (405, Ability.NO),
        (500, Ability.UNKNOWN),
    ],
)
def test_probing_reads_the_answers(client: RegistryClient, proxy: FlakyProxy, status: int, ability: Ability):
    """Each answer to a delete of nothing tells what the registry can do, or that it cannot be told."""
    proxy.inject(asks("DELETE", "/manifests/"), answers(status, {"errors": []}))
    found = client.capabilities("app")

    assert (ability, ability) == (found.manifest_delete, found.tag_delete)


def test_two_probes_never_ask_for_the_same(client: RegistryClient, proxy: FlakyProxy):
    """Probes name a new digest and a new tag each time, so that nobody can prepare for them."""
    proxy.inject(asks("DELETE", ""), answers(404))
    for _ in range(2):
        client.capabilities("app")
    names = [request.path.rpartition("/")[2] for request in proxy.requests if request.method == "DELETE"]

    assert 4 == len(set(names))


def test_every_request_names_ebbtide(client: RegistryClient, proxy: FlakyProxy, repository: str):
    """All requests, tokens' and uploads' included, carry a name by which logs can tell them from pulls."""
    push_image(client, repository, ["v1"])
    list(client.tags(repository))
    agents = {
        request.headers.get("User-Agent", request.headers.get("user-agent")) for request in proxy.requests
    }

    assert [True] == [str(agent).startswith("ebbtide ") for agent in agents]


def test_redirects_take_no_secret_along(client: RegistryClient, proxy: FlakyProxy, repository: str):
    """A blob that is stored elsewhere is fetched there, without the token that the registry was shown."""
    pushed = push_image(client, repository, ["v1"])
    with flaky_proxy(proxy.endpoint) as storage:
        storage.inject(lambda request: True, answers(200, b"layer"))
        target = f"{storage.endpoint}/signed?key=1"
        proxy.inject(asks("GET", "/blobs/"), answers(307, b"", Location=target))
        client._connection._authorization._tokens[(f"repository:{repository}:pull",)] = "let-me-in"
        found = b"".join(client.blob(repository, pushed.blobs[1]))
        shown = [name.lower() for request in storage.requests for name in request.headers]

    assert b"layer" == found
    assert "Bearer let-me-in" in [r.headers.get("Authorization") for r in proxy.requests]
    assert "authorization" not in shown


def test_cookies_are_not_kept(client: RegistryClient, proxy: FlakyProxy):
    """A cookie that a registry sets is never sent, as it would reach every port of the host."""
    proxy.inject(asks("GET", "/tags/"), answers(200, {"tags": []}, Set_Cookie="session=hush; Path=/"))
    for _ in range(2):
        list(client.tags("app"))

    assert [] == [request for request in proxy.requests if "cookie" in map(str.lower, request.headers)]


def test_redirects_that_do_not_end(client: RegistryClient, proxy: FlakyProxy):
    """Redirects in a circle are an error after a few."""
    proxy.inject(asks("GET", "/tags/"), answers(302, b"", Location="/v2/app/tags/list"))
    with pytest.raises(StoreError, match="redirects more than"):
        list(client.tags("app"))


def test_an_upload_is_not_sent_twice(client: RegistryClient, proxy: FlakyProxy, repository: str):
    """An upload whose connection broke is an error at once: half of it may have arrived."""
    proxy.inject(asks("PUT", "/blobs/"), dropped)
    with pytest.raises(StoreError):
        client.put_blob(repository, digest_of(b"x"), 1, lambda: [b"x"])

    assert 1 == counted(proxy, "PUT", "/blobs/")
