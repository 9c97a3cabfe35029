"""The contract of versioned repositories: what every implementation of the protocol owes to collectors."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.contract.repository.implementations import CatalogImplementation, Implementation

from ebbtide.core.errors import Busy, ForeignNamespace, HistoryLost, MetadataError, NotFound
from ebbtide.storage.store import open_store
from ebbtide.targets.repository.collector import RepositoryCollector, fence_holder
from ebbtide.targets.repository.model import COMMITTED, STAGED, Commit, RangeInfo
from ebbtide.targets.repository.ranges import range_infos
from ebbtide.targets.repository.rules import RepositoryRules

IMPLEMENTATIONS = {"embedded catalog": CatalogImplementation}


@pytest.fixture(params=IMPLEMENTATIONS)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Implementation]:
    """Give a repository with a commit of three keys on main."""
    found = IMPLEMENTATIONS[request.param](tmp_path)
    found.upload("a", "b", "c")
    found.commit()
    yield found
    found.close()


def rows(made: Implementation, source: str, metarange_id: str) -> list[dict]:
    """Give the entries of a metarange, decoded as on an executor: by a copy of the decoder."""
    decoder = pickle.loads(pickle.dumps(made.repository.decoder))  # noqa: S301 (our own bytes)
    infos = range_infos(decoder, source, metarange_id)
    return [row for info in infos for row in decoder.entries(source, info).to_pylist()]


def head(made: Implementation, branch: str = "main") -> Commit:
    """Give the commit at the head of a branch."""
    snapshot = made.repository.snapshot()
    return snapshot.commits[snapshot.branches[branch]]


def ranges(made: Implementation) -> list[RangeInfo]:
    """Give the ranges of the head of main."""
    return range_infos(made.repository.decoder, COMMITTED, head(made).metarange_id)


def test_a_repository_is_known_by_more_than_its_name(made):
    """It has a uid, a namespace and a default branch; one that does not exist is NotFound."""
    info = made.repository.info()

    assert (made.repository.name, "main") == (info.name, info.default_branch)
    assert info == made.repository.snapshot().repository
    assert info.uid
    assert info.namespace == made.repository.store().spec.url
    assert made.repository.url.endswith(f":{info.name}")
    with pytest.raises(NotFound):
        made.missing.info()


def test_a_snapshot_has_heads_tags_and_all_commits(made):
    """A commit that no branch or tag reaches any more is in it too, with its parents."""
    first = head(made).id
    made.tag("v1")
    made.branch("dev")
    made.upload("d", branch="dev")
    dangling = made.commit("dev")
    made.delete_branch("dev")
    snapshot = made.repository.snapshot()

    assert {"main": first} == dict(snapshot.branches)
    assert {"v1": first} == dict(snapshot.tags)
    assert {first, dangling} <= snapshot.commits.keys()
    assert (first,) == snapshot.commits[dangling].parents
    assert {"main"} == snapshot.branch_ids.keys()


def test_the_entries_of_a_commit_are_decoded_in_the_order_of_their_keys(made):
    """Every entry of every range has a key, an address, a time and a size; the counts agree."""
    found = rows(made, COMMITTED, head(made).metarange_id)

    assert ["a", "b", "c"] == [row["key"] for row in found]
    assert {"key", "address", "created", "size"} <= found[0].keys()
    assert {made.clock()} == {row["created"] for row in found}
    assert [1, 1, 1] == [row["size"] for row in found]
    assert [(one.min_key, one.max_key, one.count) for one in ranges(made)] == [
        (keys[0], keys[-1], len(keys))
        for one in ranges(made)
        for keys in [made.repository.decoder.entries(COMMITTED, one).column("key").to_pylist()]
    ]


def test_a_range_is_of_the_types_that_the_pipeline_joins(made):
    """Keys and addresses are text or bytes, times are UTC in microseconds, sizes and counts are int64."""
    table = made.repository.decoder.entries(COMMITTED, ranges(made)[0])
    listed = made.repository.decoder.ranges(COMMITTED, head(made).metarange_id)

    for name in ("key", "address"):
        assert pa.types.is_string(table.column(name).type) or pa.types.is_binary(table.column(name).type)
    assert pa.timestamp("us", "UTC") == table.column("created").type
    assert pa.int64() == table.column("size").type == listed.column("count").type
    assert {"range_id", "min_key", "max_key", "count"} <= set(listed.column_names)


@pytest.mark.parametrize("harm", ["damage", "lose"])
def test_a_range_that_cannot_be_read_is_an_error(made, harm):
    """A missing or altered range raises MetadataError: it is never an empty one."""
    info = ranges(made)[0]
    getattr(made, harm)(info.id)

    with pytest.raises(MetadataError):
        made.repository.decoder.entries(COMMITTED, info)
    with pytest.raises(MetadataError):
        made.repository.decoder.ranges(COMMITTED, "0" * 64)


def test_staged_entries_are_in_the_snapshot_until_they_are_committed(made):
    """They are read by branch, with its id; deleted entries and branches without any are left out."""
    made.branch("dev")
    made.upload("x", "y")
    before = made.repository.snapshot()
    commit = made.commit()
    after = made.repository.snapshot()
    (staged,) = before.staged

    assert ("main", 2, before.branch_ids["main"]) == (staged.branch, staged.count, staged.branch_id)
    assert ["x", "y"] == [row["key"] for row in rows(made, STAGED, staged.metarange_id)]
    assert () == after.staged
    assert ["a", "b", "c", "x", "y"] == [
        row["key"] for row in rows(made, COMMITTED, after.commits[commit].metarange_id)
    ]


def test_every_new_reference_changes_the_sequence(made):
    """Uploads, commits, branches and tags each make it grow; it never goes back."""
    seen = [made.repository.sequence()]
    for change in (
        lambda: made.upload("x"),
        made.commit,
        lambda: made.branch("dev"),
        lambda: made.tag("v1"),
    ):
        change()
        seen.append(made.repository.sequence())

    assert sorted(set(seen)) == seen
    assert seen[-1] <= made.repository.snapshot().sequence


def test_a_snapshot_is_not_dated_later_than_it_was_taken(made):
    """Ages are counted up to its time, so they must not come out too high."""
    before = made.repository.now()

    assert before == made.repository.snapshot().taken_at == made.clock()


def test_open_uploads_are_known_until_they_expire(made):
    """An address that was given out is listed with the end of its time; a repository may know none."""
    address = made.begin_upload("x")
    found = {
        row["address"]: row["expires"] for page in made.repository.open_uploads() for row in page.to_pylist()
    }
    made.clock.now += made.repository.upload_life + timedelta(seconds=1)
    later = [row for page in made.repository.open_uploads() for row in page.to_pylist()]

    assert made.repository.upload_life > timedelta(0)
    if address is not None:
        assert {address} == found.keys()
        assert found[address] <= made.clock()
    assert [] == later


def test_objects_are_where_the_layout_says(made):
    """Each address is in the store and matches both patterns, with its branch and a partition's name."""
    repository, layout = made.repository, pickle.loads(pickle.dumps(made.repository.layout))  # noqa: S301
    branch_id = repository.branch_ids()["main"]
    for row in rows(made, COMMITTED, head(made).metarange_id):
        place = re.match(layout.object_pattern, row["address"])
        inner = re.match(layout.partition_pattern, row["address"])
        assert place
        assert inner
        assert 1 == repository.store().stat(row["address"]).size
        assert row["address"].startswith(layout.path(branch_id) + place[2] + "/")
        assert row["address"].startswith(layout.home)
        assert (branch_id, place[2]) == (place[1], inner["partition"]) == (inner["branch"], place[2])
        began = layout.partition_began(place[2])
        assert made.clock() - layout.partition_life <= began <= made.clock()
    assert layout.partition_began("something else") is None


def test_patterns_mean_the_same_to_arrow(made):
    """The pattern of partitions is read by Arrow too, whose regular expressions know less."""
    addresses = [row["address"] for row in rows(made, COMMITTED, head(made).metarange_id)]
    found = pc.extract_regex(pa.array([*addresses, "x"]), made.repository.layout.partition_pattern)

    assert [True, True, True, False] == found.is_valid().to_pylist()


def test_paths_of_deleted_branches_are_still_swept(made):
    """A branch that was deleted left its path, which can be found by the branch's name."""
    made.branch("dev")
    gone = made.repository.branch_ids()["dev"]
    made.upload("x", branch="dev")
    made.delete_branch("dev")
    layout = made.repository.layout

    assert {gone, made.repository.branch_ids()["main"]} == layout.paths(made.repository.store())
    assert layout.is_path_of(gone, "dev")
    assert not layout.is_path_of(gone, "de")
    assert "" == layout.levels[0]
    assert layout.path(gone).startswith(layout.levels[-1])


def test_executors_open_the_same_store(made):
    """The store of a pickled specification has what the repository's own has."""
    spec = pickle.loads(pickle.dumps(made.repository.store_spec()))  # noqa: S301 (our own bytes)
    address = rows(made, COMMITTED, head(made).metarange_id)[0]["address"]

    assert made.repository.store().read(address) == open_store(spec).read(address) == b"a"


def test_what_was_reaped_is_known(made):
    """What something else than a run deleted on purpose is named, so that nobody misses it."""
    made.upload("x")
    (staged,) = made.repository.snapshot().staged
    (row,) = rows(made, STAGED, staged.metarange_id)
    made.reset()
    made.clock.now += timedelta(days=2)
    reaps = made.reap()

    assert [row["address"]] * reaps == list(made.repository.reaped())


def test_a_closed_fence_keeps_new_references_out(made):
    """While it is closed no branch can be made on old commits; uploads and commits go on."""
    if not made.repository.has_fence:
        assert made.repository.close_fence("1") <= made.repository.sequence()
        return
    sequence = made.repository.sequence()
    closed = made.repository.close_fence("1")
    again = made.repository.close_fence("1")
    kept_out = made.is_kept_out()
    made.upload("x")
    made.commit()
    with pytest.raises(Busy):
        made.repository.close_fence("2")
    made.repository.open_fence("2")
    still = made.is_kept_out()
    made.repository.open_fence("1")

    assert sequence == closed == again
    assert (True, True, False) == (kept_out, still, made.is_kept_out())


def test_a_plan_warns_if_there_is_no_fence():
    """The warning says that new references cannot be kept out while a batch is deleted."""
    warnings = [
        RepositoryCollector(
            SimpleNamespace(),
            SimpleNamespace(has_fence=has_fence, finish_interrupted_restore=lambda _context: None),
            RepositoryRules(),
        ).before_plan()
        for has_fence in (True, False)
    ]

    assert [0, 1] == [len(found) for found in warnings]


def test_a_fence_is_held_in_the_name_of_a_run(made):
    """Two ledgers may have a run of one number; the time of the plan tells them apart."""
    plans = [SimpleNamespace(run_id=7, made_at=made.clock() + timedelta(days=days)) for days in (0, 1)]

    assert 2 == len({fence_holder(plan) for plan in plans})


def test_rules_are_unset_until_they_are_set(made):
    """Rules are read as text and format; without any the answer is None and not an empty policy."""
    before = made.repository.policy(), made.repository.retention()
    made.set_rules('{"r": {"prefix": "", "days": 5}}', '{"default_days": 5}')

    assert (None, None) == before
    assert ('{"r": {"prefix": "", "days": 5}}', "json") == made.repository.policy()
    assert ('{"default_days": 5}', "json") == made.repository.retention()


def test_a_namespace_of_another_owner_is_refused(made):
    """A repository whose namespace belongs to another one stops before anything is read."""
    made.repository.check_owner()
    made.steal_namespace()

    with pytest.raises(ForeignNamespace):
        made.repository.check_owner()


def test_history_that_was_lost_is_noticed(made):
    """A repository that no longer knows a commit, which a plan has read, stops."""
    made.upload("x")
    made.commit()
    made.repository.check_history()
    made.repository.remember(made.repository.snapshot())
    made.repository.check_history()
    made.lose_last_commit()

    with pytest.raises(HistoryLost):
        made.repository.check_history()


def test_the_bin_of_a_new_repository_is_empty(made):
    """It belongs to the repository, and lies where no data object is looked for."""
    contents = made.repository.bin()

    assert [] == contents.labels(pytest.fail)
    assert made.repository.info().uid == contents.target_uid
    assert not re.match(made.repository.layout.object_pattern, contents.root + "x")
