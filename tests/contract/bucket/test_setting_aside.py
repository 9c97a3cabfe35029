"""Setting aside on a real S3 server, called as an executor calls it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, cast

import pyarrow as pa
import pytest
from tests.services.bucket_plan import ROWS, PlannedBucket, planned_bucket
from tests.services.seaweed import S3Server, fresh_bucket

from ebbtide.engine.actor import Attempt, DeleteOptions
from ebbtide.targets.s3.actions.deleter import BucketActor
from ebbtide.targets.s3.bin import BucketRecycler
from ebbtide.targets.s3.model import Versioning

PLACE = "ebbtide-recycle/000001-x/items/"


@pytest.fixture
def bucket(s3_server: S3Server) -> Iterator[PlannedBucket]:
    """Give a bucket without versions."""
    with fresh_bucket(s3_server) as name:
        yield planned_bucket(s3_server, name, Versioning.DISABLED)


def nothing_else(batches: Any) -> Iterator[Any]:
    """Stand for whoever does the rest, of which there is none here."""
    yield from batches


def set_aside(bucket: PlannedBucket, *rows: dict[str, Any], resumed: bool = False) -> list[str]:
    """Set rows aside, and give the outcome of each."""
    usual = cast("BucketActor", nothing_else)
    attempt = Attempt(DeleteOptions(), 1, 0, resumed)
    batch = pa.RecordBatch.from_pylist(list(rows), schema=ROWS)
    (done,) = BucketRecycler(usual, bucket.spec, attempt, PLACE)([batch])
    return list(done.column("outcome").to_pylist())


def keys_of(bucket: PlannedBucket) -> list[str]:
    """List the keys."""
    return [one.key for one in bucket.everything()]


def test_what_is_as_planned_goes_and_nothing_else(bucket):
    """An object goes into the bin once; rewritten, retimed or unknown ones stay, what is gone is absent."""
    (same,), (other,), (old,), (gone,) = (bucket.put(key, key) for key in ("same", "other", "old", "gone"))
    bucket.put_only("other", "rewritten")
    bucket.client.delete_object(Bucket=bucket.name, Key="gone")
    retimed = old._replace(written=old.written - timedelta(days=1))
    unknown = same._replace(etag=None)
    rows = [one.row("expire") for one in (same, other, retimed, gone)]
    first = set_aside(bucket, unknown.row("expire"), *rows)
    second = set_aside(bucket, same.row("expire"), resumed=True)

    assert ["denied", "recycled", "changed", "changed", "absent"] == first
    assert ["recycled"] == second
    assert [PLACE + "same", "old", "other"] == keys_of(bucket)


def test_a_bucket_that_got_versions_is_left_alone(bucket):
    """The plan was made for a bucket in which a delete is a delete."""
    (one,) = bucket.put("a", "1")
    bucket.client.put_bucket_versioning(Bucket=bucket.name, VersioningConfiguration={"Status": "Enabled"})

    assert ["changed"] == set_aside(bucket, one.row("expire"))
    assert ["a"] == keys_of(bucket)
