"""Merges and reverts: three-way, with conflicts told by key."""

import pytest

from ebbtide.core.errors import Refused

SAME = [f"same{i:03d}" for i in range(60)]


def _change(catalog, branch, uploads=(), deletes=()):
    """Upload and delete keys on a branch and commit."""
    catalog.upload_many("lake", branch, [(key, f"{key} on {branch}".encode()) for key in uploads])
    catalog.delete_many("lake", branch, deletes)
    return catalog.commit("lake", branch, f"on {branch}")


@pytest.fixture
def forked(catalog):
    """Make a history with a common base on main and b1."""
    _change(catalog, "main", ["a", "b", "c", *SAME])
    catalog.create_branch("lake", "b1", "main")
    return catalog


def _others(catalog, ref):
    """List the keys that are not of the unchanging crowd."""
    return [entry.key for entry in catalog.ls("lake", ref) if not entry.key.startswith("same")]


def test_a_merge_brings_both_sides_together(forked):
    """Additions, changes and deletions of the two sides are all in the result, which has two parents."""
    on_main = _change(forked, "main", ["m", "same000"], ["a"])
    on_b1 = _change(forked, "b1", ["n", "b"], ["same030", "c"])

    merged = forked.merge("lake", "b1", "main", "m")

    assert (on_main.id, on_b1.id) == merged.parents
    assert _others(forked, "main") == ["b", "m", "n"]
    assert forked.read("lake", "main", "b") == b"b on b1"
    assert forked.read("lake", "main", "same000") == b"same000 on main"
    assert len(SAME) - 1 == len(list(forked.ls("lake", "main", "same")))


def test_a_merge_into_an_unchanged_branch_takes_the_sources_content(forked):
    """Where only the source moved the result is its very metarange; the merge is still a commit."""
    before = forked.branches("lake")["main"]
    on_b1 = _change(forked, "b1", ["n"])

    merged = forked.merge("lake", "b1", "main", "m")

    assert (on_b1.metarange_id, (before, on_b1.id)) == (merged.metarange_id, merged.parents)


def test_conflicts_are_refused_by_key(forked):
    """Keys that both sides changed differently are named; nothing is changed."""
    _change(forked, "main", ["b", "d"], ["c"])
    _change(forked, "b1", ["c", "d"], ["b"])
    head = forked.branches("lake")["main"]

    with pytest.raises(Refused, match="conflict in 'b', 'c', 'd';"):
        forked.merge("lake", "b1", "main", "m")

    assert head == forked.branches("lake")["main"]


def test_many_conflicts_are_cut_short(forked):
    """Of many conflicts the first ten are shown."""
    _change(forked, "main", SAME)
    _change(forked, "b1", SAME)

    with pytest.raises(Refused, match=r"'same000', .*'same009' and maybe more"):
        forked.merge("lake", "b1", "main", "m")


def test_the_same_change_on_both_sides_is_no_conflict(forked):
    """Both sides deleted a key, or staged the same object: they agree."""
    for branch in ("main", "b1"):
        forked.stage("lake", branch, "x", "s3://other/x", 1)
        _change(forked, branch, [f"own-{branch}"], ["a"])

    forked.merge("lake", "b1", "main", "m")

    assert _others(forked, "main") == ["b", "c", "own-b1", "own-main", "x"]


def test_a_second_merge_starts_from_the_first(forked):
    """After a merge the common ancestor is the merged commit, so its changes do not conflict again."""
    _change(forked, "b1", ["b"])
    forked.merge("lake", "b1", "main", "m")
    _change(forked, "main", ["m"])
    _change(forked, "b1", ["b", "n"])

    forked.merge("lake", "b1", "main", "again")

    assert _others(forked, "main") == ["a", "b", "c", "m", "n"]


def test_a_source_that_brings_nothing_is_refused(forked):
    """Merging what the branch has already is refused."""
    _change(forked, "main", ["m"])

    for source in ("b1", "main"):
        with pytest.raises(Refused, match="nothing to merge"):
            forked.merge("lake", source, "main", "m")


def test_a_branch_with_staged_changes_takes_no_merge_and_no_revert(forked):
    """As in lakeFS: commit or reset first."""
    _change(forked, "b1", ["n"])
    forked.upload("lake", "main", "staged", b"")

    for operation in (
        lambda: forked.merge("lake", "b1", "main", "m"),
        lambda: forked.revert("lake", "main", "main"),
    ):
        with pytest.raises(Refused, match="1 staged changes"):
            operation()


def test_what_is_staged_on_the_source_is_not_merged(forked):
    """A merge takes commits, not staging."""
    _change(forked, "b1", ["n"])
    forked.upload("lake", "b1", "staged", b"")

    forked.merge("lake", "b1", "main", "m")

    assert _others(forked, "main") == ["a", "b", "c", "n"]


def test_a_revert_undoes_one_commit_and_keeps_later_ones(forked):
    """The changes of one commit go back; those of others stay."""
    undone = _change(forked, "main", ["b", "x"], ["a"])
    _change(forked, "main", ["y"])

    commit = forked.revert("lake", "main", undone.id)

    assert _others(forked, "main") == ["a", "b", "c", "y"]
    assert forked.read("lake", "main", "b") == b"b on main"
    assert len(commit.parents) == 1
    assert forked.stat("lake", f"{undone.id}~1", "b") == forked.stat("lake", "main", "b")


def test_a_revert_conflicts_with_later_changes_of_the_same_key(forked):
    """What was changed again since cannot be undone silently."""
    undone = _change(forked, "main", ["b"])
    _change(forked, "main", ["b"])

    with pytest.raises(Refused, match="conflict in 'b'"):
        forked.revert("lake", "main", undone.id)


def test_a_merge_is_reverted_to_a_named_parent(forked):
    """Undoing a merge needs to know which side to go back to."""
    _change(forked, "b1", ["n"])
    merge = forked.merge("lake", "b1", "main", "m")
    with pytest.raises(Refused, match="has 2 parents"):
        forked.revert("lake", "main", merge.id)
    with pytest.raises(Refused, match="has 2 parents"):
        forked.revert("lake", "main", merge.id, parent=3)

    forked.revert("lake", "main", merge.id, parent=1)

    assert _others(forked, "main") == ["a", "b", "c"]


def test_there_must_be_something_to_revert(forked):
    """The first commit, and one that was reverted already, are refused."""
    undone = _change(forked, "main", ["x"])
    forked.revert("lake", "main", undone.id)

    with pytest.raises(Refused, match="nothing to revert"):
        forked.revert("lake", "main", undone.id)
    with pytest.raises(Refused, match="first commit"):
        forked.revert("lake", "main", "main~3")
