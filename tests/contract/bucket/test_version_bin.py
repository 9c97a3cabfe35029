"""The bin of a bucket that keeps versions, on a real S3 server, called as an executor calls it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa
import pytest
from tests.services.bucket_plan import ROWS, Listed, PlannedBucket, planned_bucket
from tests.services.flaky_proxy import error, flaky_proxy
from tests.services.seaweed import S3Server, fresh_bucket

from ebbtide.core.decision import Outcome
from ebbtide.engine.actor import Attempt, DeleteOptions
from ebbtide.storage.store import StoreSpec
from ebbtide.targets.s3.actions.deleter import BucketActor, BucketDeleter
from ebbtide.targets.s3.model import Versioning
from ebbtide.targets.s3.versioned_bin import Kept, VersionBinDeleter, VersionKeeper, VersionRecycler, kept_of

PLACE = "ebbtide-recycle/000001-x/items/"


@pytest.fixture
def bucket(s3_server: S3Server) -> Iterator[PlannedBucket]:
    """Give a bucket with versions."""
    with fresh_bucket(s3_server) as name:
        made = planned_bucket(s3_server, name, Versioning.ENABLED)
        yield made
        made.empty()


def recycle(bucket: PlannedBucket, *rows: dict[str, Any], resumed: bool = False) -> dict[str, str]:
    """Do rows with the bin, and give the outcome of each version."""
    attempt = Attempt(DeleteOptions(), 1, 0, resumed)
    usual = cast("BucketActor", BucketDeleter(bucket.spec, attempt, bucket.versioning))
    batches = [pa.RecordBatch.from_pylist([row], schema=ROWS) for row in rows]
    done = VersionRecycler(usual, bucket.spec, attempt, PLACE)(batches)
    return {row["version"]: row["outcome"] for batch in done for row in batch.to_pylist()}


def restore(bucket: PlannedBucket, kept: Kept) -> Outcome:
    """Bring one item back."""
    return VersionKeeper(bucket.spec).restore(kept, PLACE + kept.address).outcome


def in_bin(bucket: PlannedBucket) -> list[Kept]:
    """Give what the bin has, with every version and marker that lies there."""
    return [kept_of(one.key.removeprefix(PLACE)) for one in bucket.everything(PLACE)]


def body(bucket: PlannedBucket, key: str) -> bytes:
    """Read what is current."""
    return bucket.client.get_object(Bucket=bucket.name, Key=key)["Body"].read()


def test_a_version_that_is_deleted_is_in_the_bin_and_an_expired_object_has_a_note(bucket):
    """What is lost is copied first; what is hidden is noted; and both can be undone, once and again."""
    new, old = bucket.put("a/b", "old", "new")
    first = recycle(bucket, old.row("delete_version"), new.row("expire"))
    again = recycle(bucket, old.row("delete_version"), new.row("expire"), resumed=True)
    aside = in_bin(bucket)
    hidden = bucket.listed("a/b")[0].etag is None
    copy, note = Kept("a/b", old.version, "copy"), Kept("a/b", new.version, "marker")
    unmarked = [restore(bucket, note), restore(bucket, note)]
    seen = body(bucket, "a/b")
    taken = restore(bucket, copy)
    bucket.client.delete_object(Bucket=bucket.name, Key="a/b")
    back = [restore(bucket, copy), restore(bucket, copy)]

    assert {old.version: "recycled", new.version: "recycled"} == first == again
    assert (sorted([copy, note]), True) == (sorted(aside), hidden)
    assert ([Outcome.DELETED] * 2, b"new", Outcome.TAKEN) == (unmarked, seen, taken)
    assert ([Outcome.DELETED] * 2, b"old", []) == (back, body(bucket, "a/b"), in_bin(bucket))


def test_what_stays_leaves_nothing_in_the_bin(bucket):
    """A version that is not what was planned is left alone, and so is the bin."""
    new, old = bucket.put("a", "old", "new")
    other = old._replace(etag="0" * 32)
    bucket.put_only("a", "newest")
    found = recycle(bucket, other.row("delete_version"), new.row("expire"))

    assert {old.version: "changed", new.version: "changed"} == found
    assert [] == in_bin(bucket)
    assert 3 == len(bucket.listed("a"))


def test_another_content_in_the_bin_is_no_copy(bucket):
    """A version whose name in the bin has other bytes stays, and so do they."""
    _, old = bucket.put("a", "old", "new")
    name = PLACE + Kept("a", old.version, "copy").address
    bucket.put_only(name, "odd")

    assert {old.version: "failed"} == recycle(bucket, old.row("delete_version"))
    assert (b"odd", 2) == (body(bucket, name), len(bucket.listed("a")))


def test_an_archived_version_stays_and_so_does_an_archived_copy(bucket):
    """What the store must restore first is neither deleted nor brought back, and whatever has it keeps it."""
    bucket.client.put_object(Bucket=bucket.name, Key="a", Body=b"old", StorageClass="GLACIER")
    new, old = bucket.put("a", "new")
    kept = Kept("a", old.version, "copy")
    with flaky_proxy(bucket.spec.options["endpoint"]) as proxy:
        options = {**bucket.spec.options, "endpoint": proxy.endpoint}
        archived = replace(bucket, spec=StoreSpec(bucket.spec.url, options))
        # This server reads and copies what is of any class.
        proxy.inject(lambda request: "Range" in request.headers, error(403, "InvalidObjectState"))
        stays = recycle(archived, old.row("delete_version")), in_bin(bucket)
        done = recycle(bucket, old.row("delete_version"))
        copy = bucket.client.head_object(Bucket=bucket.name, Key=PLACE + kept.address)
        bucket.client.delete_object(Bucket=bucket.name, Key="a", VersionId=new.version)
        refused = VersionKeeper(archived.spec).restore(kept, PLACE + kept.address)
    aside = in_bin(bucket)
    back = restore(bucket, kept)
    found = bucket.client.head_object(Bucket=bucket.name, Key="a")

    assert ({old.version: "failed"}, []) == stays
    assert ({old.version: "recycled"}, [kept]) == (done, aside)
    assert (Outcome.FAILED, True) == (refused.outcome, "ask the store to restore it" in refused.reason)
    assert (Outcome.DELETED, b"old") == (back, body(bucket, "a"))
    assert ("GLACIER", "GLACIER") == (copy["StorageClass"], found["StorageClass"])


def test_a_marker_is_not_removed_from_under_something_newer(bucket):
    """If the key was written since, the hidden version stays hidden, and its note in the bin."""
    (one,) = bucket.put("a", "1")
    recycle(bucket, one.row("expire"))
    bucket.put_only("a", "2")

    assert Outcome.TAKEN == restore(bucket, Kept("a", one.version, "marker"))
    assert b"2" == body(bucket, "a")
    assert 1 == len(in_bin(bucket))


def test_who_empties_the_bin_leaves_no_version_there_and_reaches_nothing_else(bucket):
    """An item goes with all its versions and no marker; what is not in the bin is denied."""
    new, old = bucket.put("a", "old", "new")
    recycle(bucket, old.row("delete_version"))
    name = PLACE + Kept("a", old.version, "copy").address
    rows = [
        Listed(key, "null", latest=True, etag=None, written=new.written).row("x")
        for key in (name, "a", name + "x")
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=ROWS)
    (done,) = VersionBinDeleter(bucket.spec, Attempt(DeleteOptions(), 1, 0, resumed=False))([batch])

    assert ["deleted", "denied", "absent"] == done.column("outcome").to_pylist()
    assert [new.version] == [one.version for one in bucket.everything()]
