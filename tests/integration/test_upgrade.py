"""A state root that Ebbtide 0.1 made goes on working: see tests/fixtures/README.md for what is in it."""

from __future__ import annotations

import pytest
from tests.services.ebb import Ebb, ebb
from tests.services.old_state import FORMAT_2, old_state

__all__ = ["ebb"]

pytestmark = pytest.mark.spark

SOON = "2026-02-20T08:00:00Z"
IMAGES = "oci-layout:/tmp/ebbtide-0.1-fixture/images"


@pytest.fixture
def old(ebb: Ebb, monkeypatch: pytest.MonkeyPatch) -> Ebb:
    """Run commands in the folder of the old state root."""
    with old_state() as folder:
        monkeypatch.chdir(folder)
        ebb.folder = folder
        yield ebb


def test_the_old_runs_are_listed_and_their_plans_shown(old):
    """Every run of the earlier version is listed with its state, and its plans and rows can be read."""
    runs = {run["run_id"]: run["state"] for run in old.json("runs", now=SOON)}
    shown = old("plan", "show", "2", "--all", now=SOON)[0]

    assert {1: "succeeded", 2: "succeeded", 3: "succeeded", 4: "planned", 5: "planned"} == {
        run: state for run, state in runs.items() if run <= 5
    }
    assert 6 == shown.count("raw/")


def test_the_upgrade_of_the_databases_is_told_once(old):
    """The first command upgrades the ledger and says so on standard error; its output is not changed."""
    first_out, first_err = old("runs", now=SOON)[:2]
    second_out, second_err = old("runs", now=SOON)[:2]

    assert "the ledger was upgraded from schema ledger_2 to" in first_err
    assert "upgraded" not in second_err
    assert first_out == second_out


def test_an_old_bin_is_read_and_restored(old):
    """What the earlier version set aside is found by key, restored, and readable again."""
    gone = old("lake", "cat", "sales", "raw/2.csv", code=2, now=SOON)[1]
    old("restore", "2", "raw/2.csv", now=SOON)
    back = old("lake", "cat", "sales", "raw/2.csv", now=SOON)[0]
    deleted = old("lake", "cat", "sales", "tmp/1.csv", code=2, now=SOON)[1]

    assert "ebb restore 2" in gone
    assert "raw 2\n" == back
    assert "deleted for good" in deleted


def test_what_old_runs_removed_stays_removed_in_new_plans(old):
    """An incremental plan of the new version equals its full plan, and neither plans what is gone."""
    incremental = old.json("plan", "lake:sales", now=SOON)
    full = old.json("plan", "lake:sales", "--full", now=SOON)

    assert incremental["summary"] == full["summary"]
    assert incremental["digest"] == full["digest"]
    # tmp/ was deleted and raw/2 to raw/6 lie in the bin; raw/1 was restored by the earlier version.
    assert incremental["summary"]["due"]["objects"] <= 1


def test_an_old_registry_needs_no_adoption_and_keeps_its_marks(old, monkeypatch):
    """Pins, policies and the bin of a registry that the earlier version managed are still there."""
    monkeypatch.setenv("EBBTIDE_USER", "casey")
    old("image", "role", "grant", IMAGES, "casey", "image-purge-writer", now="2026-03-21T00:00:00Z")
    listed = {row["tag"]: row for row in old.lines("image", "ls", IMAGES) if row["repository"] == "app"}
    old("plan", IMAGES, now="2026-03-21T00:00:00Z")
    old("image", "recycle", "restore", f"{IMAGES}//app:old", now="2026-03-21T00:00:00Z")

    assert listed["keep"]["can_delete_prior"] is False


@pytest.fixture
def untyped(ebb: Ebb, monkeypatch: pytest.MonkeyPatch) -> Ebb:
    """Run commands in the folder of a state root whose plans have format 2."""
    with old_state(FORMAT_2) as folder:
        monkeypatch.chdir(folder)
        ebb.folder = folder
        yield ebb


BEGUN = "2026-02-10T01:00:00Z"
APPLY = ("--yes", "--override-breaker")


def test_rows_of_format_2_are_shown_as_typed_verdicts(untyped):
    """A plan of format 2 has an action, a condition and labels, and the names that scripts read."""
    lake = untyped.lines("plan", "show", "2", "--all")
    (image,) = untyped.lines("plan", "show", "3", "--all")

    assert {("delete", None, "lifecycle")} == {(r["action"], r["condition"], r["collector"]) for r in lake}
    assert [{"branch": "on branch main"}] * 6 == [row["labels"] for row in lake]
    assert ("recycle", "older", "registry") == (image["action"], image["version"], image["collector"])
    assert ["old", "older"] == image["condition"]["siblings"]
    assert "old older" == image["task"]["goal"]


def test_a_plan_of_format_2_that_was_begun_is_applied_to_its_end(untyped):
    """A run that was killed goes on after its finished batch, and then nothing is due."""
    done = untyped.json("apply", "2", *APPLY, now=BEGUN)
    incremental = untyped.json("plan", "lake:sales", now=BEGUN)
    full = untyped.json("plan", "lake:sales", "--full", now=BEGUN)

    assert {"deleted": 6} == {name: tally["objects"] for name, tally in done["outcomes"].items()}
    assert (0, full["digest"]) == (incremental["summary"]["due"]["objects"], incremental["digest"])


def test_a_plan_of_format_2_that_was_not_begun_has_to_be_made_again(untyped):
    """Its digest does not cover all that actors read, so it is refused before anything is removed."""
    refused = untyped("apply", "3", *APPLY, code=3, now="2027-06-20T00:00:00Z")[1]

    assert "made by an earlier version" in refused
    assert "plan again" in refused
