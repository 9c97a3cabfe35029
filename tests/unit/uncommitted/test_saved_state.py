"""Saved state: when it is built on, and when it is not believed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.services.lake import SettableClock

from ebbtide.core.errors import NotFound
from ebbtide.storage.store import DeleteRequest
from ebbtide.targets.lake.catalog.catalog import Catalog
from ebbtide.targets.lake.catalog.partitions import branch_path
from ebbtide.targets.lake.catalog.ranges import write_metarange
from ebbtide.targets.lake.repository import CatalogRepository
from ebbtide.targets.repository.model import STAGED
from ebbtide.targets.repository.rules import SweepRules
from ebbtide.targets.repository.sweeps import BranchState, save_state, state_key, survey

REPO = "lake"


@pytest.fixture
def catalog(tmp_path):
    """Give a catalog with a repository in a folder."""
    made = Catalog(f"sqlite:///{tmp_path}/catalog.db", clock=SettableClock())
    made.create_repository(REPO, str(tmp_path / "objects"))
    yield made
    made.close()


def path_of(catalog, branch="main"):
    """Name the folder of a branch's objects."""
    return branch_path(catalog.repository(REPO).uid, catalog.branch_ids(REPO)[branch])


def state_of(catalog, branch="main", **other):
    """Make a state as a run would leave it."""
    usual = BranchState(catalog.branch_ids(REPO)[branch], None, 0, None, "c", 1, 0)
    return replace(usual, **other)


def swept(catalog, rules=None):
    """Survey the repository."""
    return survey(CatalogRepository(catalog, REPO), rules or SweepRules())


@pytest.mark.parametrize(
    ("runs", "every", "why"),
    [(0, 7, ""), (5, 7, ""), (6, 7, "one run in 7 is a clean one"), (0, 1, "one run in 1 is a clean one")],
)
def test_one_run_in_so_many_is_clean(catalog, runs, every, why):
    """After six optimized runs comes a clean one, or after as many as are configured."""
    save_state(catalog.store(REPO), path_of(catalog), state_of(catalog, optimized_runs=runs))
    (sweep,) = swept(catalog, SweepRules(clean_every=every)).sweeps

    assert why == sweep.why_clean
    assert (why != "") == sweep.is_clean


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda text: text[:40], "it is not readable"),
        (lambda _: "\ufffd", "it is not readable"),
        (lambda _: "[]", "it is not readable"),
        (lambda text: text.replace('"staged": 0', '"staged": 1'), "it was altered"),
        (lambda text: text.replace('"branch_id": "main', '"branch_id": "niam'), "it was altered"),
    ],
)
def test_a_damaged_state_is_not_built_on(catalog, damage, why):
    """Whatever was done to a state's text, the next run is clean and says what is wrong with it."""
    store, path = catalog.store(REPO), path_of(catalog)
    save_state(store, path, state_of(catalog))
    store.write(state_key(path), damage(store.read(state_key(path)).decode()).encode())
    (sweep,) = swept(catalog).sweeps

    assert f"the last run's state cannot be used: {why}" == sweep.why_clean


def test_another_branch_s_state_is_not_built_on(catalog):
    """A state that was copied from another branch's path is not believed."""
    store, path = catalog.store(REPO), path_of(catalog)
    store.write(state_key(path), state_of(catalog, branch_id="other").to_json().encode())
    (sweep,) = swept(catalog).sweeps

    assert "the last run's state cannot be used: it is another branch's" == sweep.why_clean


def test_a_gc_commit_that_is_gone_means_a_clean_run(catalog):
    """What the last run saw staged is part of its state."""
    store, path = catalog.store(REPO), path_of(catalog)
    gc_commit = write_metarange(store, STAGED, [])
    save_state(store, path, state_of(catalog, gc_commit=gc_commit))
    before = swept(catalog).sweeps[0].is_clean
    store.delete([DeleteRequest(f"{STAGED}/{gc_commit}.parquet")])
    (sweep,) = swept(catalog).sweeps

    assert not before
    assert "the last run's GC commit cannot be used" in sweep.why_clean


def test_a_deleted_branch_s_path_is_found_by_its_name(catalog):
    """The folders of all branches that ever had a name are swept, but none of another living branch."""
    for name in ("a/b", "a-b"):
        catalog.create_branch(REPO, name, "main")
        catalog.upload(REPO, name, "x", b"x")
    gone, living = (catalog.branch_ids(REPO)[name] for name in ("a/b", "a-b"))
    catalog.delete_branch(REPO, "a/b")
    found = swept(catalog, SweepRules(branch="a/b"))

    assert [gone] == [one.branch_id for one in found.sweeps]
    assert {gone, living, catalog.branch_ids(REPO)["main"]} == {
        one.branch_id for one in swept(catalog).sweeps
    }
    with pytest.raises(NotFound):
        swept(catalog, SweepRules(branch="never"))


def test_a_later_run_s_state_is_not_overwritten(catalog):
    """Applying an old run again leaves what newer runs have saved."""
    store, path = catalog.store(REPO), path_of(catalog)
    save_state(store, path, state_of(catalog, run_id=5, staged=5))
    save_state(store, path, state_of(catalog, run_id=4, staged=4))

    assert 5 == swept(catalog).sweeps[0].before.staged
