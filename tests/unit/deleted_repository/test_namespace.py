"""Which prefixes make up a namespace, and whether anything of a deleted repository is left in it."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pyarrow as pa
import pytest

from ebbtide.storage.store import StoreSpec, open_store
from ebbtide.targets.lake.repository import DeletedCatalogRepository
from ebbtide.targets.repository.deleted_repository import has_own, own_folders, prefixes
from ebbtide.targets.repository.inventory import _Lister
from ebbtide.targets.repository.model import DeletedRepository

UID = "0123abcd"
KEYS = [
    "_lakefs/committed/1.parquet",
    "_lakefs/top",
    "a",
    "ab",
    "a-folder/x",
    f"repos/{UID}.txt",
    f"repos/{UID}/branches/b/1_0/x",
    f"repos/{UID}/branches/b/2_0/x",
    f"repos/{UID}/branches/b/2_0/y",
    f"repos/{UID}/branches/b/file",
    f"repos/{UID}/branches/file",
    f"repos/{UID}/stray",
    f"repos/{UID}0/x",
]


@pytest.fixture
def store(tmp_path):
    """Give a store of an empty folder."""
    return open_store(StoreSpec(tmp_path.as_uri()))


def namespace(store):
    """Give the namespace of a deleted repository in a store."""
    gone = DeletedRepository("lake", UID, store.spec.url, datetime(2026, 1, 1, tzinfo=UTC))
    return DeletedCatalogRepository(SimpleNamespace(deleted_store=lambda _uid: store), gone)


def fill(store, keys):
    """Write objects."""
    for key in keys:
        store.write(key, b"x")


def test_prefixes_are_the_whole_namespace_once(store):
    """Listed prefix by prefix, every key comes once, and each partition has a prefix of its own."""
    fill(store, KEYS)
    found = prefixes(namespace(store))
    batch = pa.RecordBatch.from_pydict({"prefix": found})
    listed = list(_Lister(store.spec, store.spec.url, merged=True)([batch]))

    assert sorted(KEYS) == sorted(key for rows in listed for key in rows.column("key").to_pylist())
    assert {f"repos/{UID}/branches/b/1_0/", f"repos/{UID}/branches/b/2_0/"} <= set(found)


@pytest.mark.parametrize(
    ("keys", "left"),
    [
        ([], False),
        (["a", "repos.txt", f"repos/{UID}0/x", f"repos/{UID}.txt", "_lakefs.txt"], False),
        ([f"repos/{UID}/e\u0301", "_lakefs/a\tb"], False),
        ([f"repos/{UID}/e\u0301", f"repos/{UID}/f"], True),
        ([f"repos/{UID}/stray"], True),
        (["_lakefs/staged/1.parquet"], True),
    ],
)
def test_what_is_left_is_the_repositorys_own(store, keys, left):
    """Only what the repository wrote keeps it known: strangers and names that it never gives do not."""
    fill(store, keys)

    assert left == has_own(namespace(store))


def test_metadata_beside_another_repository_may_be_its_own(store):
    """With a neighbour in the namespace only the data is the deleted repository's for certain."""
    fill(store, ["_lakefs/staged/1.parquet"])
    left = namespace(store)
    alone = own_folders(left), has_own(left)
    fill(store, [f"repos/{UID}0/x"])

    assert ((f"repos/{UID}/", "_lakefs/"), True) == alone
    assert ((f"repos/{UID}/",), False) == (own_folders(left), has_own(left))


def test_neighbours_are_other_repositories(store):
    """The folders of other repositories are named, the deleted one's and files are not."""
    fill(store, KEYS)

    assert [f"repos/{UID}0/"] == namespace(store).neighbours()
