"""A deleted repository on a real disk: its whole namespace is collected, and nothing of anybody else."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from datetime import timedelta

import pytest
from tests.services.lake import FIRST_DAY, REPOSITORY, make_lake
from tests.services.machine_clock import set_machine_clock
from tests.services.runs import plan_deleted

from ebbtide.cli.main import run
from ebbtide.cli.state import State
from ebbtide.core.decision import Decision, HoldReason
from ebbtide.core.errors import BreakerTripped, NotFound, Refused, StalePlan
from ebbtide.core.instant import system_clock
from ebbtide.engine.plan import PlanOptions
from ebbtide.engine.run_tables import stream_decisions
from ebbtide.state.runs import RunState
from ebbtide.storage.namespace import MARKER

pytestmark = pytest.mark.spark

DELETED = FIRST_DAY + timedelta(days=10)
RIPE = 11
"""The day on which the grace period of what was deleted on day 10 ends."""


class Killed(BaseException):
    """Stands for the end of the process."""


class Doomed:
    """A lake whose repository was deleted on day 10, and what lies in its namespace."""

    def __init__(self, spark, folder):
        self.lake = make_lake(spark, folder)
        self.folder = folder / "objects"
        self.lake.upload("a", "b", "c")
        self.lake.commit()
        self.lake.catalog.create_branch(REPOSITORY, "open/branch", "main")
        self.lake.upload("d", branch="open/branch")
        self.lake.upload("staged")
        uid = self.lake.catalog.repository(REPOSITORY).uid
        for key in (
            f"repos/{uid}/stray",
            f"repos/{uid}/branches/b/_gc/state.json",
            "_lakefs/retention/x.csv",
        ):
            self.lake.write(key, b"own")
        self.own = set(self.lake.listing()) - {MARKER}
        self.strangers = {
            "at the root",
            "repos.txt",
            "repository/data.parquet",
            "elsewhere/deep/data.parquet",
            f"repos/{uid}0",
            f"repos/{uid}.txt",
            f"repos/{uid}/branches/b/_gc/e\u0301",
        }
        for key in self.strangers:
            self.lake.write(key, b"stranger")
        self.lake.write(f"repos/{uid}/odd\tname", b"odd")
        self.strangers_and_odd = self.strangers | {f"repos/{uid}/odd\tname"}
        self.lake.day(10)
        self.lake.stamp(*self.lake.listing("_lakefs/"))
        self.gone = self.lake.catalog.delete_repository(REPOSITORY)

    def plan(self, day, **how):
        """Plan at noon of a day."""
        now = self.lake.day(day)
        options = PlanOptions(batch_size=how.pop("batch_size", 50_000))
        return plan_deleted(self.lake.spark, self.lake.shop, self.gone, now=now, options=options, **how)

    def finish(self, manifest, **how):
        """Apply a plan, as it must be: with the breaker overridden."""
        return self.lake.apply(manifest, override_breaker=True, **how)

    def held(self, manifest):
        """Give what a plan holds, and why."""
        rows = stream_decisions(self.lake.folder(manifest), Decision.HELD)
        return {row["address"]: row["hold"] for row in rows}

    def left(self):
        """List what is really there, but for the marker, of which there is one for as long as it is known."""
        files = {file for file in self.folder.rglob("*") if file.is_file()}
        marker = self.folder / MARKER

        assert self.is_known() == (marker in files)
        return {str(file.relative_to(self.folder)) for file in files - {marker}}

    def is_known(self):
        """Tell whether the catalog still knows that the repository was deleted."""
        return self.gone in self.lake.catalog.deleted_repositories()


@pytest.fixture
def doomed(spark, tmp_path):
    """Give a deleted repository, on the day of its deletion."""
    return Doomed(spark, tmp_path)


def test_everything_of_its_own_goes_and_strangers_stay(doomed):
    """All that is its own is due when the grace period ends; strangers keep the namespace taken."""
    memory = doomed.lake.shop.root / "memory" / doomed.gone.uid
    memory.mkdir(parents=True)
    early = doomed.plan(RIPE - 1e-6 / 86_400)
    manifest = doomed.plan(RIPE)

    assert set() == doomed.lake.due(early)
    assert dict.fromkeys(doomed.own, HoldReason.NOT_YET) == {
        address: why for address, why in doomed.held(early).items() if address in doomed.own
    }
    assert doomed.own == doomed.lake.due(manifest)
    assert dict.fromkeys(doomed.strangers, HoldReason.FOREIGN) == doomed.held(manifest)
    assert ("1 object with an unusual name is left alone",) == manifest.warnings[:1]
    with pytest.raises(BreakerTripped):
        doomed.lake.apply(manifest)
    assert doomed.own | doomed.strangers_and_odd == doomed.left()
    doomed.finish(manifest)
    assert doomed.strangers_and_odd == doomed.left()
    assert not doomed.is_known()
    assert not memory.exists()
    assert doomed.finish(manifest).already_applied
    with pytest.raises(NotFound):
        doomed.lake.catalog.deleted_repository(REPOSITORY)
    with pytest.raises(Refused):
        doomed.lake.catalog.create_repository(REPOSITORY, doomed.gone.namespace)
    shutil.rmtree(doomed.folder / "repos")
    assert doomed.gone.uid != doomed.lake.catalog.create_repository(REPOSITORY, doomed.gone.namespace).uid


@pytest.mark.long
def test_a_killed_run_is_resumed(doomed):
    """Killed in a batch, between two and before it has forgotten, an apply goes on where it was."""
    manifest = doomed.plan(RIPE, batch_size=2)  # so many batches that the first two never have all of it

    def kill(at):
        def killer(step):
            if step == at:
                raise Killed

        with pytest.raises(Killed):
            doomed.finish(manifest, on_step=killer)
        return doomed.lake.state(manifest), doomed.is_known(), bool(doomed.own & doomed.left())

    ends = [kill(step) for step in ("batch 0 deleted", "batch 1 finished", "finished")]
    applied = doomed.finish(manifest)

    assert [
        (RunState.APPLYING, True, True),
        (RunState.APPLYING, True, True),
        (RunState.SUCCEEDED, True, False),
    ] == ends
    assert len(doomed.own) == applied.freed.objects
    assert doomed.strangers_and_odd == doomed.left()
    assert not doomed.is_known()


def test_what_is_too_young_keeps_the_repository_known(doomed):
    """What an upload left after the deletion is held for a day of its own, and the namespace with it."""
    late = f"repos/{doomed.gone.uid}/branches/main-0/0/late"
    file = doomed.folder / late
    file.parent.mkdir(parents=True)
    file.write_bytes(b"late")
    moment = (DELETED + timedelta(hours=20)).timestamp()
    os.utime(file, (moment, moment))
    first = doomed.plan(RIPE)
    doomed.finish(first)
    known = doomed.is_known()
    second = doomed.plan(12)
    doomed.finish(second)

    assert (doomed.own, {late}) == (doomed.lake.due(first), doomed.lake.due(second))
    assert HoldReason.NOT_YET == doomed.held(first)[late]
    assert (True, False) == (known, doomed.is_known())
    assert doomed.strangers_and_odd == doomed.left()


def test_a_plan_for_what_is_forgotten_is_stale(doomed, tmp_path):
    """A plan is stale when another run has collected the repository, and harms nobody who came after."""
    manifest = doomed.plan(RIPE)
    doomed.lake.catalog.create_repository(REPOSITORY, str(tmp_path / "elsewhere"))
    doomed.lake.upload("new")
    doomed.lake.catalog.release(doomed.gone.uid)
    doomed.lake.catalog.forget_deleted(doomed.gone.uid)
    with pytest.raises(StalePlan, match="another run has collected it"):
        doomed.finish(manifest)

    assert doomed.own <= doomed.left()
    assert b"new" == doomed.lake.catalog.read(REPOSITORY, "main", "new")


def test_the_commands_from_delete_to_report(spark, tmp_path, monkeypatch, capsys):
    """The command line collects a deleted repository; without an override the breaker stops it."""

    @contextmanager
    def shared_spark(*_):
        yield spark

    monkeypatch.setattr(State, "spark", shared_spark)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("a")
    today = [
        (["lake", "create", "sales", "./lake"], 0),
        (["lake", "upload", "sales", "a.csv"], 0),
        (["lake", "delete", "sales", "--yes"], 0),
        (["plan", "lake:sales"], 2),
        (["plan", "lake:sales", "--deleted"], 0),
        (["apply", "latest", "--yes"], 0),
    ]
    in_a_century = [
        (["plan", "lake:sales", "--deleted"], 0),
        (["plan", "show", "latest"], 0),
        (["plan", "show", "latest", "--all", "--json"], 0),
        (["report", "latest"], 0),
        (["apply", "latest", "--yes"], 3),
        (["apply", "latest", "--yes", "--override-breaker"], 0),
        (["runs"], 0),
        (["plan", "lake:sales", "--deleted"], 2),
        (["lake", "create", "sales", "./lake"], 0),
    ]
    codes = [run(command) for command, _ in today]
    set_machine_clock(monkeypatch, "2126-01-01")
    codes += [run(command) for command, _ in in_a_century]
    said = " ".join(capsys.readouterr().out.split())

    assert [code for _, code in today + in_a_century] == codes
    assert f"file://{tmp_path}/lake is not free yet" in said
    assert "ebb apply 2 --override-breaker" in said
    assert f"nothing of lake:sales is left, and the namespace file://{tmp_path}/lake is free" in said
    assert "ebb explain" not in (tmp_path / "ebbtide-run-2.html").read_text()


def test_a_bucket_is_collected_like_a_folder(spark, tmp_path, s3_server, bucket):
    """In a real bucket, too, all that is its own goes a day after it was written, and strangers stay."""
    lake = make_lake(spark, tmp_path, f"s3://{bucket}/lake", store_options=s3_server.options)
    lake.upload("a", "b")
    lake.commit()
    store, own = lake.store, set(lake.listing()) - {MARKER}
    strangers = {"a", "ab", "elsewhere/x", "repository/x"}
    for key in strangers:
        store.write(key, b"stranger")
    gone = lake.catalog.delete_repository(REPOSITORY)
    lake.clock.now = system_clock() + timedelta(days=2)
    manifest = plan_deleted(spark, lake.shop, gone, now=lake.clock(), options=PlanOptions())
    lake.apply(manifest, override_breaker=True)

    assert len(own) == manifest.summary.due.objects
    assert strangers == {key for batch in store.list("") for key in batch["key"].to_pylist()}
    assert [] == lake.catalog.deleted_repositories()
