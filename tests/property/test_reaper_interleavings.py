"""The races of online hard delete, explored whole: every interleaving, with a crash anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.explorer import broken
from tests.explorer.scenarios import (
    COMMIT_MOVE,
    CONCURRENT_MOVE,
    DELETE_MOVE,
    IMPORT,
    IMPORT_LATE,
    LARGE,
    LINK,
    MEDIUM,
    STALE_LOCK,
    Scenario,
)

from ebbtide.targets.lake.catalog.catalog import Catalog


@pytest.fixture
def folder(tmp_path):
    """Give a folder in memory where there is one: exploring opens thousands of transactions."""
    memory = Path("/dev/shm")  # noqa: S108 - its name is pytest's own, and it is removed
    place = memory / f"ebbtide-{tmp_path.name}-{abs(hash(tmp_path)):x}"
    if not memory.is_dir():
        yield tmp_path
        return
    place.mkdir()
    yield place
    for path in sorted(place.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    place.rmdir()


@pytest.mark.parametrize(
    "scenario",
    [
        COMMIT_MOVE,
        DELETE_MOVE,
        CONCURRENT_MOVE,
        STALE_LOCK,
        LINK,
        IMPORT,
        pytest.param(IMPORT_LATE, marks=pytest.mark.long),
        pytest.param(MEDIUM, marks=pytest.mark.long),
    ],
    ids=lambda scenario: scenario.name,
)
def test_no_interleaving_loses_or_leaves_anything(scenario: Scenario, folder):
    """However the steps of a race are ordered, no entry loses its object and no garbage is left."""
    found = scenario.explore(folder)
    print(found)  # noqa: T201 - how much was seen is worth knowing when it fails

    assert [] == found.counterexample
    assert found.states > 40
    assert found.schedules > 10


@pytest.mark.long
def test_the_large_scenario_is_explored_whole(folder):
    """Two writers, a committer and a reaper with three objects and a crash anywhere: nothing goes wrong."""
    assert [] == LARGE.explore(folder).counterexample


BROKEN = {
    "no look at the fence: import": (IMPORT, Catalog, [broken.without_fence]),
    "no look at the fence: link": (LINK, Catalog, [broken.without_fence]),
    "proof and fence apart: import": (IMPORT, broken.ProvesBefore, []),
    "proof and fence apart: link": (LINK, broken.ProvesBefore, []),
    "no look at the fence, no transaction around a move": (
        DELETE_MOVE,
        broken.LooksBefore,
        [broken.without_fence],
    ),
    "sharing is not recorded": (COMMIT_MOVE, Catalog, [broken.without_records_of_sharing]),
    "commits of shared objects are not recorded": (COMMIT_MOVE, Catalog, [broken.without_records_of_commits]),
    "imports are not recorded": (IMPORT, Catalog, [broken.without_records_of_imports]),
    "queued after the transaction": (DELETE_MOVE, broken.QueuesAfterwards, [broken.noting_for_later]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_missing_safeguard_is_found(name, folder, monkeypatch):
    """With one safeguard taken out the explorer finds a schedule that goes wrong, and tells it."""
    scenario, kind, patches = BROKEN[name]
    for patch in patches:
        patch(monkeypatch)
    found = scenario.explore(folder, kind)
    print(f"\n{name} ({found}):\n{found.story}")  # noqa: T201 - pytest -s shows the schedules

    assert found.counterexample
    assert found.counterexample[-1].startswith("==> ")
    assert any("reaper" in line for line in found.counterexample)


@pytest.mark.parametrize(
    ("kind", "patches"),
    [(broken.LooksBefore, []), (Catalog, [broken.without_fence])],
    ids=["the fence alone", "the transaction alone"],
)
def test_either_lock_holds_the_door_of_a_move(kind, patches, folder, monkeypatch):
    """A move that looks its source up too early is stopped by the fence; one that does not needs no fence."""
    for patch in patches:
        patch(monkeypatch)

    assert [] == DELETE_MOVE.explore(folder, kind).counterexample
