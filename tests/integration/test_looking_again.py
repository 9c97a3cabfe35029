"""Looking again at the keys of a plan: all their versions are found, in few requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.services.bucket_plan import PlannedBucket, planned_bucket
from tests.services.flaky_proxy import FlakyProxy, flaky_proxy
from tests.services.seaweed import S3Server, fresh_bucket

from ebbtide.storage.s3_bucket import VersionedBucket
from ebbtide.storage.store import StoreSpec
from ebbtide.targets.s3.actions.recheck import VersionLister, groups_of, just_before
from ebbtide.targets.s3.model import Versioning

KEYS = [f"{folder}/{number:02d}" for folder in ("a", "b/c") for number in range(30)]
PAGE = 32
EACH = 2


@pytest.fixture(scope="module")
def filled(s3_server: S3Server) -> Iterator[PlannedBucket]:
    """Give a bucket with two versions of each key."""
    with fresh_bucket(s3_server) as name:
        store = planned_bucket(s3_server, name, Versioning.ENABLED)
        for key in KEYS:
            for body in ("1", "2"):
                store.put_only(key, body)
        yield store
        store.empty()


@pytest.fixture(scope="module")
def proxy(s3_server: S3Server) -> Iterator[FlakyProxy]:
    """Run a proxy that counts requests."""
    with flaky_proxy(s3_server.endpoint) as made:
        yield made


def look(
    store: PlannedBucket, proxy: FlakyProxy, keys: Sequence[str], ordered: str
) -> tuple[dict[str, list[str]], int]:
    """Look at keys in small pages, and say how many requests it took."""
    proxy.clear()
    options = {**store.spec.options, "endpoint": proxy.endpoint, "ordered": ordered}
    connection = VersionedBucket(StoreSpec(store.spec.url, options))
    with ThreadPoolExecutor(4) as threads:
        seen = VersionLister(connection, threads, page=PAGE).look([keys], dict.fromkeys(keys, EACH - 1))
    if seen.failed:
        raise AssertionError(seen.failed)
    found = {key: [row.version_id for row in rows] for key, rows in seen.versions.items()}
    return found, len(proxy.requests)


@pytest.mark.parametrize("ordered", ["yes", "no"])
@pytest.mark.parametrize(
    ("keys", "most"),
    [
        pytest.param(KEYS, 8, id="all of them"),
        pytest.param(KEYS[:30], 5, id="one folder"),
        pytest.param(KEYS[::10], 10, id="few, far apart"),
        pytest.param(["a/0", "a/00", "a/000", "a/05!", "nowhere"], 8, id="mostly absent"),
    ],
)
def test_all_versions_of_each_key_are_found(
    filled: PlannedBucket, proxy: FlakyProxy, keys: list[str], most: int, ordered: str
) -> None:
    """However close the keys lie and whatever order the store keeps, a look is complete and cheap."""
    there = {key: [one.version for one in filled.listed(key)] for key in keys}

    found, requests = look(filled, proxy, sorted(keys), ordered)

    assert there == found
    assert requests <= most


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (10, [["a1", "a2", "b", "ba", "bb"]]),
        (4, [["a1", "a2"], ["b", "ba", "bb"]]),
        (2, [["a1", "a2"], ["b"], ["ba"], ["bb"]]),
        (1, [["a1"], ["a2"], ["b"], ["ba"], ["bb"]]),
    ],
)
def test_keys_are_parted_where_they_begin_differently(most: int, expected: list[list[str]]) -> None:
    """Groups hold no more than was asked for, and what is in one group begins alike."""
    keys = ["a1", "a2", "b", "ba", "bb"]

    assert expected == groups_of(keys, dict.fromkeys(keys, 1), most)


@pytest.mark.parametrize(
    ("key", "expected"), [("ab", "aa"), ("a!", "a"), ("a/", "a."), ("é", ""), ("a\ue000", "a")]
)
def test_a_listing_begins_just_before_a_key(key: str, expected: str) -> None:
    """The place before a key is smaller than it, and made of characters that every server takes."""
    assert expected == just_before(key)
    assert expected < key
