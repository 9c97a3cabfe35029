"""What a sweep leaves for the next: which partitions are settled, and which states are believed."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from ebbtide.core.decision import Outcome
from ebbtide.core.errors import MetadataError
from ebbtide.core.manifest import Tally
from ebbtide.engine.run_folder import RunFolder
from ebbtide.storage.store import StoreSpec, open_store
from ebbtide.targets.lake.catalog.partitions import PARTITION_LIFE, Partitions
from ebbtide.targets.lake.repository import CatalogLayout
from ebbtide.targets.repository.sweeps import (
    BadState,
    BranchState,
    last_unsettled,
    read_state,
    save_state,
    state_from_json,
    state_key,
)
from ebbtide.targets.repository.uncommitted import STATES, keep_states, save_states

NOW = datetime(2026, 1, 10, 12, tzinfo=UTC)
DAY = timedelta(days=1)
PATH = "repos/r/branches/main-1/"
LAYOUT = CatalogLayout("r")
STATE = BranchState("main-1", "gc", 2, None, "c" * 64, run_id=3, optimized_runs=0)


@pytest.fixture
def store(tmp_path):
    """Give an empty store."""
    (tmp_path / "objects").mkdir()
    return open_store(StoreSpec((tmp_path / "objects").as_uri()))


def partition(ago: timedelta) -> str:
    """Name a partition that was begun so long ago."""
    return Partitions(lambda: NOW - ago, 1)._partition("main-1")


def kept_states(tmp_path, states):
    """Keep states with a plan, and give the run's folder and what is asked of its manifest."""
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir(parents=True)
    return folder, SimpleNamespace(run_id=3, snapshot=keep_states(folder.path, states))


@pytest.mark.parametrize("moment", [timedelta(0), timedelta(microseconds=1)])
def test_a_partition_is_settled_when_no_upload_can_come_any_more(moment):
    """It takes addresses for an hour, and each of them an upload as long as its token lives."""
    new, old = partition(timedelta(0)), partition(PARTITION_LIFE + DAY + moment)

    assert (old if moment == timedelta(0) else new) == last_unsettled(LAYOUT, [old, new], None, NOW, DAY)


def test_the_oldest_unsettled_partition_counts():
    """All that is newer is listed, too."""
    names = [partition(timedelta(hours=hours)) for hours in (0, 5, 20, 40, 60)]

    assert names[2] == last_unsettled(LAYOUT, names, None, NOW, DAY)


def test_a_partition_with_young_garbage_is_not_settled():
    """What waits for the end of its grace period must be listed again, however old its partition is."""
    old, older = partition(5 * DAY), partition(9 * DAY)

    assert old == last_unsettled(LAYOUT, [older, old], old, NOW, DAY)
    assert older == last_unsettled(LAYOUT, [older, old], older, NOW, DAY)
    assert older == last_unsettled(LAYOUT, [partition(timedelta(0)), older], older, NOW, DAY)
    assert old == last_unsettled(LAYOUT, [], old, NOW, DAY)


def test_the_newest_partition_is_listed_again():
    """So that the next run has a partition to read down to, though all are settled."""
    old, older = partition(5 * DAY), partition(9 * DAY)

    assert old == last_unsettled(LAYOUT, [older, old], None, NOW, DAY)
    assert None is last_unsettled(LAYOUT, [], None, NOW, DAY)


def test_a_state_comes_back_as_it_was_saved(store):
    """It is read from the branch's own path."""
    save_state(store, PATH, STATE)

    assert STATE == read_state(store, PATH, "main-1")


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda text: text[:20], "not readable"),
        (lambda text: "[]", "not readable"),
        (lambda text: text.replace('"staged": 2', '"staged": 1'), "altered"),
        (lambda text: replace(STATE, format=2).to_json(), "format 2"),
    ],
)
def test_a_damaged_state_is_not_believed(damage, why):
    """Whatever is wrong with it, it says so."""
    with pytest.raises(BadState, match=why):
        state_from_json(damage(STATE.to_json()))


def test_a_state_of_another_branch_is_not_believed(store):
    """Nor is one that is not there, or is no text."""
    save_state(store, PATH, STATE)
    store.write(state_key("elsewhere/"), b"\xff")

    for path, branch_id, why in [
        (PATH, "main-2", "another branch"),
        ("nowhere/", "main-1", "no earlier run"),
        ("elsewhere/", "main-1", "not readable"),
    ]:
        with pytest.raises(BadState, match=why):
            read_state(store, path, branch_id)


@pytest.mark.parametrize(("run_id", "expected"), [(2, 3), (3, 3), (4, 4)])
def test_an_earlier_run_does_not_replace_a_later_one(store, run_id, expected):
    """A plan may be applied after one that was made later."""
    save_state(store, PATH, STATE)
    save_state(store, PATH, replace(STATE, run_id=run_id))

    assert expected == read_state(store, PATH, "main-1").run_id


def test_a_damaged_state_is_replaced(store):
    """It is no later run's."""
    store.write(state_key(PATH), b"{")
    save_state(store, PATH, STATE)

    assert STATE == read_state(store, PATH, "main-1")


@pytest.mark.parametrize(("outcome", "saved"), [(Outcome.DELETED, True), (Outcome.CHANGED, False)])
def test_states_are_saved_when_nothing_was_left_alone(store, tmp_path, outcome, saved):
    """What a run left alone may become garbage again in a partition that it would call settled."""
    folder, manifest = kept_states(tmp_path, {PATH: STATE})
    save_states(store, folder, manifest, {outcome: Tally(outcome, 1, 1)})

    assert saved == (state_key(PATH) in [key for batch in store.list() for key in batch["key"].to_pylist()])


def test_altered_states_are_not_saved(store, tmp_path):
    """The next run would build on them."""
    folder, manifest = kept_states(tmp_path, {PATH: STATE})
    text = (folder.path / STATES).read_text()
    (folder.path / STATES).write_text(text.replace('"run_id": 3', '"run_id": 9'))

    assert hashlib.sha256(text.encode()).hexdigest() == manifest.snapshot["states"]
    with pytest.raises(MetadataError, match="altered"):
        save_states(store, folder, manifest, {})
