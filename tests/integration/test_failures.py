"""What goes wrong on an executor arrives as itself, and a store that refuses leaves a run that can go on."""

from __future__ import annotations

import os

import pytest
from tests.services.lake import REPOSITORY, Lake

from ebbtide.core import errors
from ebbtide.core.errors import EbbtideError, PartlyApplied, StoreError
from ebbtide.engine import actor
from ebbtide.engine.spark.failures import FailureLog, own_errors
from ebbtide.engine.tables.contracts import AFFECTED
from ebbtide.state.runs import RunState

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
    assert "a Spark job failed: ZeroDivisionError: oops" == failed.value.what
    assert FailureLog.file is not None
    assert str(FailureLog.file) in failed.value.fix
    assert "--full" not in failed.value.fix
    assert "in job" in FailureLog.file.read_text()


def missing_module(spark, _folder):
    """Import on an executor what is not installed there."""

    def job(batches):
        import no_such_module  # noqa: PLC0415 - on the executor

        yield from no_such_module.over(batches)

    spark.range(1).mapInArrow(job, "id long").collect()


def crashing_worker(spark, _folder):
    """Let Python on an executor end at once."""

    def job(batches):
        os._exit(7)
        yield from batches

    spark.range(1).mapInArrow(job, "id long").collect()


def deleted_file(spark, folder):
    """Delete a table's files between planning a read and reading."""
    AFFECTED.write(spark.range(9).selectExpr("1 as world", "id as hash"), folder)
    rows = AFFECTED.read(spark, folder)
    rows.schema  # noqa: B018 - files are listed when the frame is made
    for file in folder.glob("*.parquet"):
        file.unlink()
    rows.collect()


@pytest.mark.parametrize(
    ("fail", "cause", "advice"),
    [
        (missing_module, "ModuleNotFoundError: No module named 'no_such_module'", "install the same Ebbtide"),
        (crashing_worker, "Python worker exited unexpectedly", "run again"),
        (deleted_file, "does not exist", "let nothing else change the state root"),
    ],
)
def test_the_root_cause_of_a_failure_is_said(spark, tmp_path, fail, cause, advice):
    """Whatever goes wrong in a task, one line says what it was, and a log has all that Spark said."""
    with pytest.raises(EbbtideError, match="a Spark job failed") as failed, own_errors():
        fail(spark, tmp_path / "table")

    assert cause in failed.value.what
    assert "An error occurred while calling" not in failed.value.what
    assert failed.value.fix.startswith(advice)
    assert f"the whole text is in {FailureLog.file}" in failed.value.fix
    assert "--full" not in failed.value.fix


def denying(keys: set[str]):
    """Make a deleter whose disk denies some deletes; made in a function, so that workers get it by value."""

    class Denying(actor._Deleter):
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
    manifest = lake.plan(batch_size=3)
    with monkeypatch.context() as patch:
        patch.setattr(actor, "_Deleter", denying(keys))
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
