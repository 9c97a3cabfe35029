"""What goes wrong on an executor arrives as itself, and a store that refuses leaves a run that can go on."""

from __future__ import annotations

import os

import pytest
from tests.services.lake import REPOSITORY, Lake

from ebbtide import errors
from ebbtide.engine import deleting
from ebbtide.errors import EbbtideError, PartlyApplied, StoreError
from ebbtide.ledger.runs import RunState
from ebbtide.tables.failures import own_errors

pytestmark = pytest.mark.spark


def raising(name: str, *, caused: bool):
    """Make a job for executors that raises one of our errors, alone or because of another of ours."""

    def job(batches):
        for _ in batches:
            error = getattr(errors, name)("found 'this'", why="it is wrong", fix="do that")
            raise error from (errors.NotFound("there is no object") if caused else None)
        yield from ()

    return job


@pytest.mark.parametrize("caused", [False, True], ids=["alone", "caused"])
@pytest.mark.parametrize("name", ["MetadataError", "AddressError", "SlowDown", "StoreError", "NotFound"])
def test_an_error_of_an_executor_arrives_as_its_own_class(spark, name, caused):
    """What an executor raises is raised on the driver: the same class, exit code, and all of its words."""
    with pytest.raises(EbbtideError) as failed, own_errors():
        spark.range(1).mapInArrow(raising(name, caused=caused), "id long").collect()
    kind = getattr(errors, name)

    assert (kind, kind.exit_code) == (type(failed.value), failed.value.exit_code)
    assert "found 'this'; it is wrong. What to do: do that" == str(failed.value)


def test_an_error_that_is_not_ours_is_one_sentence(spark):
    """A defect on an executor is reported in one line that says where to look, not as a Java stack."""

    def job(batches):
        for batch in batches:
            yield batch
            raise ZeroDivisionError("oops")

    with pytest.raises(EbbtideError, match="a Spark job failed") as failed, own_errors():
        spark.range(1).mapInArrow(job, "id long").collect()

    assert EbbtideError is type(failed.value)
    assert 1 == len(str(failed.value).splitlines())


def denying(keys: set[str]):
    """Make a deleter whose disk denies some deletes; made in a function, so that workers get it by value."""

    class Denying(deleting._Deleter):
        """Deletes on a disk that refuses some files."""

        def _ask_store(self, requests):
            unlink = os.unlink

            def refuse(path) -> None:
                if any(path.endswith("/" + key) for key in keys):
                    raise PermissionError(13, "Permission denied")
                unlink(path)

            os.unlink = refuse
            try:
                return super()._ask_store(requests)
            finally:
                os.unlink = unlink

    return Denying


def apply_denied(lake: Lake, keys: set[str], monkeypatch) -> tuple[EbbtideError, dict]:
    """Plan and apply where the store denies these keys; give the error and the outcomes."""
    manifest = lake.plan(wave_size=3)
    with monkeypatch.context() as patch:
        patch.setattr(deleting, "_Deleter", denying(keys))
        with pytest.raises(EbbtideError) as failed:
            lake.apply(manifest)
    outcomes = lake.outcomes(manifest)

    assert RunState.FAILED == lake.state(manifest)
    assert 5 == lake.apply(manifest).freed.objects
    assert RunState.SUCCEEDED == lake.state(manifest)
    assert {"deleted"} == {outcome for outcome, _ in lake.outcomes(manifest).values()}
    return failed.value, outcomes


def test_a_store_that_denies_one_delete(lake, monkeypatch):
    """One object is denied: the others go, the run failed (exit 4), and applying again finishes it."""
    denied = lake.catalog.stat(REPOSITORY, "main", "raw/1").address
    error, outcomes = apply_denied(lake, {denied}, monkeypatch)
    kinds = sorted(outcome for outcome, _ in outcomes.values())

    assert (PartlyApplied, 4) == (type(error), error.exit_code)
    assert ["deleted"] * 4 + ["denied"] == kinds
    assert ("denied", "Permission denied") == outcomes[denied]
    assert denied not in lake.stored()


@pytest.mark.long
def test_a_store_that_denies_every_delete(lake, monkeypatch):
    """If nothing at all could be deleted the run failed (exit 1), and applying again finishes it."""
    error, outcomes = apply_denied(lake, lake.stored(), monkeypatch)

    assert (StoreError, 1) == (type(error), error.exit_code)
    assert {("denied", "Permission denied")} == set(outcomes.values())
