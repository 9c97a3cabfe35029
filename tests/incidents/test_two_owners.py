"""Two owners of one namespace: a second catalog, a symbolic link, or a copy reaches another's objects."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy
from pyspark.sql import SparkSession
from tests.services.lake import make_lake

from ebbtide.cli.main import run
from ebbtide.core.errors import BadInput, ForeignNamespace, Refused
from ebbtide.storage.namespace import MARKER, read_owner
from ebbtide.storage.store import open_store
from ebbtide.targets.lake.catalog.catalog import Catalog
from ebbtide.targets.lake.reaper import Reaper


@pytest.fixture
def catalogs(tmp_path: Path) -> Iterator[tuple[Catalog, Catalog]]:
    """Give two catalogs that know nothing of each other; the first has a lake with a commit."""
    opened = [Catalog(f"sqlite:///{tmp_path}/{name}.db") for name in ("first", "second")]
    opened[0].create_repository("lake", str(tmp_path / "objects"))
    opened[0].upload("lake", "main", "a", b"1")
    opened[0].commit("lake", "main", "first")
    yield opened[0], opened[1]
    for catalog in opened:
        catalog.close()


def unmark(catalog: Catalog, namespace: Path) -> None:
    """Turn a lake into one that an earlier Ebbtide made: no marker, metaranges among the ranges."""
    (namespace / MARKER).unlink()
    for file in (namespace / "_lakefs/metaranges").iterdir():
        shutil.move(file, namespace / "_lakefs/committed" / file.name)
    with catalog._database.writing() as connection:
        connection.exec_driver_sql("DELETE FROM catalog_separated")


@pytest.mark.parametrize("place", ["objects", "objects/inner/deep", "."])
def test_a_second_catalog_is_refused(catalogs, tmp_path, place):
    """A namespace that is, holds or lies in that of another catalog's lake cannot be created in."""
    with pytest.raises(Refused, match=r"namespace of repository 'lake'.*What to do: use a folder"):
        catalogs[1].create_repository("mine", str(tmp_path / place))

    assert [] == catalogs[1].repositories()
    assert catalogs[0].uid == read_owner(catalogs[0].store("lake")).catalog_uid


@pytest.mark.parametrize("place", ["link", "link/inner", "link/../objects"])
def test_a_symbolic_link_is_no_other_namespace(catalogs, tmp_path, place):
    """One catalog does not take a folder twice, whatever names lead there."""
    (tmp_path / "link").symlink_to(tmp_path / "objects")

    with pytest.raises(Refused, match="overlaps"):
        catalogs[0].create_repository("mine", str(tmp_path / place))


@pytest.mark.parametrize("place", ["link/data", "objects/data"])
def test_what_lies_in_a_namespace_is_not_staged_by_another_name(catalogs, tmp_path, place):
    """An address that leads through a link into this or another lake of the catalog is refused."""
    catalogs[0].create_repository("other", str(tmp_path / "other"))
    (tmp_path / "link").symlink_to(tmp_path / "objects")

    for repository in ("lake", "other"):
        with pytest.raises(Refused, match="inside the namespace"):
            catalogs[0].stage(repository, "main", "k", f"file://{tmp_path}/{place}", 1)


def test_an_unmarked_lake_is_not_taken(catalogs, tmp_path):
    """A namespace that holds a lake of an earlier Ebbtide is refused though nobody has marked it."""
    unmark(catalogs[0], tmp_path / "objects")

    with pytest.raises(Refused, match="holds a lake already"):
        catalogs[1].create_repository("mine", str(tmp_path / "objects"))


def test_an_unmarked_lake_without_commits_is_not_taken(catalogs, tmp_path):
    """Objects that were only staged are another lake's, too."""
    catalogs[0].create_repository("fresh", str(tmp_path / "fresh"))
    catalogs[0].upload("fresh", "main", "staged", b"s")
    (tmp_path / "fresh" / MARKER).unlink()

    with pytest.raises(Refused, match="holds a lake already"):
        catalogs[1].create_repository("mine", str(tmp_path / "fresh"))


def test_a_lake_of_an_earlier_ebbtide_is_marked_when_it_is_used(catalogs, tmp_path):
    """The first use writes the marker if all that lies in the namespace is the repository's."""
    unmark(catalogs[0], tmp_path / "objects")

    catalogs[0].check_identity("lake")

    assert catalogs[0].repository("lake").uid == read_owner(catalogs[0].store("lake")).repository_uid


@pytest.mark.parametrize("stranger", ["repos/0123/branches/b/x", "nothing"])
def test_a_doubtful_namespace_is_not_marked(catalogs, tmp_path, stranger):
    """Objects of another repository, or none of this one, keep an unmarked namespace from being taken."""
    unmark(catalogs[0], tmp_path / "objects")
    if stranger == "nothing":
        shutil.rmtree(tmp_path / "objects/_lakefs")
    else:
        catalogs[0].store("lake").write(stranger, b"theirs")

    code = exit_code(lambda: catalogs[0].check_identity("lake"))

    assert (3, None) == (code, read_owner(catalogs[0].store("lake")))


def exit_code(action) -> int:
    """Tell with which code a command that does this would end."""
    try:
        action()
    except Exception as stopped:  # noqa: BLE001 (whatever it is has a code)
        return getattr(stopped, "exit_code", -1)
    return 0


def take_over(first: Catalog, second: Catalog, tmp_path: Path) -> None:
    """Let a lake of the second catalog have the namespace of the first's, which an old Ebbtide allowed."""
    second.create_repository("other", str(tmp_path / "elsewhere"))
    with second._database.writing() as connection:
        moved = {"to": first.repository("lake").namespace}
        connection.execute(sqlalchemy.text("UPDATE catalog_repositories SET namespace = :to"), moved)


def test_a_deleted_twin_is_not_collected(catalogs, tmp_path):
    """Neither planning for a deleted repository nor its reaper touches what a marker gives to another."""
    first, second = catalogs
    take_over(first, second, tmp_path)
    gone = second.delete_repository("other")

    with pytest.raises(
        ForeignNamespace, match=r"belongs to repository 'lake'.*ebb lake adopt other --deleted"
    ):
        second.check_deleted_owner(gone.uid)
    with pytest.raises(ForeignNamespace):
        Reaper(second).reap(second.reclaim_target("other"))


def test_a_twin_is_neither_reaped_nor_checked(catalogs, tmp_path):
    """A living repository whose namespace is another's stops, and says who owns it."""
    take_over(*catalogs, tmp_path)

    with pytest.raises(ForeignNamespace, match=r"belongs to repository 'lake'.*ebb lake adopt other"):
        catalogs[1].check_identity("other")
    with pytest.raises(ForeignNamespace):
        Reaper(catalogs[1]).reap(catalogs[1].reclaim_target("other"))


def test_an_unmarked_deleted_lake_is_adopted_first(catalogs, tmp_path):
    """A repository that an earlier Ebbtide deleted is collected only after somebody said that it may be."""
    first = catalogs[0]
    gone = first.delete_repository("lake")
    (tmp_path / "objects" / MARKER).unlink()
    before = exit_code(lambda: first.check_deleted_owner(gone.uid))
    first.adopt_deleted("lake")

    first.check_deleted_owner(gone.uid)

    assert 3 == before


def test_an_interrupted_creation_does_not_block_its_namespace(catalogs, tmp_path, monkeypatch):
    """What a crash in the middle of a creation leaves is taken over by the next one of the same catalog."""
    second = catalogs[1]
    with monkeypatch.context() as patched:
        patched.setattr("ebbtide.targets.lake.catalog.repositories._insert", lambda *_: 1 / 0)
        patched.setattr("ebbtide.targets.lake.catalog.repositories.forget_claim", lambda *_: None)
        with pytest.raises(ZeroDivisionError):
            second.create_repository("mine", str(tmp_path / "new"))
    marked = read_owner(open_store(str(tmp_path / "new")))

    made = second.create_repository("mine", str(tmp_path / "new"))

    assert marked.repository_uid != made.uid
    assert made.uid == read_owner(second.store("mine")).repository_uid


def test_a_marker_that_cannot_be_read_stops(catalogs, tmp_path):
    """A damaged marker is not taken for none."""
    (tmp_path / "objects" / MARKER).write_text("{")

    assert 3 == exit_code(lambda: catalogs[0].check_owner("lake"))
    with pytest.raises(BadInput, match="cannot be read"):
        catalogs[1].create_repository("mine", str(tmp_path / "objects"))


@pytest.mark.parametrize("content", ["", "x"])
def test_a_marker_that_is_a_folder_stops(catalogs, tmp_path, content):
    """A folder in place of the marker, empty or not, is a doubt about the owner and not a wrong argument."""
    marker = tmp_path / "objects" / MARKER
    marker.unlink()
    marker.mkdir()
    if content:
        (marker / content).touch()

    codes = [
        exit_code(lambda: catalogs[0].check_owner("lake")),
        exit_code(lambda: catalogs[0].check_identity("lake")),
        exit_code(lambda: catalogs[1].create_repository("mine", str(tmp_path / "objects"))),
    ]

    assert [3, 3, 2] == codes
    with pytest.raises(ForeignNamespace, match=r"is a folder.*What to do: remove the folder"):
        catalogs[0].check_owner("lake")


def test_a_nested_marker_that_cannot_be_read_refuses_a_creation(catalogs, tmp_path):
    """A folder that holds a damaged marker is somebody's lake; another namespace has to be chosen."""
    (tmp_path / "objects" / MARKER).write_text("{")

    with pytest.raises(Refused, match=r"cannot be read.*choose another namespace"):
        catalogs[1].create_repository("mine", str(tmp_path))


def test_a_catalog_keeps_its_uid(tmp_path):
    """Opening the database again gives the same catalog, and another database is another one."""
    uids = []
    for name in ("a", "a", "b"):
        catalog = Catalog(f"sqlite:///{tmp_path}/{name}.db")
        uids.append(catalog.uid)
        catalog.close()

    assert (True, False) == (uids[0] == uids[1], uids[0] == uids[2])


def test_commands_stop_before_spark_and_adopt_goes_on(tmp_path, monkeypatch, capsys):
    """Plan exits 3 for a foreign namespace, create 2, and after `ebb lake adopt --yes` planning may go on."""
    monkeypatch.chdir(tmp_path)
    for command in (["init"], ["lake", "create", "mine", "ns"]):
        assert 0 == run(command)
    marker = tmp_path / "ns" / MARKER
    marker.write_text(json.dumps(json.loads(marker.read_text()) | {"catalog_uid": "f" * 32}))

    codes = [
        run(["plan", "lake:mine", "--uncommitted"]),
        run(["lake", "create", "other", "ns/inner"]),
        run(["lake", "adopt", "mine"]),
        run(["lake", "adopt", "mine", "--yes"]),
        run(["lake", "forget", "mine", "--list"]),
    ]

    assert [3, 2, 2, 0, 0] == codes
    assert "ebb lake adopt mine" in capsys.readouterr().err


@pytest.mark.spark
def test_plan_and_apply_look_at_the_owner(spark: SparkSession, tmp_path):
    """A plan is neither made nor applied while the marker names another owner."""
    lake = make_lake(spark, tmp_path)
    lake.upload("a")
    lake.day(3)
    made = lake.plan_uncommitted()
    lake.day(4)
    owner = lake.store.read(MARKER)
    lake.store.write(MARKER, owner.replace(lake.catalog.uid.encode(), b"0" * 32))

    codes = [exit_code(lake.plan_uncommitted), exit_code(lambda: lake.apply(made))]

    assert [3, 3] == codes
