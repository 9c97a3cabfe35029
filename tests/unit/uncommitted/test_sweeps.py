"""Sweeps: which partitions are listed, and when a branch is listed whole."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from ebbtide.core.errors import MetadataError, NotFound
from ebbtide.storage.store import StoreSpec, open_store
from ebbtide.targets.lake.repository import CatalogDecoder, CatalogLayout
from ebbtide.targets.repository.rules import SweepRules
from ebbtide.targets.repository.sweeps import BranchState, save_state, survey
from ebbtide.targets.repository.uncommitted import check_history

NEWER, LAST, OLDER = (f"{digits * 18}_0123456789ab" for digits in "012")
MAIN, GONE = "main-00000000000a", "old-00000000000b"
HOME = "repos/r/branches/"
STATE = BranchState(MAIN, None, 0, LAST, "c1", run_id=1, optimized_runs=0)
BRANCHES = {"main": MAIN}


@pytest.fixture
def repository(tmp_path):
    """Give a store in which two branches, of which one is deleted, have three partitions each."""
    store = open_store(StoreSpec((tmp_path / "objects").as_uri()))
    for branch in (MAIN, GONE):
        for name in (NEWER, LAST, OLDER):
            store.write(f"{HOME}{branch}/{name}/{'0' * 32}", b"x")
    return SimpleNamespace(
        name="lake",
        command="ebb lake",
        layout=CatalogLayout("r"),
        decoder=CatalogDecoder(store.spec),
        store=lambda: store,
        branch_ids=lambda: BRANCHES,
    )


def listed(found):
    """Give the partitions that a survey names, by branch."""
    return {sweep.branch_id: sweep.partitions for sweep in found.sweeps}


def test_without_a_state_everything_is_listed(repository):
    """Also what a deleted branch has left."""
    found = survey(repository, SweepRules())

    assert {MAIN: (NEWER, LAST, OLDER), GONE: (NEWER, LAST, OLDER)} == listed(found)
    assert (True, True) == (found.is_clean, found.everything)


def test_with_a_state_only_what_is_not_settled_is_listed(repository):
    """Down to the last partition, which is listed again."""
    save_state(repository.store(), f"{HOME}{MAIN}/", STATE)
    found = survey(repository, SweepRules())

    assert {MAIN: (NEWER, LAST), GONE: (NEWER, LAST, OLDER)} == listed(found)
    assert (False, False) == (found.is_clean, found.everything)


@pytest.mark.parametrize(
    ("state", "rules", "why"),
    [
        (STATE, SweepRules(clean=True), "asked for"),
        (replace(STATE, optimized_runs=6), SweepRules(), "one run in 7"),
        (replace(STATE, gc_commit="f" * 64), SweepRules(), "GC commit"),
    ],
)
def test_a_state_may_not_be_enough(repository, state, rules, why):
    """Then everything is listed, but the newest commit that was seen counts all the same."""
    save_state(repository.store(), f"{HOME}{MAIN}/", state)
    found = survey(repository, replace(rules, branch="main")).sweeps[0]

    assert (NEWER, LAST, OLDER) == found.partitions
    assert why in found.why_clean
    assert "c1" == found.newest_commit


def test_a_made_up_partition_is_older_than_all(repository):
    """A folder whose name would be a time before all times does not break a sweep."""
    made_up = f"{'9' * 18}_0123456789ab"
    repository.store().write(f"{HOME}{MAIN}/{made_up}/{'0' * 32}", b"x")
    clean = listed(survey(repository, SweepRules(branch="main")))
    save_state(repository.store(), f"{HOME}{MAIN}/", STATE)
    optimized = listed(survey(repository, SweepRules(branch="main")))

    assert {MAIN: (NEWER, LAST, OLDER, made_up)} == clean
    assert {MAIN: (NEWER, LAST)} == optimized


def test_a_branch_is_found_by_its_name(repository):
    """Also one that was deleted; the others are left alone."""
    assert {MAIN} == listed(survey(repository, SweepRules(branch="main"))).keys()
    assert {GONE} == listed(survey(repository, SweepRules(branch="old"))).keys()
    with pytest.raises(NotFound, match="no branch 'new'"):
        survey(repository, SweepRules(branch="new"))


@pytest.mark.parametrize("clean", [False, True])
def test_a_catalog_that_forgot_a_commit_stops_the_run(repository, clean):
    """Whether or not the rest of the state is used."""
    save_state(repository.store(), f"{HOME}{MAIN}/", STATE)
    found = SimpleNamespace(survey=survey(repository, SweepRules(clean=clean)))

    check_history(repository, found, SimpleNamespace(commits={"c1": None}))
    with pytest.raises(MetadataError, match="restored"):
        check_history(repository, found, SimpleNamespace(commits={"c2": None}))
