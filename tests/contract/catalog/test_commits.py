"""Commits: content-addressed versions, their history, resets and imports."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from ebbtide.core.errors import BadInput, MetadataError, Refused
from ebbtide.storage.store import DeleteRequest
from ebbtide.targets.lake.catalog.ranges import ENTRIES, metadata_key, read_metarange
from ebbtide.targets.repository.model import COMMITTED


def _upload(catalog, *keys, branch="main"):
    """Upload keys with themselves as content."""
    catalog.upload_many("lake", branch, [(key, key.encode()) for key in keys])


def _ranges(catalog, commit):
    """Read a commit's ranges."""
    return read_metarange(catalog.store("lake"), COMMITTED, commit.metarange_id)


def test_a_commit_takes_in_all_that_is_staged(catalog, clock):
    """A commit has its branch's old head as parent, what was said about it, and nothing stays staged."""
    before = catalog.branches("lake")["main"]
    _upload(catalog, "a", "b")

    commit = catalog.commit("lake", "main", "said é", "me", {"why": "so"})

    assert (before,) == commit.parents
    assert ("said é", "me", {"why": "so"}, clock()) == (
        commit.message,
        commit.committer,
        commit.metadata,
        commit.created,
    )
    assert [commit.id, before] == [c.id for c in catalog.log("lake", "main")]
    assert commit == next(catalog.log("lake", commit.id))
    assert list(catalog.diff("lake", "main~0", "main")) == []


def test_an_empty_commit_needs_leave(catalog):
    """A commit that changes nothing is refused unless it is asked for."""
    with pytest.raises(Refused, match="nothing to commit"):
        catalog.commit("lake", "main", "m")

    commit = catalog.commit("lake", "main", "m", allow_empty=True)

    assert commit.id == catalog.branches("lake")["main"]


def test_a_commit_that_comes_to_nothing_is_refused_and_keeps_its_staging(catalog):
    """Staged rows that change nothing in the end are no commit; they stay as they are."""
    entry = catalog.stage("lake", "main", "a", "s3://other/a", 1)
    head = catalog.commit("lake", "main", "m").id
    catalog.stage("lake", "main", "a", entry.address, 1, created=entry.created)

    with pytest.raises(Refused, match="nothing to commit"):
        catalog.commit("lake", "main", "m")

    assert head == catalog.branches("lake")["main"]
    assert [staged.branch for staged in catalog.prepare_uncommitted("lake")] == ["main"]


@pytest.mark.parametrize("word", ["a\0b", "\ud800", None, 7])
def test_words_that_no_database_holds_are_refused(catalog, word):
    """Message, committer and metadata are plain text."""
    _upload(catalog, "a")

    for words in ((word,), ("m", word), ("m", "", {"k": word}), ("m", "", {word: "v"})):
        with pytest.raises(BadInput, match="cannot be part of a commit"):
            catalog.commit("lake", "main", *words)


def test_the_same_commit_has_the_same_id(catalog, clock):
    """An id says what the commit is: two branches that do the same at once get the same commit."""
    catalog.create_branch("lake", "b1", "main")
    for branch in ("main", "b1"):
        catalog.stage("lake", branch, "a", "s3://other/a", 1)

    first, second = (catalog.commit("lake", branch, "m") for branch in ("main", "b1"))

    assert first == second


def test_unchanged_ranges_are_shared(catalog):
    """A change of one key rewrites at most two ranges of many."""
    _upload(catalog, *(f"k{i:03d}" for i in range(200)))
    first = catalog.commit("lake", "main", "m")
    _upload(catalog, "k100")
    second = catalog.commit("lake", "main", "m")

    before, after = (set(_ranges(catalog, commit)) for commit in (first, second))

    assert len(before) > 20
    assert 1 <= len(after - before) <= 2


def test_a_damaged_range_stops_the_reader(catalog):
    """A commit whose range is gone raises; it never reads as empty."""
    _upload(catalog, "a")
    commit = catalog.commit("lake", "main", "m")
    key = metadata_key(COMMITTED, _ranges(catalog, commit)[0].id)
    catalog.store("lake").delete([DeleteRequest(key)])

    with pytest.raises(MetadataError, match="missing"):
        list(catalog.ls("lake", "main"))


def test_log_gives_each_commit_once_and_before_its_parents(catalog, clock):
    """A history with a merge comes out newest first, without repeats."""
    catalog.create_branch("lake", "b1", "main")
    _upload(catalog, "a")
    catalog.commit("lake", "main", "on main")
    _upload(catalog, "b", branch="b1")
    catalog.commit("lake", "b1", "on b1")
    merge = catalog.merge("lake", "b1", "main", "merge")

    found = list(catalog.log("lake", "main"))

    assert [found[0].message, found[-1].message] == ["merge", "Repository created"]
    assert {"on main", "on b1"} == {commit.message for commit in found[1:-1]}
    assert (found[0].id, 4) == (merge.id, len(found))


def test_diff_tells_added_removed_and_changed(catalog):
    """A diff of two versions gives each differing key once, with both entries."""
    _upload(catalog, "changed", "removed", *(f"same{i}" for i in range(50)))
    catalog.commit("lake", "main", "m")
    _upload(catalog, "added", "changed")
    catalog.delete("lake", "main", "removed")
    staged = list(catalog.diff("lake", "main~0", "main"))
    catalog.commit("lake", "main", "m2")

    found = list(catalog.diff("lake", "main~1", "main"))

    assert [(change.key, change.kind) for change in found] == [
        ("added", "added"),
        ("changed", "changed"),
        ("removed", "removed"),
    ]
    assert staged == found
    assert found[1].before == catalog.stat("lake", "main~1", "changed")
    assert found[1].after == catalog.stat("lake", "main", "changed")


def test_reset_drops_staged_changes_by_prefix_or_all(catalog):
    """A reset forgets staged uploads and deletions, under a prefix or everywhere."""
    _upload(catalog, "a/1")
    catalog.commit("lake", "main", "m")
    _upload(catalog, "a/2", "b/1", "b/2")
    catalog.delete("lake", "main", "a/1")
    dropped = catalog.reset("lake", "main", "b/")
    between = [entry.key for entry in catalog.ls("lake", "main")]

    assert (dropped, between) == (2, ["a/2"])
    assert catalog.reset("lake", "main") == 2
    assert [entry.key for entry in catalog.ls("lake", "main")] == ["a/1"]


def test_a_hard_reset_moves_the_head_and_drops_staged_changes(catalog):
    """With a ref the branch goes there; the commits it leaves are dangling, not gone."""
    _upload(catalog, "a")
    first = catalog.commit("lake", "main", "m")
    _upload(catalog, "b")
    second = catalog.commit("lake", "main", "m2")
    _upload(catalog, "c")

    catalog.reset("lake", "main", to=first.id)

    assert [entry.key for entry in catalog.ls("lake", "main")] == ["a"]
    assert [entry.key for entry in catalog.ls("lake", second.id)] == ["a", "b"]
    with pytest.raises(Refused, match="not both"):
        catalog.reset("lake", "main", "x", to=second.id)


def _entries(*rows):
    """Make a table of entries from keys and addresses."""
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    return pa.Table.from_pylist(
        [{"key": k, "address": a, "created": moment, "size": 1, "checksum": ""} for k, a in rows],
        schema=ENTRIES,
    )


def test_an_import_lands_on_the_head_and_leaves_staging_alone(catalog, clock):
    """Entries given as tables become a commit; what is staged stays staged on top."""
    _upload(catalog, "a", "m")
    catalog.commit("lake", "main", "m")
    _upload(catalog, "z")
    tables = [_entries(("b", "s3://other/b")), _entries(), _entries(("m", "repos/x/m"), ("n", "repos/x/n"))]
    moment = datetime(2020, 1, 1, tzinfo=UTC)

    commit = catalog.import_entries("lake", "main", tables, "import", created=moment)

    assert (commit.id, moment) == (catalog.branches("lake")["main"], commit.created)
    assert [entry.key for entry in catalog.ls("lake", "main~0")] == ["a", "b", "m", "n"]
    assert [entry.key for entry in catalog.ls("lake", "main")] == ["a", "b", "m", "n", "z"]
    assert catalog.stat("lake", "main", "m").address == "repos/x/m"


@pytest.mark.parametrize(
    "tables",
    [
        [_entries(("b", "x"), ("a", "y"))],
        [_entries(("a", "x"), ("a", "y"))],
        [_entries(("b", "x")), _entries(("b", "y"))],
        [_entries(("", "x"))],
        [_entries(("a", "x//y"))],
        [_entries(("a", "/x"))],
        [_entries(("a", "S3A://b/x"))],
        [_entries(("a", ""))],
        [_entries(("a", "_lakefs/recycle/000001-ab/items/repos/x"))],
        [pa.table({"key": ["a"]})],
    ],
)
def test_an_import_refuses_what_could_not_be_compared_later(catalog, tables):
    """Keys out of order or twice, addresses not canonical or of metadata and missing columns are refused."""
    head = catalog.branches("lake")["main"]

    with pytest.raises(BadInput):
        catalog.import_entries("lake", "main", tables, "import")

    assert head == catalog.branches("lake")["main"]
