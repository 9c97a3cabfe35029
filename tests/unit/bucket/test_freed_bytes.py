"""What an action frees: a delete marker hides, a move moves, and only what is deleted gives bytes back."""

from __future__ import annotations

import pytest

from ebbtide.core.decision import Outcome
from ebbtide.core.manifest import Summary, Tally
from ebbtide.engine.actor import Attempt, DeleteOptions
from ebbtide.engine.apply import Applied
from ebbtide.report.charts import figures
from ebbtide.report.results import headline, results
from ebbtide.storage.store import DeleteResult, StoreSpec
from ebbtide.targets.s3.actions.deleter import BucketDeleter
from ebbtide.targets.s3.actions.requests import PlannedItem
from ebbtide.targets.s3.kind import WORDS
from ebbtide.targets.s3.model import Action, Versioning, frees_bytes

CASES = [
    (Versioning.ENABLED, "v1", Outcome.HIDDEN),
    (Versioning.ENABLED, "null", Outcome.HIDDEN),
    (Versioning.SUSPENDED, "v1", Outcome.HIDDEN),
    (Versioning.SUSPENDED, "null", Outcome.DELETED),
    (Versioning.DISABLED, "null", Outcome.DELETED),
]


@pytest.fixture
def sample_summary() -> Summary:
    """Give what a plan amounts to that hides two objects and deletes one."""
    tallies = (Tally("expire", 2, 4096), Tally("delete_version", 1, 1024))
    due, held = Tally("due", 3, 5120), Tally("held", 0, 0)
    return Summary(due, held, 9, by_action=tallies, frees=Tally("freed", 1, 1024))


@pytest.mark.parametrize(("versioning", "version", "outcome"), CASES)
def test_an_expiration_is_hidden_unless_the_store_really_deletes(versioning, version, outcome):
    """Only where nothing is versioned, or a null marker replaces a null version, an expiration deletes."""
    deleter = BucketDeleter(StoreSpec("s3://b"), Attempt(DeleteOptions(), 1, 0, resumed=False), versioning)
    items = [
        PlannedItem(0, "a", Action.EXPIRE, version),
        PlannedItem(1, "b", Action.DELETE_VERSION, version),
        PlannedItem(2, "c", Action.EXPIRE, version),
    ]
    done = DeleteResult("a", Outcome.DELETED)
    told = deleter._with_hidden(items, {0: done, 1: done, 2: DeleteResult("c", Outcome.ABSENT)})

    assert [outcome, Outcome.DELETED, Outcome.ABSENT] == [told[number].outcome for number in range(3)]


def test_what_is_hidden_or_moved_is_done_and_final_and_not_gone():
    """Applying again leaves it alone; it counts as done, but neither as gone nor as freed."""
    applied = Applied(
        1, {name: Tally(name, 1, size) for name, size in (("hidden", 5), ("moved", 7), ("deleted", 2))}
    )

    assert (2, 5, 3, 0) == (applied.freed.bytes, applied.hidden.bytes, applied.done, applied.unfinished)
    assert [(True, True, False)] * 2 == [
        (one.is_done, one.is_final, one.is_gone) for one in (Outcome.HIDDEN, Outcome.MOVED)
    ]


def test_the_report_says_what_was_freed(sample_summary):
    """The first sentence, the first number and the outcomes count hidden bytes as acted on, not as freed."""
    outcomes = {"hidden": Tally("hidden", 2, 4096), "deleted": Tally("deleted", 1, 1024)}
    head = headline("succeeded", sample_summary, outcomes, WORDS)
    found = results("succeeded", sample_summary.due, outcomes, WORDS)
    planned = headline("planned", sample_summary, {}, WORDS)

    assert "Acted on 5.0 KiB in 3 items, freed 1.0 KiB." == head.sentence
    assert ("Freed", "1.0 KiB") == (
        (first := figures(sample_summary, head, found, outcomes, WORDS)[0]).label,
        first.value,
    )
    assert ("Would free", "1.0 KiB") == (
        (first := figures(sample_summary, planned, found, {}, WORDS)[0]).label,
        first.value,
    )
    assert "freeing 1.0 KiB" in planned.sentence
    assert "nothing was freed" in next(row.meaning for row in found.rows if row.label == "hidden")


@pytest.mark.spark
@pytest.mark.parametrize("versioning", Versioning)
def test_a_plan_counts_as_freed_what_apply_will_delete(spark, versioning):
    """The expression by which plans and forecasts count frees exactly what apply reports as deleted."""
    rows = [(str(action), version) for action in Action for version in ("v1", "null")]
    frame = spark.createDataFrame(rows, "action string, version string")
    freed = frame.where(frees_bytes(versioning, "action", "version")).collect()
    kept = {(str(Action.TRANSITION), version) for version in ("v1", "null")}
    kept |= {
        (str(Action.EXPIRE), version)
        for mode, version, outcome in CASES
        if mode is versioning and outcome is Outcome.HIDDEN
    }
    if versioning is Versioning.DISABLED:
        kept.discard((str(Action.EXPIRE), "v1"))

    assert set(rows) - kept == {(row["action"], row["version"]) for row in freed}
