"""Snapshots and "GC commits": everything that can reach an object, from one moment."""

from ebbtide.targets.lake.catalog import refs, staging
from ebbtide.targets.lake.catalog.ranges import read_metarange, read_range
from ebbtide.targets.repository.model import STAGED


def _addresses(catalog, staged):
    """Read the addresses of a staged metarange."""
    store = catalog.store("lake")
    ranges = read_metarange(store, STAGED, staged.metarange_id)
    return sorted(
        address
        for info in ranges
        for address in read_range(store, STAGED, info, ["address"]).column("address").to_pylist()
    )


def _seal_main(writing):
    """Do the first step of a commit."""
    staging.seal(writing.connection, refs.branch(writing.connection, writing.repository, "main"))


def test_a_snapshot_holds_heads_tags_and_all_commits(catalog, clock):
    """Branches, tags and commits are there, also a commit that a reset left dangling."""
    catalog.upload("lake", "main", "a", b"1")
    dangling = catalog.commit("lake", "main", "m")
    catalog.reset("lake", "main", to="main~1")
    catalog.create_tag("lake", "v1", "main")
    catalog.create_branch("lake", "b/1", "main")

    found = catalog.snapshot("lake")

    assert catalog.repository("lake") == found.repository
    assert (catalog.sequence("lake"), clock()) == (found.sequence, found.taken_at)
    assert catalog.branches("lake") == found.branches
    assert catalog.tags("lake") == found.tags
    assert dangling == found.commits[dangling.id]
    assert {commit.id for commit in catalog.log("lake", "main")} == set(found.commits) - {dangling.id}
    assert found.staged == ()


def test_staged_entries_of_every_branch_are_in_the_snapshot(catalog):
    """Each branch with staged entries has one staged range set; deletions hold no object and are left out."""
    catalog.upload_many("lake", "main", [("a", b""), ("b", b"")])
    catalog.commit("lake", "main", "m")
    catalog.create_branch("lake", "b1", "main")
    catalog.create_branch("lake", "b2", "main")
    catalog.delete("lake", "main", "a")
    mine = [catalog.upload("lake", "main", f"k{i}", b"") for i in range(20)]
    other = catalog.upload("lake", "b1", "k", b"")
    catalog.delete("lake", "b2", "a")

    found = catalog.snapshot("lake").staged

    assert [(staged.branch, staged.count) for staged in found] == [("b1", 1), ("main", 20)]
    assert [other.address] == _addresses(catalog, found[0])
    assert sorted(entry.address for entry in mine) == _addresses(catalog, found[1])
    assert found == catalog.prepare_uncommitted("lake")
    assert found[1:] == catalog.prepare_uncommitted("lake", "main")


def test_staging_is_read_in_pages(catalog, monkeypatch):
    """More staged entries than a page holds come out all the same, each once."""
    monkeypatch.setattr(staging, "PAGE", 7)
    catalog.upload_many("lake", "main", [(f"k{i:03d}", b"") for i in range(100)])

    (staged,) = catalog.prepare_uncommitted("lake")

    assert 100 == staged.count == len(set(_addresses(catalog, staged)))
    assert [f"k{i:03d}" for i in range(100)] == [e.key for e in catalog.ls("lake", "main")]


def test_an_entry_that_a_commit_is_reading_stays_referenced_when_it_is_overwritten(catalog):
    """Once a commit has sealed an entry, a run must spare its object until the commit has landed."""
    first = catalog.upload("lake", "main", "k", b"1")
    with catalog._writing("lake") as writing:
        _seal_main(writing)
    second = catalog.upload("lake", "main", "k", b"2")

    (staged,) = catalog.prepare_uncommitted("lake")

    assert sorted([first.address, second.address]) == _addresses(catalog, staged)
    assert second == catalog.stat("lake", "main", "k")
    assert [second] == list(catalog.ls("lake", "main"))


def test_a_commit_takes_in_what_a_crashed_one_had_sealed(catalog):
    """Sealed entries of a commit that never landed are committed by the next one, newest first."""
    catalog.upload_many("lake", "main", [("a", b"1"), ("b", b"1"), ("c", b"1")])
    with catalog._writing("lake") as writing:
        _seal_main(writing)
    catalog.upload("lake", "main", "b", b"2")
    catalog.delete("lake", "main", "c")

    catalog.commit("lake", "main", "m")

    assert [entry.key for entry in catalog.ls("lake", "main~0")] == ["a", "b"]
    assert catalog.read("lake", "main~0", "b") == b"2"
    assert catalog.prepare_uncommitted("lake") == ()


def test_a_snapshot_knows_branches_by_their_id(catalog):
    """Every branch has its id there, and what is staged says on which branch: it is in the addresses too."""
    catalog.create_branch("lake", "b/1", "main")
    entry = catalog.upload("lake", "b/1", "k", b"")

    found = catalog.snapshot("lake")

    assert {"b/1", "main"} == set(found.branch_ids)
    assert [found.branch_ids["b/1"]] == [staged.branch_id for staged in found.staged]
    assert f"/branches/{found.branch_ids['b/1']}/" in entry.address
    assert found.staged == catalog.prepare_uncommitted("lake", "b/1")
