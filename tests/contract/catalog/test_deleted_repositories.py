"""Deleted repositories: known until their objects are collected; only their namespaces are taken."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta

import pyarrow as pa
import pytest

from ebbtide.core.errors import AlreadyExists, Busy, NotFound, Refused
from ebbtide.targets.lake.catalog.model import Entry
from ebbtide.targets.lake.catalog.ranges import ENTRIES
from ebbtide.targets.repository.model import DeletedRepository


def test_a_deleted_repository_is_remembered(catalog, clock, open_catalog):
    """What a delete leaves is found by name and uid, also by another that opens the catalog."""
    repo = catalog.repository("lake")
    clock.advance(days=3)

    gone = catalog.delete_repository("lake")

    assert DeletedRepository("lake", repo.uid, repo.namespace, clock()) == gone
    assert [gone] == open_catalog().deleted_repositories()
    assert gone == open_catalog().deleted_repository("lake")
    assert [] == catalog.repositories()


def test_its_objects_can_be_reached(catalog):
    """The store of a deleted repository is rooted at its namespace and still has everything."""
    entry = catalog.upload("lake", "main", "a", b"1")
    gone = catalog.delete_repository("lake")

    store = catalog.deleted_store(gone.uid)

    assert gone.namespace == store.spec.url
    assert b"1" == store.read(entry.address)


def test_the_store_of_a_deleted_repository_has_the_catalogs_options(open_catalog, tmp_path):
    """Whoever collects reaches the store as everybody else does."""
    catalog = open_catalog(store_options={"fsync": "yes"})
    catalog.create_repository("lake", str(tmp_path / "lake"))
    gone = catalog.delete_repository("lake")

    assert {"fsync": "yes"} == catalog.deleted_store(gone.uid).spec.options


def test_the_name_is_free_and_the_latest_of_a_name_is_found(catalog, clock, tmp_path):
    """A name can be deleted again and again; all are listed by time, and found is the last."""
    gone = [catalog.delete_repository("lake")]
    for number in range(2):
        clock.advance(hours=1)
        catalog.create_repository("lake", str(tmp_path / f"lake-{number}"))
        gone.append(catalog.delete_repository("lake"))
    catalog.create_repository("lake", str(tmp_path / "lake-now"))

    assert gone == catalog.deleted_repositories()
    assert gone[-1] == catalog.deleted_repository("lake")
    assert ["lake"] == [repo.name for repo in catalog.repositories()]


@pytest.mark.parametrize("namespace", ["lake", "lake/inner", "."])
def test_a_namespace_waits_for_its_collection(catalog, tmp_path, namespace):
    """Who would put new objects among those of a deleted repository is told to collect them first."""
    gone = catalog.delete_repository("lake")
    with pytest.raises(Refused, match=r"still to be collected.*ebb plan lake:lake --deleted") as refused:
        catalog.create_repository("other", str(tmp_path / namespace))
    catalog.release(gone.uid)
    catalog.forget_deleted(gone.uid)

    made = catalog.create_repository("other", str(tmp_path / namespace))

    assert "choose another namespace" in refused.value.fix
    assert ([made], []) == (catalog.repositories(), catalog.deleted_repositories())


def test_what_is_forgotten_is_not_found(catalog):
    """A deleted repository that was collected, and one that never was, are unknown by name and by uid."""
    gone = catalog.delete_repository("lake")
    catalog.forget_deleted(gone.uid)

    for ask, named in (
        (catalog.deleted_repository, "lake"),
        (catalog.deleted_store, gone.uid),
        (catalog.forget_deleted, gone.uid),
        (catalog.deleted_repository, "nope"),
    ):
        with pytest.raises(NotFound, match=rf"no deleted repository '{named}'.*ebb lake list --deleted"):
            ask(named)


def test_a_repository_that_is_there_is_not_retired(catalog):
    """What may be collected whole is only what was deleted, not its living namesake."""
    uid = catalog.repository("lake").uid

    for ask, named in ((catalog.deleted_repository, "lake"), (catalog.forget_deleted, uid)):
        with pytest.raises(NotFound, match="no deleted repository"):
            ask(named)


def test_who_asks_for_a_deleted_repository_is_told(catalog, clock):
    """The error says when it was deleted and how to collect it; once that is done, it is just unknown."""
    gone = catalog.delete_repository("lake")
    with pytest.raises(NotFound, match="no repository 'lake'") as deleted:
        catalog.repository("lake")
    catalog.forget_deleted(gone.uid)
    with pytest.raises(NotFound, match="no repository 'lake'") as unknown:
        catalog.repository("lake")

    assert "it was deleted at 2026-01-01T00:00:00Z: collect its objects with" in deleted.value.fix
    assert "'ebb plan lake:lake --deleted' and 'ebb apply'" in deleted.value.fix
    assert "deleted" not in str(unknown.value)


def test_a_repository_is_not_deleted_while_a_run_deletes_its_objects(catalog):
    """A closed gate refuses the delete at once and changes nothing; once it is open, the delete works."""
    sequence = catalog.close_fence("lake", "7@now")
    with pytest.raises(Busy, match=r"run 7 is deleting objects of 'lake'.*finish it with 'ebb apply 7'"):
        catalog.delete_repository("lake")
    after = (catalog.sequence("lake"), catalog.deleted_repositories(), catalog.fence_holder("lake"))
    catalog.open_fence("lake", "7@now")

    catalog.delete_repository("lake")

    assert (sequence, [], "7@now") == after
    assert ["lake"] == [gone.name for gone in catalog.deleted_repositories()]


def test_nothing_new_may_refer_to_what_will_be_collected(catalog, tmp_path):
    """An address inside a deleted repository's namespace can neither be staged nor imported."""
    entry = catalog.upload("lake", "main", "a", b"1")
    gone = catalog.delete_repository("lake")
    catalog.create_repository("lake", str(tmp_path / "new"))
    address = f"{gone.namespace}/{entry.address}"
    row = {"key": "a", "address": address, "created": entry.created, "size": 1, "checksum": ""}

    with pytest.raises(Refused, match="inside the namespace of deleted repository 'lake'"):
        catalog.stage("lake", "main", "a", address, 1)
    with pytest.raises(Refused, match="inside the namespace of deleted repository 'lake'"):
        catalog.import_entries("lake", "main", [pa.Table.from_pylist([row], schema=ENTRIES)], "m")
    assert [] == list(catalog.ls("lake", "main"))


def test_what_is_staged_while_a_repository_is_made_anew_is_refused(catalog, tmp_path, clock):
    """Entries that were checked for one repository do not land in another of its name."""

    def entries():
        catalog.delete_repository("lake")
        made = catalog.create_repository("lake", str(tmp_path / "new"))
        yield Entry("a", f"{made.namespace}/x", clock(), 1)

    with pytest.raises(NotFound, match="deleted while this was under way"):
        catalog.stage_many("lake", "main", entries())
    assert [] == list(catalog.ls("lake", "main"))


def test_a_token_dies_with_its_repository(catalog, tmp_path):
    """A repository made anew under the same name does not take the old one's tokens."""
    made = catalog.get_physical_address("lake", "main", "k")
    catalog.store("lake").write(made.address, b"")
    catalog.delete_repository("lake")
    catalog.create_repository("lake", str(tmp_path / "new"))

    with pytest.raises(Refused, match="never issued"):
        catalog.link_physical_address("lake", "main", "k", made.token, size=0)
    assert [] == list(catalog.open_uploads("lake"))


def test_a_repository_deleted_at_once_is_retired_once(catalog, open_catalog):
    """Of several that delete at the same time one does, and the others find nothing to delete."""
    others = [open_catalog() for _ in range(4)]
    start = threading.Barrier(4)

    def delete(other):
        start.wait()
        with contextlib.suppress(NotFound):
            return other.delete_repository("lake")

    with ThreadPoolExecutor(4) as pool:
        deleted = [gone for gone in pool.map(delete, others) if gone is not None]

    assert deleted == catalog.deleted_repositories()
    assert 1 == len(deleted)


def test_a_namespace_is_never_free_between_its_owner_and_its_retirement(catalog, open_catalog, monkeypatch):
    """Who tries to take the namespace after every transaction of a delete never gets it."""
    namespace = catalog.repository("lake").namespace
    greedy, writing, refusals = open_catalog(), catalog._database.writing, []

    @contextlib.contextmanager
    def then_take():
        with writing() as connection:
            yield connection
        with pytest.raises(Refused) as refused:
            greedy.create_repository("greedy", namespace)
        refusals.append(refused.value.why)

    monkeypatch.setattr(catalog._database, "writing", then_take)
    catalog.delete_repository("lake")

    assert ["its objects are still to be collected, and new ones would go with them"] == refusals


def test_a_delete_waits_for_who_creates_and_the_other_way_round(catalog, open_catalog, tmp_path):
    """On both databases a delete that is under way and a creation take turns."""
    other = open_catalog(fence_wait=timedelta(0))
    with ThreadPoolExecutor(1) as pool:
        with catalog._writing("lake"):
            creating = pool.submit(other.create_repository, "second", str(tmp_path / "second"))
            done, _ = wait([creating], timeout=0.5)
        made = creating.result(timeout=300)

    assert (set(), "second") == (done, made.name)
    with pytest.raises(AlreadyExists):
        other.create_repository("second", str(tmp_path / "third"))
