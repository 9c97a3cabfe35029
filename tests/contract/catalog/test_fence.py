"""The gate: while it is closed nothing new comes to refer to objects that are there already."""

from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from datetime import timedelta

import pyarrow as pa
import pytest

from ebbtide.core.errors import Busy, NotFound, ObjectGone
from ebbtide.storage.store import DeleteRequest
from ebbtide.targets.lake.catalog import fence
from ebbtide.targets.lake.catalog.ranges import ENTRIES
from ebbtide.targets.repository.model import RemovedObject


def _import(catalog):
    """Commit an entry that names an object which is there, without staging it."""
    entry = catalog.stat("lake", "main", "a")
    row = {"key": "z", "address": entry.address, "created": entry.created, "size": 1, "checksum": ""}
    return catalog.import_entries("lake", "main", [pa.Table.from_pylist([row], schema=ENTRIES)], "import")


REFERRING = {
    "copy": lambda catalog: catalog.copy("lake", "b1", "a", "c"),
    "copy, its own branch named": lambda catalog: catalog.copy("lake", "b1", "a", "c", source_ref="b1"),
    "move": lambda catalog: catalog.move("lake", "b1", "a", "c"),
    "create_branch": lambda catalog: catalog.create_branch("lake", "b2", "main"),
    "create_tag": lambda catalog: catalog.create_tag("lake", "v1", "main"),
    "merge": lambda catalog: catalog.merge("lake", "b1", "main"),
    "revert": lambda catalog: catalog.revert("lake", "b1", "b1"),
    "reset": lambda catalog: catalog.reset("lake", "main", to="b1"),
    "import_entries": _import,
}

OTHERS = {
    "upload": lambda catalog: catalog.upload("lake", "main", "u", b""),
    "upload_many": lambda catalog: catalog.upload_many("lake", "main", [("u", b"")]),
    "stage": lambda catalog: catalog.stage("lake", "main", "s", "s3://other/s", 1),
    "copy of data": lambda catalog: catalog.copy("lake", "main", "on-b1", "c", source_ref="b1"),
    "commit": lambda catalog: catalog.commit("lake", "dirty", "m"),
    "reset of staging": lambda catalog: catalog.reset("lake", "dirty"),
    "delete": lambda catalog: catalog.delete("lake", "main", "a"),
    "delete_branch": lambda catalog: catalog.delete_branch("lake", "b1"),
    "delete_tag": lambda catalog: catalog.delete_tag("lake", "t1"),
    "set_policy": lambda catalog: catalog.set_policy("lake", "{}", "json"),
    "snapshot": lambda catalog: catalog.snapshot("lake"),
    "set_retention": lambda catalog: catalog.set_retention("lake", "{}", "json"),
}


@pytest.fixture
def naps():
    """Collect how long the catalog slept."""
    return []


@pytest.fixture
def forked(open_catalog, tmp_path, naps):
    """Give two branches, a tag and a third branch with something staged; who waits does so in no time."""
    catalog = open_catalog(range_keys=4, sleep=naps.append)
    catalog.create_repository("lake", str(tmp_path / "lake"))
    catalog.upload("lake", "main", "a", b"a")
    catalog.commit("lake", "main", "m")
    for branch in ("b1", "dirty"):
        catalog.create_branch("lake", branch, "main")
        catalog.upload("lake", branch, f"on-{branch}", b"")
    catalog.commit("lake", "b1", "m")
    catalog.create_tag("lake", "t1", "main")
    return catalog


@pytest.mark.parametrize("name", REFERRING)
def test_what_makes_a_reference_waits_and_is_refused(forked, naps, name):
    """Each such operation waits half a minute, changes nothing, and works once the gate is open."""
    sequence = forked.close_fence("lake", "7@now")

    with pytest.raises(Busy) as refused:
        REFERRING[name](forked)

    assert "run 7 is deleting objects of 'lake' right now, since 2026-01-01T00:00:00Z" == refused.value.what
    assert "if run 7 was interrupted, finish it with 'ebb apply 7'" in refused.value.fix
    assert 30 == pytest.approx(sum(naps))
    assert sequence == forked.sequence("lake")
    forked.open_fence("lake", "7@now")
    REFERRING[name](forked)

    assert sequence < forked.sequence("lake")


@pytest.mark.parametrize("name", OTHERS)
def test_what_makes_no_reference_to_old_objects_does_not_wait(forked, naps, name):
    """Uploads, commits and deletes work while a run deletes, and need not wait."""
    forked.close_fence("lake", "7")

    OTHERS[name](forked)

    assert [] == naps


def test_a_link_waits(forked, naps):
    """An address is given out while a run deletes, but not linked: a run may take its object for garbage."""
    forked.close_fence("lake", "7")
    made = forked.get_physical_address("lake", "main", "k")
    forked.store("lake").write(made.address, b"")
    with pytest.raises(Busy):
        forked.link_physical_address("lake", "main", "k", made.token, size=0)
    forked.open_fence("lake", "7")
    waited = sum(naps)
    forked.link_physical_address("lake", "main", "k", made.token, size=0)

    assert 30 == pytest.approx(waited)
    assert waited == sum(naps)


def test_the_gate_has_one_holder(catalog, open_catalog):
    """Closing twice is one closing; another can neither close nor open it; the sequence stays."""
    sequence = catalog.sequence("lake")

    assert catalog.fence_holder("lake") is None
    assert [sequence, sequence] == [catalog.close_fence("lake", "7") for _ in range(2)]
    with pytest.raises(Busy, match="run 7 is deleting objects of 'lake'"):
        open_catalog().close_fence("lake", "8")
    catalog.open_fence("lake", "8")

    assert "7" == open_catalog().fence_holder("lake")
    catalog.open_fence("lake", "7")
    catalog.open_fence("lake", "7")

    assert sequence == catalog.close_fence("lake", "8")
    assert "8" == catalog.fence_holder("lake")


def test_a_gate_is_of_one_repository(catalog, tmp_path):
    """A closed gate stops nobody elsewhere, and a repository that is not there has none."""
    catalog.create_repository("other", str(tmp_path / "other"))
    catalog.close_fence("lake", "7")
    catalog.create_branch("other", "b1", "main")

    assert catalog.fence_holder("other") is None
    for ask in (catalog.fence_holder, lambda name: catalog.close_fence(name, "7")):
        with pytest.raises(NotFound, match="no repository 'nope'"):
            ask("nope")


def test_who_waits_goes_on_when_the_gate_opens(open_catalog, forked):
    """A copy in another thread does not end while the gate is closed, and ends well once it is open."""
    patient = open_catalog(fence_wait=timedelta(minutes=5))
    forked.close_fence("lake", "7")
    with ThreadPoolExecutor(1) as pool:
        copying = pool.submit(patient.copy, "lake", "main", "a", "c")
        done, _ = wait([copying], timeout=0.5)
        staged = forked.prepare_uncommitted("lake", "main")
        forked.open_fence("lake", "7")
        entry = copying.result(timeout=300)

    assert (set(), ()) == (done, staged)
    assert forked.stat("lake", "main", "a").address == entry.address


def test_closing_waits_for_who_is_inside(catalog):
    """A reference that is being made when the gate closes is there, and counted, when closing returns."""
    catalog.upload("lake", "main", "a", b"")
    with ThreadPoolExecutor(1) as pool:
        with catalog._referring("lake") as writing:
            closing = pool.submit(catalog.close_fence, "lake", "7")
            done, _ = wait([closing], timeout=0.5)
        sequence = closing.result(timeout=300)

    assert (set(), writing.sequence) == (done, sequence)


def test_a_gate_that_closes_after_the_first_look_is_seen(forked, monkeypatch):
    """The look that counts is the one under the lock: a gate that closed just before it stops the copy."""
    look, looks = fence.find_fence, []

    def then_close(connection, repo):
        found = look(connection, repo)
        looks.append(found)
        if len(looks) == 1:
            forked.close_fence("lake", "7")
        return found

    monkeypatch.setattr(fence, "find_fence", then_close)

    with pytest.raises(Busy):
        forked.copy("lake", "main", "a", "c")

    assert looks[0] is None
    assert () == forked.prepare_uncommitted("lake", "main")


def test_many_at_once_never_refer_while_the_gate_is_closed(open_catalog, catalog):
    """However copies and closings interleave, none appears from closing to opening, and none is lost."""
    catalog.upload("lake", "main", "a", b"")
    seen = []

    def copy(number: int) -> None:
        open_catalog(fence_wait=timedelta(minutes=5)).copy("lake", "main", "a", f"copy-{number}")

    with ThreadPoolExecutor(4) as pool:
        copying = [pool.submit(copy, number) for number in range(12)]
        while not all(future.done() for future in copying):
            catalog.close_fence("lake", "7")
            entries = len(list(catalog.ls("lake", "main", "copy-")))
            wait(copying, timeout=0.05)
            after = len(list(catalog.ls("lake", "main", "copy-")))
            catalog.open_fence("lake", "7")
            seen.append((entries, after))
            # Open until somebody got in, however slow everybody is.
            waiting = [future for future in copying if not future.done()]
            wait(waiting, timeout=60, return_when=FIRST_COMPLETED)
        [future.result() for future in copying]

    assert all(entries == after for entries, after in seen)
    assert 12 == len(list(catalog.ls("lake", "main", "copy-")))


@pytest.mark.parametrize("operation", ["copy", "move"])
def test_an_object_that_is_gone_gets_no_second_name(open_catalog, catalog, clock, operation):
    """Who waited for the gate and finds the object deleted is told who did it, and nothing is staged."""

    class Buried:
        """Knows that run 7 deleted everything."""

        def lookup(self, repository, address):
            """Say so."""
            return RemovedObject(address, clock(), 7, ("old",), restorable=False)

    catalog = open_catalog(removed_items=Buried())
    address = catalog.upload("lake", "main", "a", b"").address
    catalog.commit("lake", "main", "m")
    list(catalog.store("lake").delete([DeleteRequest(address)]))

    with pytest.raises(ObjectGone, match="run 7 deleted it by old"):
        getattr(catalog, operation)("lake", "main", "a", "c")

    assert ["a"] == [entry.key for entry in catalog.ls("lake", "main")]
    assert () == catalog.prepare_uncommitted("lake")
