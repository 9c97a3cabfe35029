"""What is done with the rows of a bucket's plan, on a real store: each action, and each change in between."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.services.bucket_plan import Listed, PlannedBucket, plan_row, planned_bucket
from tests.services.flaky_proxy import FlakyProxy, Response, error, flaky_proxy, slow_down
from tests.services.seaweed import S3Server, fresh_bucket

from ebbtide.engine.actor import DeleteOptions
from ebbtide.storage.store import StoreSpec
from ebbtide.targets.s3.actions.recheck import OVERTAKEN, PROMOTED, RETIMED, REWRITTEN
from ebbtide.targets.s3.model import Action, Versioning
from ebbtide.targets.s3.seaweedfs import reserved_ports

DELETED = ("deleted", "")
HIDDEN = ("hidden", "")
ABSENT = ("absent", "")
RESUMED = ("deleted", "gone when an interrupted attempt of this run was taken up again")


@pytest.fixture
def versioned(s3_server: S3Server, bucket: str) -> Iterator[PlannedBucket]:
    """Give an empty bucket that keeps versions."""
    made = planned_bucket(s3_server, bucket, Versioning.ENABLED)
    yield made
    made.empty()


@pytest.fixture
def suspended(s3_server: S3Server, bucket: str) -> PlannedBucket:
    """Give an empty bucket whose versioning is suspended."""
    return planned_bucket(s3_server, bucket, Versioning.SUSPENDED)


@pytest.fixture
def unversioned(s3_server: S3Server, bucket: str) -> PlannedBucket:
    """Give an empty bucket that never kept versions."""
    return planned_bucket(s3_server, bucket, Versioning.DISABLED)


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FlakyProxy]:
    """Run a proxy that can make trouble."""
    with flaky_proxy(s3_server.endpoint) as made:
        yield made


def through(store: PlannedBucket, proxy: FlakyProxy, **options: str) -> StoreSpec:
    """Say how to reach the bucket through a proxy."""
    return StoreSpec(store.spec.url, {**store.spec.options, "endpoint": proxy.endpoint, **options})


def bulk(request: Any) -> bool:
    """Tell whether a request is a page of deletes."""
    return request.method == "POST" and "delete" in request.query


def contents(found: list[Listed]) -> list[tuple[str, bool]]:
    """Say of each version its id and whether it is the current one."""
    return [(one.version, one.latest) for one in found]


def test_noncurrent_versions_are_deleted_and_the_current_one_stays(versioned: PlannedBucket) -> None:
    """Versions are deleted by their ids; the current one and other keys stay as they are."""
    three = versioned.put("a/key", "1", "2", "3")
    other = versioned.put("a/key2", "1", "2")

    assert [DELETED, DELETED] == versioned.do([one.row(Action.DELETE_VERSION) for one in three[1:]])
    assert three[:1] + other == versioned.everything()


def test_row_31_an_object_is_expired_by_a_delete_marker_and_never_by_two(versioned: PlannedBucket) -> None:
    """Expiring adds a delete marker; doing so again, or resuming, adds none (row 31)."""
    rows = [one.row(Action.EXPIRE) for one in versioned.put("key", "1")]

    assert [HIDDEN] == versioned.do(rows)
    marker = versioned.listed("key")[0]
    assert (True, None) == (marker.latest, marker.etag)
    assert [ABSENT] == versioned.do(rows)
    assert [("hidden", RESUMED[1])] == versioned.do(rows, resumed=True)
    assert 2 == len(versioned.everything())


def test_without_versioning_an_object_is_deleted(unversioned: PlannedBucket) -> None:
    """In a bucket without versions expiring an object deletes it."""
    rows = [one.row(Action.EXPIRE) for one in unversioned.put("key", "1")]

    assert [DELETED] == unversioned.do(rows)
    assert [] == unversioned.everything()
    assert [ABSENT] == unversioned.do(rows)


def test_in_a_suspended_bucket_a_null_marker_takes_the_place(suspended: PlannedBucket) -> None:
    """Expiring a null version replaces it by a null delete marker."""
    rows = [one.row(Action.EXPIRE) for one in suspended.put("key", "1")]

    assert [DELETED] == suspended.do(rows)
    assert [("null", True, None)] == [(one.version, one.latest, one.etag) for one in suspended.everything()]
    assert [RESUMED] == suspended.do(rows, resumed=True)


def test_versioning_that_was_switched_stops_expiring(versioned: PlannedBucket) -> None:
    """Where a delete would do something else than was planned, it is not sent."""
    rows = [one.row(Action.EXPIRE) for one in versioned.put("key", "1")]
    versioned.client.put_bucket_versioning(
        Bucket=versioned.name, VersioningConfiguration={"Status": "Suspended"}
    )

    assert [
        ("changed", "the bucket's versioning is Suspended now, and the plan was made for Enabled")
    ] == versioned.do(rows)
    assert 1 == len(versioned.everything())


def test_a_sole_delete_marker_is_removed(versioned: PlannedBucket) -> None:
    """A delete marker without versions below it goes."""
    versioned.client.delete_object(Bucket=versioned.name, Key="key")
    rows = [one.row(Action.REMOVE_DELETE_MARKER) for one in versioned.listed("key")]

    assert [DELETED] == versioned.do(rows)
    assert [] == versioned.everything()
    assert [ABSENT] == versioned.do(rows)


def test_a_delete_marker_that_stays_is_not_said_to_be_deleted(suspended: PlannedBucket) -> None:
    """SeaweedFS says that it removed a null delete marker, and does not; the outcome tells the truth."""
    suspended.client.delete_object(Bucket=suspended.name, Key="key")
    rows = [one.row(Action.REMOVE_DELETE_MARKER) for one in suspended.listed("key")]

    assert [("failed", "NotDeleted: the store reports it as deleted and still lists it")] == suspended.do(
        rows
    )


def test_uploads_are_aborted(versioned: PlannedBucket) -> None:
    """An upload goes; one that is completed or gone is absent, and what it made stays."""
    client, name = versioned.client, versioned.name
    ids = [client.create_multipart_upload(Bucket=name, Key=f"u {n}+%")["UploadId"] for n in range(3)]
    part = client.upload_part(Bucket=name, Key="u 1+%", UploadId=ids[1], PartNumber=1, Body=b"x")
    client.complete_multipart_upload(
        Bucket=name,
        Key="u 1+%",
        UploadId=ids[1],
        MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]},
    )
    client.abort_multipart_upload(Bucket=name, Key="u 2+%", UploadId=ids[2])
    rows = [
        plan_row(f"u {n}+%", {"action": "abort_upload", "version": one}, datetime.now(UTC), None)
        for n, one in enumerate(ids)
    ]

    assert [DELETED, ABSENT, ABSENT] == versioned.do(rows)
    assert [] == client.list_multipart_uploads(Bucket=name).get("Uploads", [])
    assert b"x" == client.get_object(Bucket=name, Key="u 1+%")["Body"].read()


def test_what_is_no_action_of_the_deleter_is_denied(versioned: PlannedBucket) -> None:
    """A transition, or a row without a task, does nothing here."""
    found = versioned.put("key", "1", "2")
    rows = [
        found[1].row(Action.TRANSITION),
        {**found[1].row("none"), "version": "x", "action": None, "condition": None},
    ]

    assert [("denied", "not an action of this deleter")] * 2 == versioned.do(rows)
    assert found == versioned.everything()


def test_what_came_to_be_needed_stays(versioned: PlannedBucket) -> None:
    """A row with a reason to keep it is not touched, unless an interrupted attempt took it before."""
    found = versioned.put("key", "1", "2", "3")
    rows = [one.row(Action.DELETE_VERSION, kept="somebody needs it") for one in found[1:]]

    assert [("changed", "somebody needs it")] * 2 == versioned.do(rows)
    assert found == versioned.everything()
    versioned.client.delete_object(Bucket=versioned.name, Key="key", VersionId=found[2].version)
    assert [("changed", "somebody needs it"), RESUMED] == versioned.do(rows, resumed=True)


def test_a_version_that_was_promoted_is_never_deleted(versioned: PlannedBucket) -> None:
    """Who deletes the current version makes an older one current; that is live data now."""
    found = versioned.put("key", "1", "2", "3")
    rows = [one.row(Action.DELETE_VERSION) for one in found[1:]]
    versioned.client.delete_object(Bucket=versioned.name, Key="key", VersionId=found[0].version)

    assert [("changed", PROMOTED), DELETED] == versioned.do(rows)
    assert [(found[1].version, True)] == contents(versioned.everything())


def test_row_30_an_object_that_was_overwritten_is_not_expired(versioned: PlannedBucket) -> None:
    """A new version on top is not what was planned to expire."""
    rows = [one.row(Action.EXPIRE) for one in versioned.put("key", "1")]
    now = versioned.put("key", "1")

    assert [("changed", OVERTAKEN)] == versioned.do(rows)
    assert now == versioned.everything()


def test_an_object_without_versions_that_was_overwritten_is_not_deleted(unversioned: PlannedBucket) -> None:
    """Another content, or the same content written at another time, is another object."""
    rows = [unversioned.put(key, "1")[0].row(Action.EXPIRE) for key in ("a", "b")]
    rows[1]["created"] -= timedelta(seconds=1)
    unversioned.put("a", "2")

    assert [("changed", REWRITTEN), ("changed", RETIMED)] == unversioned.do(rows)
    assert ["a", "b"] == [one.key for one in unversioned.everything()]


def test_a_null_version_that_was_replaced_is_not_deleted(versioned: PlannedBucket) -> None:
    """The null version is the only one that can become another; it is compared, then deleted on condition."""
    client, name = versioned.client, versioned.name

    def switch(to: Any) -> None:
        client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": to})

    switch("Suspended")
    versioned.put("same", "1")
    versioned.put("other", "1")
    switch("Enabled")
    versioned.put("same", "2")
    versioned.put("other", "2")
    rows = [versioned.listed(key)[1].row(Action.DELETE_VERSION) for key in ("same", "other")]
    switch("Suspended")
    versioned.put("other", "3")
    switch("Enabled")
    versioned.put("other", "4")

    assert ["null", "null"] == [row["version"] for row in rows]
    assert [DELETED, ("changed", REWRITTEN)] == versioned.do(rows)
    assert (1, 3) == (len(versioned.listed("same")), len(versioned.listed("other")))


def test_a_delete_marker_that_is_not_alone_stays(versioned: PlannedBucket) -> None:
    """Without a marker that has versions below it, what was deleted would come back."""
    versioned.put("below", "1")
    for key in ("below", "above"):
        versioned.client.delete_object(Bucket=versioned.name, Key=key)
    rows = [versioned.listed(key)[0].row(Action.REMOVE_DELETE_MARKER) for key in ("below", "above")]
    versioned.put("above", "1")

    assert [
        ("changed", "its key has other versions, which would become visible without it"),
        ("changed", OVERTAKEN),
    ] == versioned.do(rows)
    assert 4 == len(versioned.everything())


def test_versions_that_became_too_few_stay(versioned: PlannedBucket) -> None:
    """A rule that keeps two newer noncurrent versions keeps what has only one newer left."""
    found = versioned.put("key", "1", "2", "3", "4")
    rows = [found[3].row(Action.DELETE_VERSION, newer=2)]
    versioned.client.delete_object(Bucket=versioned.name, Key="key", VersionId=found[1].version)

    assert [("changed", "it has 1 newer noncurrent versions, and 2 are required")] == versioned.do(rows)
    assert [DELETED] == versioned.do([found[3].row(Action.DELETE_VERSION, newer=1)])


def test_a_resumed_attempt_says_that_what_is_gone_was_its_own_doing(versioned: PlannedBucket) -> None:
    """What an interrupted attempt deleted is `deleted`, and counts as there for what is left."""
    found = versioned.put("key", "1", "2")
    time.sleep(1.1)  # the store knows when a version was written only to the second
    found = versioned.put("key", "3", "4")
    rows = [one.row(Action.DELETE_VERSION, newer=n) for n, one in enumerate(found[1:])]
    versioned.client.delete_object(Bucket=versioned.name, Key="key", VersionId=found[1].version)

    assert [RESUMED, DELETED, DELETED] == versioned.do(rows, resumed=True)
    assert [RESUMED, RESUMED, RESUMED] == versioned.do(rows, resumed=True)
    assert [(found[0].version, True)] == contents(versioned.everything())


def test_a_locked_version_is_denied(s3_server: S3Server) -> None:
    """The store refuses to delete what is locked, also in a page that it answers with 200."""
    client = s3_server.client()
    with fresh_bucket(s3_server) as other:
        name = f"{other}-lock"
        client.create_bucket(Bucket=name, ObjectLockEnabledForBucket=True)
        store = planned_bucket(s3_server, name, Versioning.ENABLED)
        found = store.put("key", "1", "2", "3")
        hold = {"Bucket": name, "Key": "key", "VersionId": found[2].version}
        client.put_object_legal_hold(**hold, LegalHold={"Status": "ON"})
        found = store.listed("key")  # SeaweedFS gives a version that is held a new time
        outcomes = store.do([one.row(Action.DELETE_VERSION) for one in found[1:]])
        left = store.everything()
        client.put_object_legal_hold(**hold, LegalHold={"Status": "OFF"})
        store.empty()
        client.delete_bucket(Bucket=name)

    assert ["deleted", "denied"] == [outcome for outcome, _ in outcomes]
    assert [found[0], found[2]] == left


@pytest.mark.slow
def test_many_versions_of_one_key_are_deleted_in_pages(versioned: PlannedBucket) -> None:
    """A key with more versions than a page of a listing or of deletes holds is done whole."""
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: versioned.put_only("key", str(n)), range(1_200)))
    found = versioned.listed("key")

    outcomes = versioned.do([one.row(Action.DELETE_VERSION, newer=1) for one in found[2:]])

    assert {DELETED: 1_198} == Counter(outcomes)
    assert found[:2] == versioned.everything()


def test_odd_keys_reach_the_very_object(versioned: PlannedBucket) -> None:
    """No key is taken for another, whatever it is made of."""
    keys = ["a", "a/b", "a.b", "a b", "a+b", "a%2Bb", "a%20b", "é", "e\u0301", "日/本", "&<>'\"", "x" * 200]
    found = {key: versioned.put(key, "1", "2") for key in keys}
    twins = {key: versioned.put(f"{key}!", "1", "2") for key in keys}

    outcomes = versioned.do([found[key][1].row(Action.DELETE_VERSION) for key in keys])
    expired = versioned.do([found[key][0].row(Action.EXPIRE) for key in keys])

    assert [DELETED] * len(keys) == outcomes
    assert [HIDDEN] * len(keys) == expired
    assert {key: twins[key] for key in keys} == {key: versioned.listed(f"{key}!") for key in keys}
    assert {2} == {len(versioned.listed(key)) for key in keys}


def test_a_folder_marker_is_an_object_of_its_own(unversioned: PlannedBucket) -> None:
    """A key that ends in a slash goes without what lies below it."""
    rows = [unversioned.put("dir/", "")[0].row(Action.EXPIRE)]
    unversioned.put("dir/below", "1")

    assert [DELETED] == unversioned.do(rows)
    assert ["dir/below"] == [one.key for one in unversioned.everything()]


@pytest.mark.parametrize("trouble", [slow_down, error(500, "InternalError")])
def test_a_store_that_is_busy_for_a_while_is_asked_again(
    versioned: PlannedBucket, proxy: FlakyProxy, trouble: Any
) -> None:
    """Busy answers to a look, a page or a single delete are waited out."""
    found = [versioned.put(f"k{n}", "1", "2") for n in range(3)]
    rows = [one.row(Action.DELETE_VERSION) for _, one in found]
    rows += [one.row(Action.EXPIRE) for one, _ in found]
    proxy.inject(lambda request: "versions" in request.query, trouble, times=1)
    proxy.inject(bulk, trouble, times=1)
    proxy.inject(lambda request: request.method == "HEAD", trouble, times=2)
    proxy.inject(lambda request: request.method == "DELETE", trouble, times=2)

    assert [*[DELETED] * 3, *[HIDDEN] * 3] == versioned.do(rows, spec=through(versioned, proxy))


def test_an_answer_that_was_lost_is_found_out_by_looking(versioned: PlannedBucket, proxy: FlakyProxy) -> None:
    """What the store did before the line broke is deleted once, and markers do not stack."""
    found = versioned.put("key", "1", "2")

    def lose(_request: Any, forward: Any) -> Response:
        forward()
        return Response(0, sent=None)

    proxy.inject(bulk, lose, times=1)
    proxy.inject(lambda request: request.method == "DELETE", lose, times=1)
    rows = [found[1].row(Action.DELETE_VERSION), found[0].row(Action.EXPIRE)]

    assert ["deleted", "hidden"] == [
        outcome for outcome, _ in versioned.do(rows, spec=through(versioned, proxy))
    ]
    assert 2 == len(versioned.everything())


def test_a_server_without_conditions_is_asked_without(unversioned: PlannedBucket, proxy: FlakyProxy) -> None:
    """Where conditional deletes are unknown the comparison just before must do."""
    rows = [unversioned.put(f"k{n}", "1")[0].row(Action.EXPIRE) for n in range(3)]
    proxy.inject(lambda request: "if-match" in map(str.lower, request.headers), error(501, "NotImplemented"))

    assert [DELETED] * 3 == unversioned.do(rows, spec=through(unversioned, proxy))
    assert [] == unversioned.everything()


def test_an_object_written_between_look_and_delete_stays(
    unversioned: PlannedBucket, proxy: FlakyProxy
) -> None:
    """The condition on the content closes the last gap; the outcome says what was seen then."""
    rows = [unversioned.put("key", "1")[0].row(Action.EXPIRE)]

    def overwrite(_request: Any, forward: Any) -> Response:
        unversioned.put("key", "2")
        answer: Response = forward()
        return answer

    proxy.inject(lambda request: request.method == "DELETE", overwrite, times=1)

    assert [("changed", REWRITTEN)] == unversioned.do(rows, spec=through(unversioned, proxy))
    assert 1 == len(unversioned.everything())


def test_a_dead_store_fails_each_row_and_a_second_call_finishes(
    s3_server: S3Server, versioned: PlannedBucket
) -> None:
    """Nobody answers: every row says so; when the store is back the same rows are done."""
    rows = [versioned.put(f"k{n}", "1", "2")[1].row(Action.DELETE_VERSION) for n in range(3)]
    with reserved_ports(1) as (port,):
        nowhere = {**versioned.spec.options, "endpoint": f"http://127.0.0.1:{port}", "retries": "2"}
        outcomes = versioned.do(rows, spec=StoreSpec(versioned.spec.url, nowhere))

    assert {"failed"} == {outcome for outcome, _ in outcomes}
    assert all("EndpointConnectionError" in reason for _, reason in outcomes)
    assert [DELETED] * 3 == versioned.do(rows)


def test_a_dense_plan_takes_few_requests(versioned: PlannedBucket, proxy: FlakyProxy) -> None:
    """Keys that lie together are looked at together, and deleted in pages."""
    rows = [versioned.put(f"d/{n:03d}", "1", "2")[1].row(Action.DELETE_VERSION) for n in range(60)]

    assert [DELETED] * 60 == versioned.do(
        rows, spec=through(versioned, proxy), options=DeleteOptions(page=30)
    )
    assert 6 >= len(proxy.requests)


def test_a_bucket_that_vanished_fails_each_row(s3_server: S3Server) -> None:
    """A bucket that is not there is no reason to say that its versions are gone."""
    with fresh_bucket(s3_server) as name:
        store = planned_bucket(s3_server, name, Versioning.ENABLED)
        found = store.put("key", "1", "2")
        store.empty()
    outcomes = store.do([found[1].row(Action.DELETE_VERSION), found[0].row(Action.EXPIRE)])

    assert ["failed", "failed"] == [outcome for outcome, _ in outcomes]
