"""An S3 server that is slow, refuses, lies or hangs up: what the store makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import parse_qs

import pytest
from tests.contract.store.conftest import FAST, is_bulk_delete, is_listing, refuse_keys
from tests.services.flaky_proxy import Response, access_denied, dropped, error, slow_down, truncated
from tests.services.seaweed import S3Server

from ebbtide.core.decision import Outcome
from ebbtide.core.errors import ConfigError, NotFound, SlowDown, StoreError
from ebbtide.storage.rate_limit import Backoff
from ebbtide.storage.s3 import S3Store
from ebbtide.storage.store import DeleteRequest, StoreSpec
from ebbtide.targets.s3.seaweedfs import reserved_ports


def keys_of(store: S3Store) -> list[str]:
    """List the keys alone."""
    return [key for batch in store.list() for key in batch["key"].to_pylist()]


def outcomes(store: S3Store, *keys: str) -> list[Outcome]:
    """Delete, and give what became of each key."""
    return [result.outcome for result in store.delete([DeleteRequest(key) for key in keys])]


def in_order(store: S3Store) -> S3Store:
    """Open the same store as one whose server keeps key order."""
    return S3Store(StoreSpec(store.spec.url, {**store.spec.options, "ordered": "yes"}), FAST)


def canned_page(*keys: str, more: str = ""):
    """Answer with a page of these keys below the prefix that was asked for; `more` is the next token."""

    def answer(request, _forward) -> Response:
        prefix = parse_qs(request.query)["prefix"][0]
        rows = "".join(
            f"<Contents><Key>{prefix}{key}</Key><Size>1</Size>"
            "<LastModified>2020-01-01T00:00:00.000Z</LastModified></Contents>"
            for key in keys
        )
        token = f"<NextContinuationToken>{more}</NextContinuationToken>" if more else ""
        truncated = f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>"
        return Response(200, {}, f"<ListBucketResult>{truncated}{rows}{token}</ListBucketResult>".encode())

    return answer


def canned_folders(*keys: str, folders: Sequence[str], more: str = ""):
    """Answer with such a page that has folders too."""

    def answer(request, forward) -> Response:
        prefix = parse_qs(request.query)["prefix"][0]
        shown = "".join(
            f"<CommonPrefixes><Prefix>{prefix}{name}</Prefix></CommonPrefixes>" for name in folders
        )
        page = canned_page(*keys, more=more)(request, forward)
        return replace(page, body=page.body.replace(b"</ListB", f"{shown}</ListB".encode()))

    return answer


def is_later_page(request) -> bool:
    """Recognise every page of a listing but the first."""
    return is_listing(request) and "continuation-token" in request.query


@pytest.mark.parametrize("trouble", [dropped, truncated, slow_down, error(500, "InternalError")])
def test_a_page_that_fails_once_is_asked_for_again(s3_store, proxy, trouble):
    """A passing trouble on the line is not seen by whoever lists."""
    s3_store.write("a", b"")
    proxy.inject(is_listing, trouble, times=2)

    assert ["a"] == keys_of(s3_store)


@pytest.mark.parametrize(
    "trouble", [dropped, truncated, slow_down, access_denied, error(404, "NoSuchBucket")]
)
def test_a_listing_that_fails_on_its_second_page_raises(s3_store, proxy, trouble):
    """The first page is not the whole: if the next cannot be had, the listing raises."""
    proxy.inject(is_later_page, trouble)
    proxy.inject(is_listing, canned_page("a", "b", more="next"))

    with pytest.raises((StoreError, NotFound)):
        keys_of(in_order(s3_store))


@pytest.mark.parametrize("trouble", [dropped, truncated, slow_down, access_denied])
def test_children_that_break_off_on_their_second_page_raise(s3_store, proxy, trouble):
    """The names of the first page are not all: if the next cannot be had, that raises."""
    proxy.inject(is_later_page, trouble)
    proxy.inject(is_listing, canned_page("a", "b", more="next"))
    seen = []
    with pytest.raises((StoreError, NotFound)):
        seen.extend(in_order(s3_store).children(""))

    assert ["a", "b"] == seen


def test_children_are_asked_for_again_and_merged_over_pages(s3_store, proxy):
    """Objects and folders, which a server gives apart, come in one order, whatever fails once on the way."""
    proxy.inject(is_later_page, slow_down, times=2)
    proxy.inject(is_later_page, canned_folders("b", folders=["b/", "c/"]))
    proxy.inject(is_listing, canned_folders("a", "a-b", folders=["a/"], more="next"))

    assert ["a", "a-b", "a/", "b", "b/", "c/"] == list(in_order(s3_store).children("x/"))
    assert {"/"} == {parse_qs(request.query)["delimiter"][0] for request in proxy.requests}


@pytest.mark.parametrize(
    ("keys", "folders"),
    [(["a/b"], []), ([], ["a/b/"]), ([], ["a"])],
    ids=["a deep object", "a deep folder", "no folder"],
)
def test_children_that_make_no_sense_raise(s3_store, proxy, keys, folders):
    """A server that does not understand the question is not believed."""
    proxy.inject(is_listing, canned_folders(*keys, folders=folders))

    with pytest.raises(StoreError, match="cannot be trusted"):
        list(s3_store.children(""))


def test_children_out_of_order_are_found_out(s3_store, proxy):
    """Opened as if the server kept the order, the store refuses to go on; opened otherwise it sorts."""
    proxy.inject(is_later_page, canned_folders("b", folders=["a/"]))
    proxy.inject(is_listing, canned_folders("b", folders=["c/"], more="next"))

    assert ["a/", "b", "c/"] == list(s3_store.children(""))
    with pytest.raises(StoreError, match="ordered=no"):
        list(in_order(s3_store).children(""))


def test_an_object_and_a_folder_of_one_name_are_two_children(s3_store):
    """A bucket can hold `a` and `a/b`: the one is an object, the other lies in a folder."""
    s3_store.write("a", b"")
    s3_store.write("a/b", b"")
    s3_store.write("a-b", b"")

    assert ["a", "a-b", "a/"] == list(s3_store.children(""))
    assert ["b"] == list(s3_store.children("a/"))


def test_a_folders_own_marker_is_none_of_its_children(s3_store):
    """Consoles write an empty object with the folder's name; seen from outside it is the folder."""
    s3_store.write("a/", b"")
    s3_store.write("a/b", b"")

    assert (["a/"], ["b"]) == (list(s3_store.children("")), list(s3_store.children("a/")))


def test_a_store_that_stays_slow_is_named_so(s3_store, proxy):
    """After the last try the error says that the store asked for fewer requests, and no more are made."""
    proxy.inject(is_listing, slow_down)

    with pytest.raises(SlowDown, match="SlowDown at every try"):
        keys_of(s3_store)
    assert FAST.tries == len(proxy.requests)


@pytest.mark.parametrize(
    "answer",
    [
        canned_page("b", "a"),
        canned_page("a", "a"),
        canned_page("a", more="again"),
        lambda request, forward: Response(200, {}, b"<html/>"),
        lambda request, forward: Response(200, {}, b"<ListBucketResult></ListBucketResult>"),
        lambda request, forward: replace(
            canned_page("a")(request, forward),
            body=canned_page("a")(request, forward).body.replace(b"<Key>", b"<Key>elsewhere/"),
        ),
        lambda request, forward: replace(
            canned_page("a")(request, forward),
            body=canned_page("a")(request, forward).body.replace(b"<Size>1</Size>", b""),
        ),
    ],
    ids=["disorder", "twice", "loop", "html", "unsaid", "elsewhere", "sizeless"],
)
def test_a_listing_that_makes_no_sense_raises(s3_store, proxy, answer):
    """A server that lists out of order, in circles, or something else is not believed."""
    proxy.inject(is_listing, answer)

    with pytest.raises(StoreError):
        keys_of(in_order(s3_store))


def test_a_listing_in_circles_raises(s3_store, proxy):
    """Pages that lead back to one that was had before are not followed for ever, not even sorted here."""
    proxy.inject(lambda request: "token=one" in request.query, canned_page("b", more="two"))
    proxy.inject(is_listing, canned_page("a", more="one"))

    with pytest.raises(StoreError, match="but not where"):
        keys_of(s3_store)


def test_of_a_key_listed_twice_the_newest_counts(s3_store, proxy):
    """A key that moves over a page's edge while it is listed comes once, with the content that is younger."""

    def older(request, forward) -> Response:
        page = canned_page("a", "b")(request, forward)
        return replace(page, body=page.body.replace(b"2020-", b"2019-").replace(b"<Size>1", b"<Size>7"))

    proxy.inject(is_later_page, canned_page("b", "c"))
    proxy.inject(is_listing, lambda request, forward: more_to_come(older(request, forward)))
    rows = [row for batch in s3_store.list() for row in batch.to_pylist()]

    assert [("a", 7), ("b", 1), ("c", 1)] == [(row["key"], row["size"]) for row in rows]


def more_to_come(page: Response) -> Response:
    """Make a page one that another follows."""
    token = b"true</IsTruncated><NextContinuationToken>next</NextContinuationToken>"
    return replace(page, body=page.body.replace(b"false</IsTruncated>", token))


def test_a_server_without_key_order_is_found_out(s3_store):
    """SeaweedFS lists a/b before a.b; opened as if it kept the order, the store refuses to go on."""
    s3_store.write("a/b", b"")
    s3_store.write("a.b", b"")

    with pytest.raises(StoreError, match="ordered=no"):
        keys_of(in_order(s3_store))


def test_pages_join_in_order(s3_store, proxy):
    """Where the server keeps the order, pages are passed on as they come."""
    proxy.inject(is_later_page, canned_page("c", "d"))
    proxy.inject(is_listing, canned_page("", "a", "b", more="next"))

    assert ["a", "b", "c", "d"] == keys_of(in_order(s3_store))


def test_only_the_keys_that_were_too_much_are_asked_again(s3_store, proxy, s3_server):
    """A SlowDown for one key inside a 200 is retried for that key alone, and then it is deleted."""
    for key in ("a", "b", "c"):
        s3_store.write(key, b"")
    proxy.clear()
    proxy.inject(is_bulk_delete, refuse_keys(s3_server, {"b": "SlowDown"}), times=1)
    found = outcomes(s3_store, "a", "b", "c")
    asked = [request.body.count(b"<Key>") for request in proxy.requests if is_bulk_delete(request)]

    assert ([Outcome.DELETED] * 3, [3, 1], []) == (found, asked, keys_of(s3_store))


@pytest.mark.parametrize("code", ["SlowDown", "InternalError", "Strange"])
def test_a_key_that_never_succeeds_is_reported_with_the_code(s3_store, proxy, s3_server, code):
    """What fails at every try is failed in the store's own words; its neighbour is deleted."""
    proxy.inject(is_bulk_delete, refuse_keys(s3_server, {"b": code}))
    good, bad = s3_store.delete([DeleteRequest("a"), DeleteRequest("b")])

    assert (Outcome.DELETED, Outcome.FAILED, code) == (good.outcome, bad.outcome, bad.reason)


@pytest.mark.parametrize("trouble", [slow_down, dropped, truncated])
def test_a_whole_request_that_fails_once_is_made_again(s3_store, proxy, trouble):
    """A bulk delete may be repeated: what is gone stays gone."""
    s3_store.write("a", b"")
    proxy.inject(is_bulk_delete, trouble, times=1)

    assert ([Outcome.DELETED], []) == (outcomes(s3_store, "a"), keys_of(s3_store))


def test_a_refused_request_denies_every_key(s3_store, proxy):
    """If the whole request is refused, each of its keys is denied and none is lost from the answer."""
    proxy.inject(is_bulk_delete, access_denied)

    assert [Outcome.DENIED] * 2 == outcomes(s3_store, "a", "b")


def test_silence_is_not_success(s3_store, proxy):
    """A key that the answer does not mention counts as failed."""
    proxy.inject(is_bulk_delete, lambda request, forward: Response(200, {}, b"<DeleteResult/>"))

    assert [Outcome.FAILED] == outcomes(s3_store, "a")


def test_content_that_changes_after_the_look_is_spared(s3_store, proxy, s3_server):
    """If a writer comes between the HEAD and the delete, the condition keeps the new content."""
    etag = s3_store.write("a", b"old").etag

    def overtaken(request, forward) -> Response:
        bucket, _, key = request.path.strip("/").partition("/")
        s3_server.client().put_object(Bucket=bucket, Key=key, Body=b"new")
        return forward()

    proxy.inject(lambda request: request.method == "DELETE", overtaken)
    (result,) = s3_store.delete([DeleteRequest("a", etag)])

    assert (Outcome.CHANGED, b"new") == (result.outcome, s3_store.read("a"))


@pytest.mark.parametrize(
    ("trouble", "times", "expected"),
    [
        (slow_down, 1, Outcome.DELETED),
        (slow_down, 99, Outcome.FAILED),
        (access_denied, 99, Outcome.DENIED),
    ],
)
def test_a_delete_on_condition_has_the_same_outcomes(s3_store, proxy, trouble, times, expected):
    """Trouble with one conditional delete is retried, and else reported like that of a bulk delete."""
    etag = s3_store.write("a", b"").etag
    proxy.inject(lambda request: request.method == "DELETE", trouble, times)
    (result,) = s3_store.delete([DeleteRequest("a", etag)])

    assert expected == result.outcome


def test_an_answer_lost_on_the_way_does_not_read_as_changed(s3_store, proxy):
    """If the delete worked but its answer was lost, the second try finds the object absent."""
    etag = s3_store.write("a", b"").etag

    def answer_lost(request, forward) -> Response:
        forward()
        return dropped(request, forward)

    proxy.inject(lambda request: request.method == "DELETE", answer_lost, times=1)
    (result,) = s3_store.delete([DeleteRequest("a", etag)])

    assert result.outcome in (Outcome.ABSENT, Outcome.DELETED)


@pytest.mark.parametrize(
    ("then", "expected"), [("gone", Outcome.ABSENT), ("busy", Outcome.FAILED), ("same", Outcome.FAILED)]
)
def test_a_refused_condition_is_looked_into(s3_store, proxy, s3_server, then, expected):
    """`changed` is final, so it is not said of what is gone, could not be looked at, or is as it was."""
    etag = s3_store.write("a", b"").etag
    proxy.clear()

    def refuse(request, forward) -> Response:
        if then == "gone":
            bucket, _, key = request.path.strip("/").partition("/")
            s3_server.client().delete_object(Bucket=bucket, Key=key)
        if then == "busy":
            proxy.inject(lambda request: request.method == "HEAD", slow_down)
        return error(412, "PreconditionFailed")(request, forward)

    proxy.inject(lambda request: request.method == "DELETE", refuse)
    (result,) = s3_store.delete([DeleteRequest("a", etag)])

    assert expected == result.outcome


def test_a_server_that_cannot_be_reached_is_tried_again():
    """A refused connection is a passing trouble like others: a server may be about to start."""
    waits: list[float] = []
    with reserved_ports(1) as (port,):
        spec = StoreSpec("s3://b", S3Server(f"http://127.0.0.1:{port}").options)
        store = S3Store(spec, Backoff(tries=3, sleep=waits.append))

        with pytest.raises(StoreError, match="EndpointConnectionError"):
            store.read("a")
    assert 2 == len(waits)


def test_a_read_that_breaks_off_is_read_again_or_raises(s3_store, proxy):
    """Half an object is never returned as the whole."""
    s3_store.write("a", b"x" * 1000)
    proxy.inject(lambda request: request.method == "GET", truncated, times=1)
    content = s3_store.read("a")
    proxy.inject(lambda request: request.method == "GET", truncated)

    assert b"x" * 1000 == content
    with pytest.raises(StoreError):
        s3_store.read("a")


def test_a_folder_marker_is_an_object_of_its_own(s3_store):
    """The key 'd/' is listed with its slash, and deleting it does not touch 'd' or what is below."""
    for key in ("d/", "d/x"):
        s3_store.write(key, b"")
    before = keys_of(s3_store)
    s3_store.delete([DeleteRequest("d/")])

    assert (["d/", "d/x"], ["d/x"]) == (before, keys_of(s3_store))


def test_errors_tell_no_secrets(s3_store, proxy, s3_server):
    """Neither credentials nor signatures are in an error's text or in what caused it."""
    proxy.inject(lambda request: True, dropped)
    with pytest.raises(StoreError) as caught:
        keys_of(s3_store)
    text = f"{caught.value} {caught.value.__cause__}"

    assert [] == [word for word in ("Signature", *s3_server.env.values()) if word in text]


@pytest.mark.parametrize(
    "options",
    [
        {"endpoint": "http://127.0.0.1:1"},
        {"secret_key": "x"},
        {"path_style": "perhaps"},
        {"delete_page": "1001"},
        {"retries": "-1"},
    ],
)
def test_wrong_options_are_named(options):
    """An option that is unknown, malformed or unsafe raises before anything is asked of the server."""
    with pytest.raises(ConfigError, match="|".join([*options, "plain http"])):
        S3Store(StoreSpec("s3://b", options))
