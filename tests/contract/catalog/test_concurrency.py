"""Several at once: what each operation promises while others are at work."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ebbtide.core.errors import AlreadyExists, NotFound, Refused
from ebbtide.targets.lake.catalog import commits, history
from ebbtide.targets.lake.catalog.ranges import read_metarange, read_range
from ebbtide.targets.repository.model import COMMITTED, STAGED


def _keys(catalog, ref):
    """List the keys of a version."""
    return [entry.key for entry in catalog.ls("lake", ref)]


@pytest.fixture
def during_commit(monkeypatch):
    """Run something between the sealing and the landing of the next commit, once."""

    def install(action):
        real = commits.apply_changes
        todo = [action]

        def paused(*args, **kwargs):
            ranges = real(*args, **kwargs)
            if todo:
                todo.pop()()
            return ranges

        monkeypatch.setattr(commits, "apply_changes", paused)

    return install


def test_an_upload_during_a_commit_stays_staged(catalog, during_commit):
    """What arrives while ranges are written is not in the commit, is not lost, and wins on the branch."""
    catalog.upload("lake", "main", "a", b"old")
    during_commit(lambda: catalog.upload_many("lake", "main", [("a", b"new"), ("b", b"new")]))

    catalog.commit("lake", "main", "m")

    assert catalog.read("lake", "main~0", "a") == b"old"
    assert catalog.read("lake", "main", "a") == b"new"
    assert _keys(catalog, "main~0") == ["a"]
    assert _keys(catalog, "main") == ["a", "b"]
    assert [staged.count for staged in catalog.prepare_uncommitted("lake")] == [2]


def test_a_delete_during_a_commit_stays_staged(catalog, during_commit):
    """A key that is deleted while it is being committed is in the commit, and deleted on top of it."""
    catalog.upload_many("lake", "main", [("a", b""), ("b", b"")])
    during_commit(lambda: catalog.delete("lake", "main", "a"))

    catalog.commit("lake", "main", "m")

    assert _keys(catalog, "main~0") == ["a", "b"]
    assert _keys(catalog, "main") == ["b"]


def test_a_reset_during_a_commit_is_obeyed(catalog, during_commit):
    """What a reset dropped is not brought back by a commit that had read it: a run may have swept it."""
    catalog.upload_many("lake", "main", [("a", b""), ("b", b"")])
    during_commit(lambda: catalog.reset("lake", "main", "a"))

    catalog.commit("lake", "main", "m")

    assert _keys(catalog, "main") == ["b"]


def test_a_commit_during_a_commit_is_built_upon(catalog, during_commit):
    """A commit that finds the head moved starts again from there; here nothing is left for it."""
    catalog.upload("lake", "main", "a", b"")
    during_commit(lambda: catalog.commit("lake", "main", "inner"))

    with pytest.raises(Refused, match="nothing to commit"):
        catalog.commit("lake", "main", "outer")

    assert [c.message for c in catalog.log("lake", "main")] == ["inner", "Repository created"]
    assert _keys(catalog, "main~0") == ["a"]


def test_a_branch_made_anew_during_a_commit_is_another(catalog, during_commit):
    """A commit does not land on a branch that only has the same name."""
    catalog.create_branch("lake", "b1", "main")
    catalog.upload("lake", "b1", "a", b"")

    def replace_branch():
        catalog.delete_branch("lake", "b1")
        catalog.create_branch("lake", "b1", "main")

    during_commit(replace_branch)

    with pytest.raises(Refused, match="nothing to commit"):
        catalog.commit("lake", "b1", "m")

    assert _keys(catalog, "b1") == []


def test_a_branch_deleted_during_a_commit_is_not_found(catalog, during_commit):
    """A commit whose branch is gone says so."""
    catalog.create_branch("lake", "b1", "main")
    catalog.upload("lake", "b1", "a", b"")
    during_commit(lambda: catalog.delete_branch("lake", "b1"))

    with pytest.raises(NotFound, match="no branch 'b1'"):
        catalog.commit("lake", "b1", "m")


def _commit_all(catalog, branch, keys):
    """Upload and commit one key after another."""
    for key in keys:
        catalog.upload("lake", branch, key, b"")
        with contextlib.suppress(Refused):  # another committer took this upload in
            catalog.commit("lake", branch, key)


def test_committers_on_one_branch_lose_nothing(catalog):
    """However commits interleave, every upload ends up in the history, which stays one line."""
    groups = [[f"{thread}-{i}" for i in range(8)] for thread in range(3)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda keys: _commit_all(catalog, "main", keys), groups))

    commits = list(catalog.log("lake", "main"))

    assert sorted(key for group in groups for key in group) == _keys(catalog, "main~0")
    assert [c.id for c in commits[1:]] == [c.parents[0] for c in commits[:-1]]
    assert catalog.prepare_uncommitted("lake") == ()


def test_a_token_used_twice_at_once_links_once(catalog):
    """Of many that link with one token at the same time, one succeeds."""
    made = catalog.get_physical_address("lake", "main", "k")
    catalog.store("lake").write(made.address, b"")
    start = threading.Barrier(4)

    def link(_):
        start.wait()
        try:
            return catalog.link_physical_address("lake", "main", "k", made.token, size=0)
        except Refused:
            return None

    with ThreadPoolExecutor(4) as pool:
        linked = list(pool.map(link, range(4)))

    assert sum(entry is not None for entry in linked) == 1


def test_overlapping_repositories_created_at_once_are_one(catalog, tmp_path):
    """Of two that claim overlapping namespaces at the same time, one is refused."""
    start = threading.Barrier(2)

    def create(name):
        start.wait()
        try:
            return catalog.create_repository(name, str(tmp_path / "x" / name.replace("-", "/")))
        except (Refused, AlreadyExists):
            return None

    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(create, ["a", "a-b"]))

    assert sum(repo is not None for repo in made) == 1


def test_opening_an_empty_database_at_once_works(open_catalog):
    """Several processes may be the first to open a catalog."""
    with ThreadPoolExecutor(4) as pool:
        opened = list(pool.map(lambda _: open_catalog(), range(4)))

    assert [catalog.repositories() for catalog in opened] == [[]] * 4


def _reachable(catalog, snapshot):
    """Read every key that a snapshot reaches."""
    store = catalog.store("lake")
    pairs = [(COMMITTED, commit.metarange_id) for commit in snapshot.commits.values()]
    pairs += [(STAGED, staged.metarange_id) for staged in snapshot.staged]
    return {
        key
        for folder, metarange_id in pairs
        for info in read_metarange(store, folder, metarange_id)
        for key in read_range(store, folder, info, ["key"]).column("key").to_pylist()
    }


def test_a_commit_in_the_middle_of_a_snapshot_hides_nothing(catalog, monkeypatch):
    """
    A snapshot that has read the commits and not yet the staging still sees what was staged at its start.

    If it did not, what is committed in between would be in neither, and a run would sweep it.
    """
    catalog.upload("lake", "main", "a", b"")
    sequence = catalog.sequence("lake")
    real = history.all_commits

    def then_commit(*args):
        found = real(*args)
        catalog.commit("lake", "main", "m")
        catalog.upload("lake", "main", "b", b"")
        return found

    monkeypatch.setattr(history, "all_commits", then_commit)
    snapshot = catalog.snapshot("lake")

    assert {"a"} == _reachable(catalog, snapshot)
    assert (sequence, 1) == (snapshot.sequence, len(snapshot.commits))


def test_a_snapshot_is_of_one_moment_while_writers_run(catalog):
    """
    Whatever was uploaded before a snapshot is in it, staged or committed, never between the two.

    The writer uploads 0, 1, 2, ... and commits now and then, so a snapshot that has key n but lacks a
    smaller one, or lacks one that was there before it began, has mixed two moments.
    """
    done: list[int] = []
    stop = threading.Event()

    def write():
        while not stop.is_set() and len(done) < 400:
            catalog.upload("lake", "main", f"{len(done):04d}", b"")
            done.append(len(done))
            if len(done) % 5 == 0:
                catalog.commit("lake", "main", "m")

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        try:
            for _ in range(15):
                before = len(done)
                snapshot = catalog.snapshot("lake")
                found = sorted(_reachable(catalog, snapshot))

                assert [f"{i:04d}" for i in range(len(found))] == found
                assert len(found) >= before
                assert set(snapshot.branches.values()) <= set(snapshot.commits)
        finally:
            stop.set()
        writer.result()


def test_readers_do_not_wait_for_a_writer(catalog):
    """A listing goes through while a write transaction is open, and does not see what it did."""
    catalog.upload("lake", "main", "a", b"")
    with catalog._writing("lake"), ThreadPoolExecutor(1) as pool:
        found = pool.submit(_keys, catalog, "main").result(timeout=300)

    assert found == ["a"]
