"""The same plan and apply on a repository in a real S3 bucket, and on one whose server makes trouble."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.contract.store.conftest import is_bulk_delete, refuse_keys
from tests.services.flaky_proxy import FlakyProxy, Request, dropped, flaky_proxy, slow_down
from tests.services.lake import RAW_30_DAYS, REPOSITORY, Lake, make_lake
from tests.services.seaweed import S3Server

from ebbtide.core.errors import EbbtideError, PartlyApplied, SlowDown, StoreError
from ebbtide.state.runs import RunState

pytestmark = pytest.mark.spark


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FlakyProxy]:
    """Put a proxy in front of the server."""
    with flaky_proxy(s3_server.endpoint) as running:
        yield running


@pytest.fixture
def s3_lake(
    spark: SparkSession, tmp_path: Path, s3_server: S3Server, bucket: str, proxy: FlakyProxy
) -> Iterator[Lake]:
    """Give a lake in a bucket, behind the proxy, in which four of six objects are due."""
    options = {**s3_server.options, "endpoint": proxy.endpoint, "retries": "2"}
    lake = make_lake(spark, tmp_path, f"s3://{bucket}/lake", store_options=options)
    lake.policy(RAW_30_DAYS)
    lake.upload("raw/1", "raw/2", "raw/3", "raw/4", "keep/1", "keep/2")
    lake.commit()
    lake.day(40)
    yield lake
    proxy.clear()
    client = s3_server.client()
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for found in page.get("Contents", []):
            client.delete_object(Bucket=bucket, Key=found["Key"])


def address(lake: Lake, key: str) -> str:
    """Give where an object is."""
    return lake.catalog.stat(REPOSITORY, "main", key).address


def is_metadata(request: Request) -> bool:
    """Recognise the reading of a range or metarange."""
    return request.method == "GET" and "/_lakefs/" in request.path


def test_plan_and_apply_in_a_bucket(s3_lake):
    """What is due goes, what is not can be read, outcomes and outputs are there, as in a folder."""
    keep = {address(s3_lake, key) for key in ("keep/1", "keep/2")}
    manifest = s3_lake.plan()
    s3_lake.catalog.copy(REPOSITORY, "main", "raw/4", "keep/4")
    changed = address(s3_lake, "keep/4")
    applied = s3_lake.apply(manifest)

    assert {"changed": 1, "deleted": 3} == {name: tally.objects for name, tally in applied.outcomes.items()}
    assert keep | {changed} == s3_lake.stored()
    assert b"raw/4" == s3_lake.catalog.read(REPOSITORY, "main", "keep/4")
    assert 3 <= len(s3_lake.listing("_lakefs/retention/lc/"))
    assert RunState.SUCCEEDED == s3_lake.state(manifest)


def test_a_passing_slow_down_is_not_seen(s3_lake, proxy):
    """A store that is busy once, at reading and at deleting, is asked again, and the run succeeds."""
    proxy.inject(is_metadata, slow_down, times=1)
    manifest = s3_lake.plan()
    proxy.inject(is_bulk_delete, slow_down, times=1)

    assert 4 == s3_lake.apply(manifest).freed.objects


@pytest.mark.long
def test_a_store_that_stays_busy_for_one_key(s3_lake, proxy, s3_server):
    """SlowDown for one key, inside a 200, is `failed` and exit 4; applying again later does the rest."""
    manifest, busy = s3_lake.plan(), address(s3_lake, "raw/2")
    proxy.inject(is_bulk_delete, refuse_keys(s3_server, {busy: "SlowDown"}))
    with pytest.raises(PartlyApplied, match="1 of 4 items could not be deleted") as partly:
        s3_lake.apply(manifest)
    first = s3_lake.outcomes(manifest)
    proxy.clear()
    second = s3_lake.apply(manifest)
    asked = b"".join(request.body for request in proxy.requests if is_bulk_delete(request))

    assert 4 == partly.value.exit_code
    assert ("failed", "SlowDown") == first[busy]
    assert {"deleted": 4} == {name: tally.objects for name, tally in second.outcomes.items()}
    assert 1 == asked.count(b"<Key>")
    assert RunState.SUCCEEDED == s3_lake.state(manifest)


@pytest.mark.parametrize(("trouble", "kind"), [(slow_down, SlowDown), (dropped, StoreError)])
def test_a_store_that_fails_while_ranges_are_read(
    s3_lake, proxy, trouble: Callable, kind: type[EbbtideError]
):
    """A store that does not give the references stops planning with its own error; there is no plan."""
    before = s3_lake.listing()
    proxy.inject(is_metadata, trouble)
    with pytest.raises(kind) as failed:
        s3_lake.plan()
    proxy.clear()

    assert (kind, 1) == (type(failed.value), failed.value.exit_code)
    assert "What to do: " in str(failed.value)
    assert [RunState.ABANDONED] == [run.state for run in s3_lake.ledger.runs()]
    assert [] == list((s3_lake.shop.root / "runs").iterdir())
    assert before == s3_lake.listing()
