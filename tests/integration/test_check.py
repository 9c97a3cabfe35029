"""`ebb lake check`: the store is listed on the executors and compared with what live references name."""

from __future__ import annotations

import pytest
from tests.contract.store.conftest import is_listing
from tests.services.flaky_proxy import dropped, flaky_proxy
from tests.services.lake import RAW_30_DAYS, make_lake
from tests.services.live_check import check

from ebbtide.core.errors import StoreError
from ebbtide.storage.store import DeleteRequest

pytestmark = pytest.mark.spark


@pytest.fixture
def small(spark, tmp_path):
    """Give a lake of three objects, one of which will be due."""
    lake = make_lake(spark, tmp_path)
    lake.policy(RAW_30_DAYS)
    addresses = lake.upload("raw/1", "keep/1", "keep/2")
    lake.commit()
    return lake, addresses


def test_a_whole_lake_passes_before_and_after_a_run(small):
    """Nothing is missing, neither at first nor after a run deleted what was due."""
    lake, _ = small
    before = check(lake)
    lake.day(40)
    lake.apply(lake.plan())
    after = check(lake)

    assert (3, 0) == (before.live, before.missing_count)
    assert (2, 0) == (after.live, after.missing_count)


def test_a_lost_object_is_named(small):
    """A live object that the store does not have is found, with the key and branch that need it."""
    lake, addresses = small
    lake.store.delete([DeleteRequest(addresses["keep/1"])])
    found = check(lake)

    assert 1 == found.missing_count
    assert (f"keep/1 on branch main: {addresses['keep/1']}",) == found.missing


def test_a_listing_that_fails_half_way_stops_the_check(spark, tmp_path, s3_server, bucket):
    """A store that breaks off a listing is an error, never a store without objects."""
    with flaky_proxy(s3_server.endpoint) as proxy:
        options = {**s3_server.options, "endpoint": proxy.endpoint, "retries": "1"}
        lake = make_lake(spark, tmp_path, f"s3://{bucket}/lake", store_options=options)
        lake.policy(RAW_30_DAYS)
        lake.upload("raw/1", "keep/1")
        lake.commit()
        proxy.inject(is_listing, dropped, times=1000)
        with pytest.raises(StoreError):
            check(lake)
