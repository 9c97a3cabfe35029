"""A catalog that was restored from a backup has lost later commits; their objects are no garbage."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.services.lake import REPOSITORY, SettableClock, make_lake, open_lake

from ebbtide.cli.main import run
from ebbtide.core.errors import Busy, HistoryLost, MetadataError, NotFound, Refused, StoreError
from ebbtide.storage.namespace import MARKER
from ebbtide.targets.lake.catalog import commits, imports
from ebbtide.targets.lake.catalog.catalog import Catalog
from ebbtide.targets.lake.catalog.lost_history import RECORD, LostHistory
from ebbtide.targets.lake.catalog.ranges import ENTRIES
from ebbtide.targets.lake.reaper import Reaper
from ebbtide.targets.lake.repository import forget, recover


class Restorable:
    """A catalog that can be saved and restored, as a backup of its database is."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, SettableClock()
        self.catalog = self._open()

    def _open(self) -> Catalog:
        url = f"sqlite:///{self.folder}/catalog.db"
        return Catalog(url, clock=self.clock, range_keys=4, fence_wait=timedelta(0))

    def commit(self, *keys: str, branch: str = "main") -> str:
        """Upload keys and commit them."""
        for key in keys:
            self.catalog.upload("lake", branch, key, key.encode())
        return self.catalog.commit("lake", branch, " ".join(keys)).id

    def backup(self) -> None:
        """Save the database."""
        copy_database(self.folder / "catalog.db", self.folder / "backup.db")

    def restore(self) -> None:
        """Put the saved database in place of the one there is."""
        self.catalog.close()
        copy_database(self.folder / "backup.db", self.folder / "catalog.db")
        self.catalog = self._open()


def copy_database(source: Path, target: Path) -> None:
    """Copy a database as `sqlite3 .backup` does, whoever has it open."""
    with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(target)) as other:
        one.backup(other)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Restorable]:
    """Give a catalog with a lake of one commit."""
    made = Restorable(tmp_path)
    made.catalog.create_repository("lake", str(tmp_path / "objects"))
    made.commit("a")
    yield made
    made.catalog.close()


def keys(catalog: Catalog, ref: str) -> list[str]:
    """List the keys of a ref."""
    return [entry.key for entry in catalog.ls("lake", ref)]


def test_lost_commits_stop_the_run_and_both_ways_forward_are_named(lake):
    """A metarange that the restored catalog has no commit for stops every run, and the reaper too."""
    lake.backup()
    lake.commit("b")
    lake.restore()

    with pytest.raises(
        HistoryLost, match=r"1 metarange .*ebb lake recover lake.*ebb lake forget lake"
    ) as stop:
        lake.catalog.check_identity("lake")
    with pytest.raises(HistoryLost):
        Reaper(lake.catalog).reap(lake.catalog.reclaim_target("lake"))

    assert 3 == stop.value.exit_code


def test_new_writes_do_not_hide_that_the_catalog_is_older_than_a_plan(lake):
    """A restored catalog whose change counter has caught up still lacks the mark of the last plan."""
    lake.backup()
    lake.catalog.upload("lake", "main", "staged", b"s")
    lake.catalog.remember_history(lake.catalog.snapshot("lake"))
    lake.restore()
    for number in range(5):
        lake.catalog.upload("lake", "main", f"later-{number}", b"x")

    with pytest.raises(HistoryLost, match="has no record of the last plan"):
        lake.catalog.check_identity("lake")
    recover(lake.catalog, "lake", "ann")
    lake.catalog.check_identity("lake")


@pytest.mark.parametrize("planned", [False, True])
def test_a_lost_tag_stops_without_a_plan_in_between(lake, planned):
    """A tag names a commit that is known, so no metarange betrays its loss, but its mark does."""
    if planned:
        lake.catalog.remember_history(lake.catalog.snapshot("lake"))
    lake.backup()
    lake.catalog.create_tag("lake", "v1", "main")
    lake.catalog.check_identity("lake")
    lake.restore()

    with pytest.raises(HistoryLost, match=r"no record of the last .*tag.*What to do.*ebb lake recover lake"):
        lake.catalog.check_identity("lake")
    recover(lake.catalog, "lake", "ann")
    lake.catalog.check_identity("lake")


def test_new_tags_do_not_hide_lost_ones(lake):
    """A tag that is made in a restored catalog leaves the trace of the lost one where it is."""
    lake.backup()
    lake.catalog.create_tag("lake", "lost", "main")
    lake.restore()
    lake.catalog.create_tag("lake", "new", "main")

    with pytest.raises(HistoryLost):
        lake.catalog.check_identity("lake")


def test_a_trace_keeps_what_the_last_plan_has_read(lake, tmp_path):
    """A tag replaces the mark in the record and not the commits in it."""
    lost = lake.commit("b")
    lake.catalog.remember_history(lake.catalog.snapshot("lake"))
    before = json.loads((tmp_path / "objects" / RECORD).read_text())
    lake.catalog.create_tag("lake", "v1", "main")
    after = json.loads((tmp_path / "objects" / RECORD).read_text())

    assert [lost] == before["tips"] == after["tips"]
    assert before["mark"] != after["mark"]


def test_traces_that_are_written_late_are_those_of_the_last_change(lake, monkeypatch):
    """Who writes the trace of a change after a later one was traced writes that of the later one."""
    publish = LostHistory._publish

    def late(catalog, repository, **more):
        monkeypatch.setattr(LostHistory, "_publish", publish)
        lake.backup()
        catalog.create_tag("lake", "second", "main")
        publish(catalog, repository, **more)

    monkeypatch.setattr(LostHistory, "_publish", late)
    lake.catalog.create_tag("lake", "first", "main")
    lake.restore()

    with pytest.raises(HistoryLost):
        lake.catalog.check_identity("lake")


def test_a_change_that_was_killed_before_its_trace_stops_nothing(lake, monkeypatch):
    """The catalog comes first, so that the namespace never has a mark of something that was not done."""
    with monkeypatch.context() as patched:
        patched.setattr(LostHistory, "_publish", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            lake.catalog.create_tag("lake", "v1", "main")

    lake.catalog.check_identity("lake")
    assert ["v1"] == list(lake.catalog.tags("lake"))


def test_a_namespace_of_another_gets_no_trace(lake, tmp_path):
    """The record of a namespace is its owner's alone."""
    marker = tmp_path / "objects" / MARKER
    marker.write_text(marker.read_text().replace(lake.catalog.uid, "f" * 32))
    lake.catalog.create_tag("lake", "v1", "main")

    assert not (tmp_path / "objects" / RECORD).exists()


def test_a_tag_is_not_made_while_the_namespace_cannot_be_read(lake, tmp_path):
    """What could not be traced is refused before anything is changed."""
    marker = tmp_path / "objects" / MARKER
    marker.unlink()
    marker.symlink_to("nowhere")

    with pytest.raises(StoreError):
        lake.catalog.create_tag("lake", "v1", "main")
    assert {} == lake.catalog.tags("lake")


def test_a_plan_that_was_killed_before_it_left_its_record_stops_nothing(lake):
    """The mark goes into the catalog first, and marks of earlier plans stay known there."""
    lake.catalog.remember_history(lake.catalog.snapshot("lake"))
    store = lake.catalog.store("lake")
    left = store.read(RECORD)
    for _ in range(3):
        lake.catalog.remember_history(lake.catalog.snapshot("lake"))
    store.write(RECORD, left)

    lake.catalog.check_identity("lake")


def test_lost_commits_are_imported(lake):
    """Recovering makes a commit of each lost metarange, in their order, and runs go on."""
    lake.backup()
    lake.commit("b")
    lake.commit("c", "d")
    lake.restore()

    made = recover(lake.catalog, "lake", "ann")

    lake.catalog.check_identity("lake")
    assert ["a", "b", "c", "d"] == keys(lake.catalog, made.branch)
    assert ["a", "b"] == keys(lake.catalog, f"{made.branch}~1")
    assert (["a"], "ann") == (keys(lake.catalog, "main"), made.commits[0].committer)
    assert "ann" == lake.catalog.merge("lake", made.branch, "main", "all back", "ann").committer
    assert ["a", "b", "c", "d"] == keys(lake.catalog, "main")


def test_lost_commits_are_declared_garbage(lake):
    """Forgetting names metaranges or all of them; who did it and when is kept, and runs go on."""
    lake.backup()
    lake.commit("b")
    lake.commit("c")
    lake.restore()
    unknown = lake.catalog.unknown_metaranges("lake")
    with pytest.raises(NotFound, match="names 0 unknown metaranges"):
        forget(lake.catalog, "lake", ["0000"], "ann")
    one = forget(lake.catalog, "lake", [unknown[0][:12]], "ann")
    left = lake.catalog.unknown_metaranges("lake")

    rest = forget(lake.catalog, "lake", None, "bob")

    lake.catalog.check_identity("lake")
    with lake.catalog._database.reading() as connection:
        rows = connection.exec_driver_sql("SELECT metarange_id, kind, noted_by FROM catalog_metaranges").all()
    assert (unknown[:1], unknown[1:], unknown[1:]) == (one, left, rest)
    assert {(unknown[0], "forgotten", "ann"), (unknown[1], "forgotten", "bob")} == {
        tuple(row) for row in rows
    }


def test_commits_that_did_not_land_are_known(lake, monkeypatch):
    """What a commit that lost a race, or was killed before it landed, wrote is no lost history."""
    with monkeypatch.context() as patched:
        patched.setattr(commits, "land", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            lake.commit("b")

    lake.clock.now += timedelta(days=100)
    lake.catalog.check_identity("lake")


def test_an_import_that_did_not_land_is_in_doubt_after_a_day(lake, monkeypatch):
    """Nothing else may refer to what an import brings in, so its traces are history that may be lost."""
    row = {"key": "z", "address": "s3://elsewhere/z", "created": lake.clock(), "size": 1, "checksum": ""}
    with monkeypatch.context() as patched:
        patched.setattr(imports, "land", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            lake.catalog.import_entries("lake", "main", [pa.Table.from_pylist([row], ENTRIES)], "import")
    lake.catalog.check_identity("lake")
    lake.clock.now += timedelta(days=1, seconds=1)

    with pytest.raises(HistoryLost):
        lake.catalog.check_identity("lake")


def import_z(lake: Restorable) -> None:
    """Import one entry; its metarange is the same each time, as long as the branch does not move."""
    row = {
        "key": "z",
        "address": "s3://elsewhere/z",
        "created": datetime(2026, 1, 1, tzinfo=UTC),
        "size": 1,
        "checksum": "",
    }
    lake.catalog.import_entries("lake", "main", [pa.Table.from_pylist([row], ENTRIES)], "import")


def refuse_import(lake: Restorable) -> None:
    """Try an import while a run holds the fence."""
    lake.catalog.close_fence("lake", "7")
    with pytest.raises(Busy):
        import_z(lake)
    lake.catalog.open_fence("lake", "7")


def test_a_refused_import_stops_no_later_run(lake):
    """The user was told that nothing was imported, so what the import wrote is no lost history."""
    refuse_import(lake)
    lake.clock.now += timedelta(days=100)

    lake.catalog.check_identity("lake")


@pytest.mark.parametrize("given_up", ["refused", "forgotten", "committed before"])
def test_an_explained_metarange_does_not_hide_a_later_import(lake, given_up):
    """A restored catalog that explains the metarange of a lost import all the same lacks its mark."""
    if given_up == "committed before":
        head = next(lake.catalog.log("lake", "main")).id
        import_z(lake)
        lake.catalog.reset("lake", "main", to=head)
    else:
        refuse_import(lake)
    if given_up == "forgotten":
        kept = "UPDATE catalog_metaranges SET kind = 'forgotten'"
        with lake.catalog._database.writing() as connection:
            connection.exec_driver_sql(kept)
    lake.catalog.check_identity("lake")
    lake.backup()
    import_z(lake)
    lake.catalog.check_identity("lake")
    lake.restore()

    with pytest.raises(HistoryLost, match="repeated import"):
        lake.catalog.check_identity("lake")


def test_an_import_does_not_land_after_a_refusal_of_the_same_content(lake, monkeypatch):
    """A copy of the catalog made between the refusal and the landing would hide the lost import."""
    first, land_import = True, imports.Imports._land_import

    def before_landing(self, *arguments, **options):
        nonlocal first
        if first:
            first = False
            refuse_import(lake)
        return land_import(self, *arguments, **options)

    monkeypatch.setattr(imports.Imports, "_land_import", before_landing)

    with pytest.raises(Refused, match="the same content was refused"):
        import_z(lake)
    import_z(lake)
    assert "z" in keys(lake.catalog, "main")
    lake.catalog.check_identity("lake")


def test_a_commit_that_a_plan_has_read_may_not_vanish(lake, tmp_path):
    """A catalog that lost a commit, and knows the plan that has read it, stops and names the commit."""
    lake.commit("b")
    snapshot = lake.catalog.snapshot("lake")
    head = snapshot.branches["main"]
    lake.catalog.remember_history(snapshot)
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as connection, connection:
        parent = snapshot.commits[head].parents[0]
        connection.execute("UPDATE catalog_branch_heads SET head = ? WHERE head = ?", (parent, head))
        connection.execute("DELETE FROM catalog_commits WHERE id = ?", (head,))
    lost = snapshot.commits[head].metarange_id
    (tmp_path / f"objects/_lakefs/metaranges/{lost}.parquet").unlink()

    with pytest.raises(HistoryLost, match="1 of the commits that a plan read are gone") as stopped:
        lake.catalog.check_identity("lake")
    assert [head] == list(stopped.value.details)


@pytest.mark.parametrize("change", ["commit", "upload"])
def test_a_plan_remembers_what_it_read(lake, tmp_path, change):
    """A catalog that lacks a commit that a plan has read, or went back in its changes, stops."""
    lake.backup()
    if change == "commit":
        lake.commit("b")
    else:
        lake.catalog.upload("lake", "main", "b", b"b")
    lake.catalog.remember_history(lake.catalog.snapshot("lake"))
    lake.restore()
    if change == "commit":
        # No metarange betrays the commit, and new changes have carried the counter past the one of the plan.
        for lost in lake.catalog.unknown_metaranges("lake"):
            (tmp_path / f"objects/_lakefs/metaranges/{lost}.parquet").unlink()
        lake.commit("c", "d", "e", "f", "g")

    with pytest.raises(HistoryLost, match=r"older than its namespace.*ebb lake recover"):
        lake.catalog.check_identity("lake")
    made = recover(lake.catalog, "lake", "ann")
    lake.catalog.check_identity("lake")

    assert made.branch is None


def test_the_reaper_spares_what_was_recovered(lake):
    """An object that a recovered commit holds stays when the restored catalog drops its own reference."""
    entry = lake.catalog.upload("lake", "main", "b", b"b")
    lake.backup()
    lake.catalog.commit("lake", "main", "lost")
    lake.restore()
    recover(lake.catalog, "lake", "ann")
    lake.catalog.reset("lake", "main")
    lake.clock.now += timedelta(days=2)

    done = Reaper(lake.catalog).reap(lake.catalog.reclaim_target("lake"))

    assert (1, {}) == (done.needed, dict(done.outcomes))
    assert b"b" == lake.catalog.store("lake").read(entry.address)


def test_what_plans_remember_does_not_grow_with_their_number(lake, tmp_path):
    """The record names the youngest commits alone, and each plan replaces it."""
    sizes = set()
    for number in range(5):
        lake.commit(f"k{number}")
        lake.catalog.remember_history(lake.catalog.snapshot("lake"))
        sizes.add((tmp_path / "objects" / RECORD).stat().st_size // 100)

    assert 1 == len(sizes)


def test_a_damaged_record_stops(lake, tmp_path):
    """A record that cannot be read is not taken for none."""
    (tmp_path / "objects" / RECORD).write_text("[]")

    with pytest.raises(MetadataError, match="cannot be read"):
        lake.catalog.check_identity("lake")


def test_metaranges_of_an_earlier_ebbtide_are_found_among_ranges(lake, tmp_path):
    """Where metaranges lie among the ranges, each file that no known metarange explains is looked at."""
    metadata = tmp_path / "objects/_lakefs"
    with lake.catalog._database.writing() as connection:
        connection.exec_driver_sql("DELETE FROM catalog_separated")
    lake.backup()
    lake.commit("b", "c", "d", "e", "f")
    for file in (metadata / "metaranges").iterdir():
        shutil.move(file, metadata / "committed" / file.name)
    lake.catalog.check_identity("lake")
    lake.restore()

    with pytest.raises(HistoryLost, match="1 metarange "):
        lake.catalog.check_identity("lake")
    made = recover(lake.catalog, "lake", "ann")

    assert ["a", "b", "c", "d", "e", "f"] == keys(lake.catalog, made.branch)


def test_the_commands(tmp_path, monkeypatch, capsys):
    """Plan exits 3 after a restore; recover and forget tell what they did and let plans go on."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f").write_text("f")
    for command in (["init"], ["lake", "create", "l", "ns"], ["lake", "upload", "l", "f"]):
        assert 0 == run(command)
    database = next(tmp_path.rglob("catalog.db"))
    copy_database(database, tmp_path / "backup")
    assert 0 == run(["lake", "commit", "l", "-m", "lost"])
    copy_database(tmp_path / "backup", database)

    codes = [
        run(["plan", "lake:l", "--uncommitted"]),
        run(["lake", "forget", "l"]),
        run(["lake", "forget", "l", "--list"]),
        run(["lake", "forget", "l", "--all-unknown"]),
        run(["lake", "recover", "l", "--branch", "main"]),
        run(["lake", "recover", "l", "--branch", "a b"]),
        run(["lake", "recover", "l", "--branch", "found"]),
        run(["lake", "recover", "l"]),
        run(["lake", "forget", "l", "--all-unknown", "--yes"]),
    ]

    assert [3, 2, 0, 2, 2, 2, 0, 0, 0] == codes
    said = capsys.readouterr()
    assert "recovered 1 commit on branch found" in said.out
    assert "Traceback" not in said.err


@pytest.mark.spark
def test_nothing_of_a_lost_commit_is_deleted(spark: SparkSession, tmp_path):
    """The objects of a commit that a restored catalog lacks outlive every plan, before and after recovery."""
    lake = make_lake(spark, tmp_path)
    kept = lake.upload("a")
    lake.commit()
    copy_database(tmp_path / "catalog.db", tmp_path / "backup.db")
    kept |= lake.upload("b")
    lake.commit()
    lake.close()
    copy_database(tmp_path / "backup.db", tmp_path / "catalog.db")
    lake = open_lake(spark, tmp_path, clock=lake.clock)
    garbage = lake.upload("junk")
    lake.catalog.reset(REPOSITORY, "main")
    lake.day(100)
    with pytest.raises(HistoryLost):
        lake.plan_uncommitted()
    recover(lake.catalog, REPOSITORY, "ann")

    made = lake.plan_uncommitted()

    assert set(garbage.values()) == lake.due(made)
    assert set(kept.values()) <= lake.stored()
