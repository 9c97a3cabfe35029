"""Branches, tags, and what a ref means."""

import pytest

from ebbtide.core.errors import AlreadyExists, BadInput, NotFound, Refused


def _commit(catalog, key, branch="main"):
    """Commit one key."""
    catalog.upload("lake", branch, key, key.encode())
    return catalog.commit("lake", branch, key).id


def test_a_branch_starts_at_its_source_without_what_is_staged(catalog):
    """A new branch has its source's head; staged entries stay where they were."""
    head = _commit(catalog, "a")
    catalog.upload("lake", "main", "b", b"staged")

    made = catalog.create_branch("lake", "feature/x", "main")

    assert head == made
    assert {"feature/x": head, "main": head} == catalog.branches("lake")
    assert [entry.key for entry in catalog.ls("lake", "feature/x")] == ["a"]


def test_the_default_branch_is_never_deleted(catalog):
    """A repository keeps its default branch."""
    with pytest.raises(Refused, match="default branch"):
        catalog.delete_branch("lake", "main")


def test_deleting_a_branch_drops_what_is_staged_on_it(catalog):
    """A branch of the same name made later has nothing of the first, not even its path."""
    catalog.create_branch("lake", "b", "main")
    first = catalog.upload("lake", "b", "k", b"1")
    catalog.delete_branch("lake", "b")
    catalog.create_branch("lake", "b", "main")
    second = catalog.upload("lake", "b", "other", b"2")

    assert [entry.key for entry in catalog.ls("lake", "b")] == ["other"]
    assert first.address.split("/")[:4] != second.address.split("/")[:4]


def test_refs_are_branches_tags_commits_prefixes_and_ancestors(catalog):
    """Every way to name a commit finds it."""
    first, second, third = (_commit(catalog, key) for key in "abc")
    catalog.create_tag("lake", "v1", second)

    found = {
        ref: next(catalog.log("lake", ref)).id
        for ref in (
            "main",
            "main~0",
            "main~",
            "main~1",
            "main~2",
            "v1",
            "v1~1",
            first,
            first[:12],
            "main~1~1",
        )
    }

    assert found == {
        "main": third,
        "main~0": third,
        "main~": second,
        "main~1": second,
        "main~2": first,
        "v1": second,
        "v1~1": first,
        first: first,
        first[:12]: first,
        "main~1~1": first,
    }


@pytest.mark.parametrize("ref", ["nope", "main~9", "abcd", "ab", "", "~1", "main~x"])
def test_a_ref_that_means_nothing_is_not_found(catalog, ref):
    """A ref that names nothing says so."""
    with pytest.raises(NotFound):
        list(catalog.ls("lake", ref))


@pytest.mark.parametrize("name", ["", "a//b", "/a", "a/", "a..b", "a~1", "a b", "-x", "0" * 64, "é", None])
def test_bad_branch_and_tag_names_are_refused(catalog, name):
    """A name that could be taken for another ref, or cannot be a path, is refused."""
    with pytest.raises(BadInput, match="cannot name a branch"):
        catalog.create_branch("lake", name, "main")
    with pytest.raises(BadInput, match="cannot name a tag"):
        catalog.create_tag("lake", name, "main")


def test_branches_and_tags_share_one_set_of_names(catalog):
    """A name means one thing: neither kind may take the other's."""
    catalog.create_tag("lake", "v1", "main")

    for name in ("v1", "main"):
        with pytest.raises(AlreadyExists, match=name):
            catalog.create_branch("lake", name, "main")
        with pytest.raises(AlreadyExists, match=name):
            catalog.create_tag("lake", name, "main")


def test_a_tag_stays_at_its_commit_until_it_is_deleted(catalog):
    """A tag does not move with its branch."""
    head = _commit(catalog, "a")
    catalog.create_tag("lake", "v1", "main")
    _commit(catalog, "b")
    before = catalog.tags("lake")
    catalog.delete_tag("lake", "v1")

    assert {"v1": head} == before
    assert catalog.tags("lake") == {}
    with pytest.raises(NotFound, match="no tag 'v1'"):
        catalog.delete_tag("lake", "v1")


def test_a_deleted_or_unknown_branch_takes_nothing(catalog):
    """Every operation on a branch that is not there says so."""
    operations = [
        lambda: catalog.upload("lake", "nope", "k", b""),
        lambda: catalog.upload_many("lake", "nope", [("k", b"")]),
        lambda: catalog.stage("lake", "nope", "k", "s3://other/k", 1),
        lambda: catalog.get_physical_address("lake", "nope", "k"),
        lambda: catalog.commit("lake", "nope", "m"),
        lambda: catalog.reset("lake", "nope"),
        lambda: catalog.delete_branch("lake", "nope"),
        lambda: catalog.merge("lake", "main", "nope", "m"),
        lambda: catalog.prepare_uncommitted("lake", "nope"),
    ]

    for operation in operations:
        with pytest.raises(NotFound, match="no branch 'nope'"):
            operation()


def test_every_change_of_a_reference_raises_the_sequence(catalog):
    """Whatever makes or drops a reference can be noticed by its sequence number."""
    changes = [
        lambda: catalog.upload("lake", "main", "a", b"1"),
        lambda: catalog.copy("lake", "main", "a", "b"),
        lambda: catalog.move("lake", "main", "b", "c"),
        lambda: catalog.delete("lake", "main", "c"),
        lambda: catalog.stage("lake", "main", "s", "s3://other/s", 1),
        lambda: catalog.commit("lake", "main", "m"),
        lambda: catalog.create_branch("lake", "b1", "main"),
        lambda: catalog.create_tag("lake", "t1", "main"),
        lambda: catalog.upload("lake", "b1", "a", b"2"),
        lambda: catalog.commit("lake", "b1", "m2"),
        lambda: catalog.merge("lake", "b1", "main", "merge"),
        lambda: catalog.revert("lake", "main", "main", parent=1),
        lambda: catalog.reset("lake", "main", to="main~1"),
        lambda: catalog.delete_tag("lake", "t1"),
        lambda: catalog.delete_branch("lake", "b1"),
    ]
    seen = [catalog.sequence("lake")]
    for change in changes:
        change()
        seen.append(catalog.sequence("lake"))

    assert sorted(set(seen)) == seen
