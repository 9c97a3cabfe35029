"""A planner or an apply is killed at every durable step; going on afterwards ends as if it had not been."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from tests.services.lake import RAW_30_DAYS, REPOSITORY, Lake, make_lake, open_lake

from ebbtide.ledger.runs import RunState
from ebbtide.plan.manifest import Manifest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

OBJECTS = 16
PLAN_STEPS = ["run begun", "plan durable", "plan recorded"]
APPLY_STEPS = [
    "applying",
    "wave 0 started",
    "wave 0 deleted",
    "wave 0 finished",
    "wave 1 started",
    "wave 1 deleted",
    "wave 1 finished",
    "finished",
]


@dataclass(frozen=True)
class Scene:
    """A lake whose whole folder can be put back to what it was, and how it ends undisturbed."""

    spark: SparkSession
    folder: Path
    pristine: Path

    def reset(self, stage: str) -> Lake:
        """Put everything back to the stage `made` or `planned`."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.pristine / stage, self.folder)
        return self.open()

    def open(self) -> Lake:
        """Open what lies in the folder, as a new process would."""
        lake = open_lake(self.spark, self.folder)
        lake.day(40)
        return lake

    def save(self, lake: Lake, stage: str) -> None:
        """Remember this stage; databases are closed, so that all of them is in the files."""
        lake.close()
        shutil.copytree(self.folder, self.pristine / stage)

    def kill(self, job: str, moment: str, *, own_spark: bool = False) -> list[str]:
        """Run a job in a process that dies at a moment, wait until Spark is idle, give the steps it made."""
        gateway = SparkContext._gateway.gateway_parameters
        reach = ["-", "-"] if own_spark else [str(gateway.port), gateway.auth_token]
        script = Path(__file__).with_name("doomed.py")
        ended = subprocess.run(
            [sys.executable, script, self.folder, *reach, job, moment],
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            check=False,
        )

        assert -signal.SIGKILL == ended.returncode, ended.stderr[-2000:]
        while self.spark.sparkContext.statusTracker().getActiveStageIds():
            time.sleep(0.05)
        return ended.stdout.splitlines()


def end_of(lake: Lake, manifest: Manifest) -> dict[str, Any]:
    """Give the state in which a run left the world: the store, the outcomes, the ledger, the outputs."""
    stats = lake.store.read("_lakefs/retention/lc/stats/2026-02-10.csv")
    outcomes = {address: outcome for address, (outcome, _) in lake.outcomes(manifest).items()}
    runs = [(run.run_id, run.state, run.due_objects, run.due_bytes) for run in lake.ledger.runs()]
    return {"listing": lake.listing(), "outcomes": outcomes, "runs": runs, "stats": stats}


@pytest.fixture(scope="module")
def scene(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Build a lake with a plan of two waves."""
    base = tmp_path_factory.mktemp("crashes")
    scene = Scene(spark, base / "lake", base / "pristine")
    scene.folder.mkdir()
    lake = make_lake(spark, scene.folder)
    lake.policy(RAW_30_DAYS)
    lake.upload(*(f"raw/{number}" for number in range(OBJECTS)), *(f"keep/{n}" for n in range(OBJECTS)))
    lake.commit()
    lake.day(40)
    scene.save(lake, "made")
    lake.plan(wave_size=OBJECTS // 2)
    scene.save(lake, "planned")
    yield scene
    shutil.rmtree(base)


@pytest.fixture(scope="module")
def undisturbed(scene: Scene) -> dict[str, Any]:
    """Apply the plan with nobody disturbing, and see that its steps are those at which we kill."""
    lake, steps = scene.reset("planned"), []
    manifest = lake.folder_of(1).read_manifest()
    lake.apply(manifest, on_step=steps.append)

    assert APPLY_STEPS == steps
    return end_of(lake, manifest)


@pytest.mark.parametrize("moment", [*APPLY_STEPS, "unlink:2"])
def test_an_apply_that_was_killed_is_finished_by_the_next(scene, undisturbed, moment):
    """Killed at any moment, apply goes on and ends alike; killed within a wave it leaves the gate closed."""
    before = scene.reset("planned").stored()
    steps = scene.kill("apply", moment)
    lake = scene.open()
    survived, closed = lake.stored(), lake.catalog.gate(REPOSITORY) is not None
    manifest = lake.folder_of(1).read_manifest()
    lake.apply(manifest)

    last = steps[-1] if moment.startswith("unlink") else moment

    assert APPLY_STEPS[: APPLY_STEPS.index(last) + 1] == steps
    assert last.endswith(("started", "deleted")) == closed
    assert lake.catalog.gate(REPOSITORY) is None
    assert undisturbed == end_of(lake, manifest)
    assert lake.stored() <= survived <= before
    if moment.startswith("unlink"):
        assert last.endswith("started")
        assert 2 <= len(before - survived) <= OBJECTS


def test_a_whole_apply_with_its_own_spark_is_killed(scene, undisturbed):
    """The same with nothing shared: process, Spark and locks die, and the next apply ends alike."""
    scene.reset("planned").close()
    scene.kill("apply", "unlink:2", own_spark=True)
    lake = scene.open()
    manifest = lake.folder_of(1).read_manifest()

    assert OBJECTS < len(lake.stored()) <= 2 * OBJECTS - 2
    assert RunState.APPLYING == lake.state(manifest)
    lake.apply(manifest)

    assert undisturbed == end_of(lake, manifest)


@pytest.mark.parametrize("moment", PLAN_STEPS[:2])
def test_a_plan_that_was_killed_leaves_nothing(scene, moment):
    """A planner that dies before its plan is recorded leaves a run that the next plan clears away."""
    wanted = scene.reset("planned").folder_of(1).read_manifest()
    listing = scene.reset("made").listing()

    assert PLAN_STEPS[: PLAN_STEPS.index(moment) + 1] == scene.kill("plan", moment)
    lake = scene.open()

    assert [RunState.PLANNING] == [run.state for run in lake.ledger.runs()]
    manifest = lake.plan(wave_size=OBJECTS // 2)

    assert [RunState.ABANDONED, RunState.PLANNED] == [run.state for run in lake.ledger.runs()]
    assert not lake.folder_of(1).path.exists()
    assert wanted.plan_hash == manifest.plan_hash
    assert all("/run-000002" in key for key in set(lake.listing()) - set(listing))
    assert 2 * OBJECTS == len(lake.stored())
    assert OBJECTS == lake.apply(manifest).freed.objects


def test_a_plan_that_was_recorded_is_a_plan(scene, undisturbed):
    """A planner that dies once its plan is recorded leaves a plan that can be applied, outputs and all."""
    scene.reset("made").close()

    assert PLAN_STEPS == scene.kill("plan", "plan recorded")
    lake = scene.open()
    manifest = lake.folder_of(1).read_manifest()
    lake.apply(manifest)
    ended = end_of(lake, manifest)

    assert undisturbed["outcomes"] == ended["outcomes"]
    assert undisturbed["runs"] == ended["runs"]
    assert undisturbed["listing"] == ended["listing"]
    assert lake.catalog.read(REPOSITORY, "main", "keep/0") == b"keep/0"
