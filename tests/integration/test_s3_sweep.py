"""A sweep over a lake in a real bucket."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.services.lake import REPOSITORY, make_lake

from ebbtide.core.instant import system_clock

pytestmark = pytest.mark.spark


@pytest.mark.long
def test_a_bucket_is_swept_like_a_folder(spark, tmp_path, s3_server, bucket):
    """In a bucket, too, what nothing references goes a day after it was written, and all else stays."""
    lake = make_lake(spark, tmp_path, f"s3://{bucket}/lake", store_options=s3_server.options)
    lake.clock.now = system_clock()
    lake.upload("a", "b")
    lake.commit()
    garbage = lake.upload("x", "y")
    lake.catalog.reset(REPOSITORY, "main")
    staged = lake.upload("staged")
    strangers = {"at the root", "repository/ünïcode: x"}
    for key in strangers:
        lake.store.write(key, b"stranger")
    lake.clock.now += timedelta(days=2)
    manifest = lake.plan_uncommitted()
    lake.apply(manifest, override_breaker=True)
    lake.catalog.delete(REPOSITORY, "main", "staged")
    lake.clock.now += timedelta(days=1)
    optimized = lake.plan_uncommitted()

    assert set(garbage.values()) == lake.due(manifest)
    assert set(staged.values()) == lake.due(optimized)
    assert 0 == optimized.snapshot["clean_runs"]
    assert strangers <= set(lake.listing())
    assert (b"a", b"b") == tuple(lake.catalog.read(REPOSITORY, "main", key) for key in ("a", "b"))
