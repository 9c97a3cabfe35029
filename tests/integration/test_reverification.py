"""Between plan and apply something comes to need a planned object: it stays, and its outcome says why."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from tests.services.lake import REPOSITORY, Lake, make_lake, plan_with_many_batches

from ebbtide.core.errors import ObjectGone
from ebbtide.engine.tables.contracts import PLAN
from ebbtide.targets.lake.catalog.catalog import Catalog

pytestmark = pytest.mark.spark

STORIES = ("path", "branch", "merge", "revert", "fresh", "tag", "reset", "lapsed", "alike", "again", "idle")
"""Each has a branch of its own, d-STORY, with one object, tmp/STORY, that is due there."""
UNCOVERED = ("u-merge", "u-revert", "u-reset")
"""Branches that no rule covers, and that have nothing at the time of the plan."""


def one_object_on(lake: Lake, story: str) -> str:
    """Make a branch with one old object and give its address."""
    branch = f"d-{story}"
    lake.catalog.create_branch(REPOSITORY, branch, "main")
    address = lake.upload(f"tmp/{story}", branch=branch)[f"tmp/{story}"]
    lake.commit(branch)
    return address


def refer_anew(catalog: Catalog) -> None:
    """Make new references of every kind, each to the object of one story."""
    catalog.copy(REPOSITORY, "d-path", "tmp/path", "keep/path")
    catalog.copy(REPOSITORY, "d-branch-too", "tmp/branch", "keep/branch")
    catalog.copy(REPOSITORY, "d-merge", "tmp/merge", "keep/merge")
    catalog.commit(REPOSITORY, "d-merge", "a second name")
    catalog.merge(REPOSITORY, "d-merge", "u-merge")
    catalog.revert(REPOSITORY, "u-revert", "d-revert")
    catalog.create_branch(REPOSITORY, "u-fresh", "d-fresh")
    catalog.create_tag(REPOSITORY, "v-tag", "d-tag")
    catalog.reset(REPOSITORY, "u-reset", to="d-reset")
    catalog.upload(REPOSITORY, "d-lapsed", "tmp/more", b"")
    catalog.commit(REPOSITORY, "d-lapsed", "a range with the old entry and a new one")
    catalog.create_branch(REPOSITORY, "d-alike-too", "d-alike")
    catalog.copy(REPOSITORY, "d-again", "tmp/again", "tmp/again-copy")


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory):
    """Plan, refer anew, apply; give each story's outcome, its reason, and whether the object is there."""
    lake = make_lake(spark, tmp_path_factory.mktemp("lake"))
    covered = {f"d-{story}": 3 for story in (*STORIES, "branch-too", "alike-too")}
    lake.policy({"feature": {"prefix": "tmp/", "branch_days": covered}})
    stories = {story: one_object_on(lake, story) for story in STORIES}
    for branch in UNCOVERED:
        lake.catalog.create_branch(REPOSITORY, branch, "main")
    lake.catalog.create_branch(REPOSITORY, "d-branch-too", "d-branch")
    lake.catalog.delete(REPOSITORY, "d-revert", "tmp/revert")
    lake.commit("d-revert")
    lake.upload("keep/other")
    lake.day(5)
    manifest = lake.plan()

    assert set(stories.values()) == lake.due(manifest)
    refer_anew(lake.catalog)
    lake.apply(manifest)
    outcomes, there = lake.outcomes(manifest), lake.stored()
    return {story: (*outcomes[address], address in there) for story, address in stories.items()}


@pytest.mark.parametrize(
    ("story", "by"),
    [
        ("path", "keep/path staged on branch d-path"),
        ("branch", "keep/branch staged on branch d-branch-too"),
        ("merge", "keep/merge on branch d-merge"),
        ("revert", "tmp/revert on branch u-revert"),
        ("fresh", "tmp/fresh on branch u-fresh"),
        ("tag", "tmp/tag under tag v-tag"),
        ("reset", "tmp/reset on branch u-reset"),
        ("again", "tmp/again-copy staged on branch d-again"),
    ],
)
def test_a_new_reference_keeps_the_object(told, story, by):
    """A reference made after the plan that has not lapsed keeps its object, and the outcome names it."""
    outcome, reason, there = told[story]

    assert ("changed", True) == (outcome, there)
    assert reason.startswith(f"referenced since the plan was made: {by} (")


@pytest.mark.parametrize("story", ["lapsed", "alike", "idle"])
def test_a_new_reference_that_has_lapsed_keeps_nothing(told, story):
    """A new commit with the old entry, or a new branch that rules treat alike, does not save an object."""
    assert ("deleted", "", False) == told[story]


def test_a_reference_made_between_two_batches(lake):
    """What comes to be referenced while apply is at work is kept by the batches that are still to come."""
    manifest = plan_with_many_batches(lake)
    rows = PLAN.read(lake.spark, lake.folder(manifest).plan).toArrow().to_pylist()
    named = [row for row in rows if row["names"] != ["raw/6"]]  # its key has another object by now
    first, last = (choose(named, key=lambda row: row["batch"]) for choose in (min, max))

    assert first["batch"] < last["batch"]

    def refer(step: str) -> None:
        if step == f"batch {first['batch']} finished":
            lake.catalog.create_branch(REPOSITORY, "old", "main")
            lake.catalog.copy(REPOSITORY, "old", last["names"][0], f"keep/{last['names'][0]}")
            with pytest.raises(ObjectGone):
                lake.catalog.copy(REPOSITORY, "old", first["names"][0], f"keep/{first['names'][0]}")

    applied = lake.apply(manifest, on_step=refer)
    outcomes = lake.outcomes(manifest)
    there = lake.catalog.read(REPOSITORY, "old", f"keep/{last['names'][0]}")

    assert "deleted" == outcomes[first["address"]][0]
    assert "changed" == outcomes[last["address"]][0]
    assert f"keep/{last['names'][0]} staged on branch old" in outcomes[last["address"]][1]
    assert last["names"][0].encode() == there
    assert manifest.summary.due.objects == sum(tally.objects for tally in applied.outcomes.values())
