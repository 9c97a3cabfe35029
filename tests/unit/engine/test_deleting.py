"""Deleting the rows of a partition, called as an executor calls it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.services.planned_rows import planned_row

from ebbtide.core.decision import Outcome
from ebbtide.engine.actor import Attempt, DeleteOptions, store_deleter
from ebbtide.storage.store import DeleteResult, StoreSpec, open_store

NEEDED = "referenced since the plan was made: keep/x on branch main"


def outcome_of(
    folder, *, kept_because=None, resumed=False, there=True, address="data/1", not_below="_lakefs/", **more
):
    """Delete one row and give its outcome."""
    spec = StoreSpec(folder.as_uri())
    if there:
        open_store(spec).write(address, b"1")
    batch = planned_row(address, kept_because)
    (done,) = store_deleter(spec, Attempt(DeleteOptions(), 1, 0, resumed), not_below=not_below, **more)(
        [batch]
    )
    return done.column("outcome")[0].as_py()


@pytest.mark.parametrize(
    ("kept_because", "resumed", "there", "outcome"),
    [
        (None, False, True, "deleted"),
        (None, False, False, "absent"),
        (None, True, False, "deleted"),
        (NEEDED, False, True, "changed"),
        (NEEDED, True, True, "changed"),
        (NEEDED, True, False, "deleted"),
    ],
)
def test_what_becomes_of_a_row(tmp_path, kept_because, resumed, there, outcome):
    """What an interrupted attempt deleted is `deleted`, even if something has come to refer to it since."""
    found = outcome_of(tmp_path, kept_because=kept_because, resumed=resumed, there=there)

    assert outcome == found


@pytest.mark.parametrize(("not_below", "outcome"), [("_lakefs/", "denied"), ("", "deleted")])
def test_metadata_is_deleted_only_if_the_target_says_so(tmp_path, not_below, outcome):
    """An object below the folder that a target protects is denied."""
    found = outcome_of(tmp_path, address="_lakefs/committed/1", not_below=not_below)

    assert outcome == found


@pytest.mark.parametrize(
    ("version", "action", "expected"),
    [
        (None, "delete", None),
        (None, "expire", "expire"),
        ("", "delete", "delete"),
        ("v1", "delete", "delete"),
    ],
)
def test_an_address_that_is_simply_deleted_has_no_action(version, action, expected):
    """Its outcome has the key that a restore of the address has, so that a restore replaces it."""
    columns = {
        "hash": pa.array([1], pa.int64()),
        "address": pa.array(["a"]),
        "version": pa.array([version], pa.string()),
        "action": pa.array([action]),
        "rules": pa.array([["r1"]]),
        "size": pa.array([1], pa.int64()),
        "batch": pa.array([0], pa.int32()),
    }
    attempt = Attempt(DeleteOptions(), 1, 0, resumed=False)
    done = attempt.outcomes(pa.RecordBatch.from_pydict(columns), [DeleteResult("a", Outcome.DELETED)])

    assert [(version, expected)] == [(row["version"], row["action"]) for row in done.to_pylist()]
