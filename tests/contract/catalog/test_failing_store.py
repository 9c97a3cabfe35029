"""The catalog on an S3 server that fails on purpose, over many seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.services.failing_store import FailingStore
from tests.services.fault_plan import PRESETS
from tests.services.numbered import number_addresses
from tests.services.seaweed import S3Server, fresh_bucket

from ebbtide.core.errors import EbbtideError
from ebbtide.targets.lake.catalog.catalog import Catalog

KEYS = [f"k{number}" for number in range(5)]


@pytest.fixture(scope="module")
def a_bucket(s3_server: S3Server) -> Iterator[str]:
    """Give one bucket for all seeds; each has a namespace of its own in it."""
    with fresh_bucket(s3_server) as name:
        yield name


@pytest.fixture
def behaving(failing_store: FailingStore) -> Iterator[FailingStore]:
    """Give the failing store, and let it behave afterwards."""
    yield failing_store
    failing_store.behave()


def done(act: Callable[[], object]) -> bool:
    """Tell whether an act succeeds; if not, it must be with one of our errors."""
    try:
        act()
    except EbbtideError:
        return False
    return True


def content(catalog: Catalog, ref: str) -> dict[str, bytes]:
    """Read all that a branch or commit has."""
    return {entry.key: catalog.read("lake", ref, entry.key) for entry in catalog.ls("lake", ref)}


@pytest.mark.parametrize(
    ("preset", "seed"),
    [*(("storm", seed) for seed in range(12)), *(("forgetful", seed) for seed in range(4)), ("skewed", 0)],
)
def test_a_branch_stays_readable(behaving, clock, a_bucket, tmp_path: Path, preset, seed):
    """Uploads, copies and commits that worked are on the branch, whole; the others may be tried again."""
    options = {**behaving.options, "retries": "2"}
    catalog = Catalog(f"sqlite:///{tmp_path}/c.db", clock=clock, store_options=options, range_keys=2)
    number_addresses(catalog).create_repository("lake", f"s3://{a_bucket}/{preset}-{seed}")
    behaving.follow(PRESETS[preset].of_seed(seed))
    uploaded = {
        key for key in KEYS if done(lambda key=key: catalog.upload("lake", "main", key, key.encode()))
    }
    first = done(lambda: catalog.commit("lake", "main", "first"))
    copied = done(lambda: catalog.copy("lake", "main", KEYS[0], "copy"))
    behaving.behave()
    before = {entry.key for entry in catalog.ls("lake", "main")}
    for key in set(KEYS) - uploaded:
        catalog.upload("lake", "main", key, key.encode())
    catalog.commit("lake", "main", "last", allow_empty=True)

    assert uploaded | ({"copy"} if copied else set()) == before
    assert {key: key.encode() for key in KEYS} | ({"copy": b"k0"} if copied else {}) == content(
        catalog, "main"
    )
    assert 2 + first == len(list(catalog.log("lake", "main")))
    catalog.close()
