"""Setting aside the rows of a partition, called as an executor calls it."""

from __future__ import annotations

import pytest
from tests.services.planned_rows import planned_row

from ebbtide.engine.actor import Attempt, DeleteOptions, store_deleter
from ebbtide.engine.recycle import Recycler
from ebbtide.storage.store import Store, StoreSpec, open_store

PLACE = "_lakefs/recycle/000001-0123456789ab/items/"
NEEDED = "referenced since the plan was made: keep/x on branch main"


def keys_of(store: Store) -> list[str]:
    """List what is stored."""
    return [key for batch in store.list() for key in batch["key"].to_pylist()]


@pytest.mark.parametrize(
    ("kept_because", "resumed", "stored", "outcome", "left"),
    [
        (None, False, ["a"], "recycled", [PLACE + "a"]),
        (None, False, [], "absent", []),
        (None, True, [PLACE + "a"], "recycled", [PLACE + "a"]),
        (None, True, ["a", PLACE + "a"], "recycled", [PLACE + "a"]),
        (None, True, [], "absent", []),
        (NEEDED, False, ["a"], "changed", ["a"]),
        (NEEDED, True, ["a"], "changed", ["a"]),
        (NEEDED, True, [PLACE + "a"], "changed", ["a"]),
        (NEEDED, True, ["a", PLACE + "a"], "changed", ["a"]),
    ],
)
def test_what_becomes_of_a_row(tmp_path, kept_because, resumed, stored, outcome, left):
    """What is due lies in the bin, and what came to be needed is in its place, whatever a kill left."""
    spec = StoreSpec(tmp_path.as_uri())
    store = open_store(spec)
    for key in stored:
        store.write(key, b"1")
    recycler = Recycler(spec, Attempt(DeleteOptions(), 1, 0, resumed), PLACE, "_lakefs/")
    (done,) = recycler([planned_row("a", kept_because)])

    assert (outcome, left) == (done.column("outcome")[0].as_py(), keys_of(store))


def test_what_the_bin_has_otherwise_is_not_overwritten(tmp_path):
    """Another content under the name in the bin leaves the object where it is, and the run unfinished."""
    spec = StoreSpec(tmp_path.as_uri())
    store = open_store(spec)
    store.write("a", b"1")
    store.write(PLACE + "a", b"2")
    (done,) = Recycler(spec, Attempt(DeleteOptions(), 1, 0, resumed=False), PLACE, "_lakefs/")(
        [planned_row("a")]
    )

    assert "failed" == done.column("outcome")[0].as_py()
    assert [b"1", b"2"] == [store.read("a"), store.read(PLACE + "a")]


@pytest.mark.parametrize("address", ["_lakefs/recycle/000000-x/items/a", "_lakefs/committed/a", "s3://b/a"])
def test_metadata_and_the_bin_itself_are_never_set_aside(tmp_path, address):
    """A plan that names metadata, another bin's item or another place is denied."""
    spec = StoreSpec(tmp_path.as_uri())
    (done,) = Recycler(spec, Attempt(DeleteOptions(), 1, 0, resumed=False), PLACE, "_lakefs/")(
        [planned_row(address)]
    )

    assert "denied" == done.column("outcome")[0].as_py()


@pytest.mark.parametrize(
    ("address", "outcome"),
    [
        ("_lakefs/recycle/000001-x/items/a", "deleted"),
        ("_lakefs/recycled/a", "denied"),
        ("_lakefs/committed/a", "denied"),
        ("repos/a", "denied"),
    ],
)
def test_who_empties_the_bin_reaches_nothing_else(tmp_path, address, outcome):
    """Whatever a bin's plan says, what does not lie in the bin's folder stays."""
    spec = StoreSpec(tmp_path.as_uri())
    store = open_store(spec)
    store.write(address, b"1")
    deleter = store_deleter(
        spec, Attempt(DeleteOptions(), 1, 0, resumed=False), not_below="", only_below="_lakefs/recycle/"
    )
    (done,) = deleter([planned_row(address)])

    assert outcome == done.column("outcome")[0].as_py()
    assert ([] if outcome == "deleted" else [address]) == keys_of(store)
