"""Objects on a branch: uploads, staged addresses, copies, moves, deletes, and reading them back."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from ebbtide.core.errors import AddressError, BadInput, LiveObjectMissing, NotFound, ObjectGone, Refused
from ebbtide.storage.store import DeleteRequest
from ebbtide.targets.repository.model import RemovedObject


def _keys(catalog, ref="main", prefix=""):
    """List the keys of a version."""
    return [entry.key for entry in catalog.ls("lake", ref, prefix)]


def test_an_upload_is_staged_with_its_time_size_and_checksum(catalog, clock):
    """An upload can be read at once on its branch, and only there."""
    entry = catalog.upload("lake", "main", "a/b", b"hello")

    assert (clock(), 5, "5d41402abc4b2a76b9719d911017c592") == (entry.created, entry.size, entry.checksum)
    assert entry == catalog.stat("lake", "main", "a/b")
    assert catalog.read("lake", "main", "a/b") == b"hello"
    with pytest.raises(NotFound, match="'a/b' is not in"):
        catalog.stat("lake", "main~0", "a/b")


def test_a_physical_address_names_repository_branch_and_partition(catalog):
    """An address is repos/<repo>/branches/<branch>/<partition>/<object>, all safe in a path."""
    catalog.create_branch("lake", "feature/x.y", "main")

    parts = catalog.upload("lake", "feature/x.y", "k", b"1").address.split("/")

    assert len(parts) == 6
    assert ("repos", catalog.repository("lake").uid, "branches") == tuple(parts[:3])
    assert parts[3].startswith("feature-x-y-")


def test_a_new_partition_begins_after_so_many_objects_and_sorts_first(open_catalog, tmp_path):
    """Partitions hold a bounded number of objects, and the newest comes first in a listing."""
    catalog = open_catalog(partition_objects=2)
    catalog.create_repository("lake", str(tmp_path / "lake"))

    used = [catalog.upload("lake", "main", str(i), b"").address.split("/")[4] for i in range(6)]

    assert used[0] == used[1] > used[2] == used[3] > used[4] == used[5]


def test_a_new_partition_begins_every_hour(catalog, clock):
    """A quiet branch gets a new partition by the hour, so that a scan can stop early there too."""
    first = catalog.upload("lake", "main", "a", b"").address.split("/")[4]
    clock.advance(minutes=59)
    same = catalog.upload("lake", "main", "b", b"").address.split("/")[4]
    clock.advance(minutes=1)
    later = catalog.upload("lake", "main", "c", b"").address.split("/")[4]

    assert first == same > later


def test_upload_many_streams_and_the_last_of_a_key_wins(catalog):
    """A stream of objects arrives whole; a key that comes twice has its last content."""
    items = [(f"k{i:05d}", str(i).encode()) for i in range(2500)] + [("k00000", b"again")]

    count = catalog.upload_many("lake", "main", iter(items))

    assert count == 2501
    assert [f"k{i:05d}" for i in range(2500)] == _keys(catalog)
    assert catalog.read("lake", "main", "k00000") == b"again"


@pytest.mark.parametrize("key", ["", "a\0b", "\ud800", "x" * 1025, None])
def test_bad_keys_are_refused(catalog, key):
    """A key that some database or file could not hold unchanged is refused everywhere."""
    operations = [
        lambda: catalog.upload("lake", "main", key, b""),
        lambda: catalog.stage("lake", "main", key, "s3://other/x", 1),
        lambda: catalog.get_physical_address("lake", "main", key),
    ]

    for operation in operations:
        with pytest.raises(BadInput, match="cannot be a key"):
            operation()


def test_keys_are_ordered_by_their_bytes(catalog):
    """Order is that of UTF-8 bytes, whatever the database's locale: Z before a, é after z, U+10000 last."""
    keys = ["é", "Z", "a", "z", "a/b", "a.b", "\U00010000", "\uffee", " ", "_"]
    catalog.upload_many("lake", "main", [(key, b"") for key in keys])
    staged = _keys(catalog)
    catalog.commit("lake", "main", "m")

    assert sorted(keys, key=str.encode) == staged == _keys(catalog)


def test_ls_with_a_prefix_lays_staging_over_the_commit(catalog):
    """A listing of a branch shows new, changed and deleted keys; that of its head does not."""
    catalog.upload_many("lake", "main", [(k, b"1") for k in ("a/1", "a/2", "a/3", "b/1")])
    catalog.commit("lake", "main", "m")
    catalog.upload("lake", "main", "a/15", b"2")
    catalog.delete("lake", "main", "a/2")

    assert _keys(catalog, "main", "a/") == ["a/1", "a/15", "a/3"]
    assert _keys(catalog, "main~0", "a/") == ["a/1", "a/2", "a/3"]


def test_stage_takes_only_addresses_outside_the_namespace(catalog, tmp_path):
    """What is staged by address lies elsewhere, in canonical form, so no run can delete it."""
    created = datetime(2020, 2, 2, tzinfo=UTC)

    entry = catalog.stage("lake", "main", "k", "s3a://Other//x", 7, "sum", created)

    assert ("s3://other/x", created, 7) == (entry.address, entry.created, entry.size)
    assert entry == catalog.stat("lake", "main", "k")
    for inside in (f"{tmp_path.as_uri()}/lake/x", "repos/x"):
        with pytest.raises(Refused, match="inside the namespace"):
            catalog.stage("lake", "main", "k", inside, 1)
    with pytest.raises(AddressError):
        catalog.stage("lake", "main", "k", "s3://other/../x", 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": -1},
        {"size": None},
        {"size": 1, "checksum": "a\0"},
        {"size": 1, "created": datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)},
    ],
)
def test_stage_refuses_what_is_no_entry(catalog, wrong):
    """A size, time or checksum that cannot be right is refused before anything is written."""
    with pytest.raises(BadInput, match="'k' cannot be staged"):
        catalog.stage("lake", "main", "k", "s3://other/x", **wrong)


def test_an_external_object_can_be_read(catalog, tmp_path):
    """A staged address outside the namespace is read from where it is."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x y").write_bytes(b"there")
    catalog.stage("lake", "main", "k", f"file://{tmp_path}/outside/x%20y", 5)

    assert catalog.read("lake", "main", "k") == b"there"


def test_a_copy_on_the_same_branch_shares_the_object(catalog, clock):
    """Copying inside a branch makes a new entry, of now, for the same object; also of a committed key."""
    source = catalog.upload("lake", "main", "a", b"1")
    catalog.commit("lake", "main", "m")
    clock.advance(days=3)

    made = catalog.copy("lake", "main", "a", "b")

    assert replace(source, key="b", created=clock()) == made == catalog.stat("lake", "main", "b")


def test_a_copy_from_elsewhere_copies_the_data(catalog):
    """From another branch or commit the bytes are copied, into this branch's path."""
    source = catalog.upload("lake", "main", "a", b"1")
    catalog.create_branch("lake", "b1", "main")

    made = catalog.copy("lake", "b1", "a", "a", source_ref="main")

    assert source.address != made.address
    assert "/b1-" in made.address
    assert catalog.read("lake", "b1", "a") == b"1"


def test_a_move_takes_the_object_along(catalog):
    """After a move the old key is gone and the new one has its object; onto itself it changes nothing."""
    source = catalog.upload("lake", "main", "a", b"1")
    catalog.commit("lake", "main", "m")
    catalog.move("lake", "main", "a", "b")
    catalog.move("lake", "main", "b", "b")

    assert _keys(catalog) == ["b"]
    assert source.address == catalog.stat("lake", "main", "b").address


def test_a_delete_of_a_staged_key_leaves_nothing_to_commit(catalog):
    """Deleting what was never committed drops its entry; there is no tombstone."""
    catalog.upload("lake", "main", "a", b"1")
    catalog.delete("lake", "main", "a")

    with pytest.raises(Refused, match="nothing to commit"):
        catalog.commit("lake", "main", "m")
    with pytest.raises(NotFound, match="'a' is not in 'main'"):
        catalog.delete("lake", "main", "a")


def test_a_delete_of_a_committed_key_hides_it_until_it_is_uploaded_again(catalog):
    """A committed key is deleted by a tombstone, which an upload replaces."""
    catalog.upload_many("lake", "main", [("a", b"1"), ("b", b"1")])
    catalog.commit("lake", "main", "m")
    catalog.delete_many("lake", "main", ["a"])
    hidden = _keys(catalog)
    catalog.upload("lake", "main", "a", b"2")

    assert hidden == ["b"]
    assert _keys(catalog) == ["a", "b"]
    assert catalog.read("lake", "main~0", "a") == b"1"


@pytest.mark.parametrize("operation", ["copy", "move"])
def test_copy_and_move_need_their_source(catalog, operation):
    """What is not there cannot be copied or moved, nor can it be done on a tag."""
    catalog.create_tag("lake", "v1", "main")

    with pytest.raises(NotFound, match="'nope' is not in 'main'"):
        getattr(catalog, operation)("lake", "main", "nope", "b")
    with pytest.raises(NotFound):
        getattr(catalog, operation)("lake", "v1", "nope", "b")


def test_delete_many_is_all_or_nothing(catalog):
    """If one key is missing none is deleted."""
    catalog.upload_many("lake", "main", [("a", b""), ("b", b"")])

    with pytest.raises(NotFound, match="'x' is not in"):
        catalog.delete_many("lake", "main", ["a", "x", "b"])

    assert _keys(catalog) == ["a", "b"]


class _Ledger:
    """Remembers removed objects."""

    def __init__(self) -> None:
        self.removed: dict[tuple[str, str], RemovedObject] = {}

    def lookup(self, repository, address):
        """Find a removed object."""
        return self.removed.get((repository, address))


def test_a_deleted_object_says_which_run_took_it(open_catalog, clock, tmp_path):
    """Reading or copying what a run deleted raises ObjectGone with the run and its rules."""
    ledger = _Ledger()
    catalog = open_catalog(removed_items=ledger)
    catalog.create_repository("lake", str(tmp_path / "lake"))
    entry = catalog.upload("lake", "main", "a", b"1")
    catalog.create_branch("lake", "b1", "main")
    catalog.store("lake").delete([DeleteRequest(entry.address)])
    ledger.removed["lake", entry.address] = RemovedObject(entry.address, clock(), 7, ("r1",), restorable=True)

    for operation in (
        lambda: catalog.read("lake", "main", "a"),
        lambda: catalog.copy("lake", "b1", "a", "a", "main"),
    ):
        with pytest.raises(ObjectGone, match=r"run 7 deleted it by r1.*ebb restore"):
            operation()


def test_a_missing_object_that_no_run_deleted_is_an_alarm(catalog):
    """A live entry without its object is never a bare 'not found': it says what is missing and what to do."""
    entry = catalog.upload("lake", "main", "a", b"1")
    catalog.store("lake").delete([DeleteRequest(entry.address)])

    with pytest.raises(LiveObjectMissing, match=f"'a'.*{entry.address}.*What to do: run no garbage"):
        catalog.read("lake", "main", "a")
