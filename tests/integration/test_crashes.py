"""A planner or an apply is killed at every durable step; going on afterwards ends as if it had not been."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from tests.integration.crashing import (
    APPLY,
    FIRST_PLAN,
    JOBS,
    OBJECTS,
    SECOND_PLAN,
    Scene,
    chain,
    current,
    differences,
    end_of,
    every_kill_point,
    make_scene,
    quick,
    run,
)
from tests.services.executioner import Executioner
from tests.services.lake import REPOSITORY

from ebbtide.state.runs import RunState

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FOLDED = "removed items folded"
CHAINS = {
    # Some of its steps: `tests.crash_everywhere` kills it at each, and a first plan, which makes the same.
    SECOND_PLAN: SECOND_PLAN.steps[1::3],
    # A batch that is begun is killed once more, with some files gone; what is listed is not folded again.
    APPLY: [
        late
        for step in APPLY.steps
        if step != FOLDED
        for late in ([step, "unlink:2"] if "started" in step else [step])
    ],
}
ONE_BY_ONE = [(APPLY, f"unlink:{OBJECTS - 1}"), (APPLY, FOLDED), (SECOND_PLAN, "verdicts kept")]


@pytest.fixture(scope="module")
def scene(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Build a lake with a plan of two batches, and with what came after."""
    base = tmp_path_factory.mktemp("crashes")
    with Executioner(spark, base / "deaths.log") as executioner:
        scene = Scene(quick(spark), base / "lake", base / "pristine", executioner)
        make_scene(scene)
        yield scene
    shutil.rmtree(base)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_the_durable_steps_are_those_at_which_we_kill(scene, job):
    """A job reports the steps that this file knows, so a new one cannot be forgotten here."""
    undisturbed = scene.undisturbed(job)

    assert list(job.steps) == undisturbed.steps
    assert [] == undisturbed.after["leftovers"]


def test_the_second_plan_is_incremental_and_equals_a_full_one(scene):
    """What the plans below are compared with keeps earlier verdicts, and says what a full plan says."""
    undisturbed = scene.undisturbed(SECOND_PLAN)
    lake = scene.reset(SECOND_PLAN)
    run(lake, SECOND_PLAN, full=True)

    assert {"base", "ranges", "since"} == undisturbed.parts
    assert {"base", "ranges"} == set(current(lake)["parts"])
    assert [] == differences(end_of(lake, SECOND_PLAN), undisturbed.after)


@pytest.mark.parametrize("job", CHAINS, ids=lambda job: job.name)
def test_killed_at_one_step_after_the_other_it_ends_alike(scene, job):
    """Each process goes on where the last was killed, nothing live is lost on the way, and the end is one."""
    deaths = list(chain(scene, job, CHAINS[job]))

    assert [*CHAINS[job], "the end"] == [death.moment for death in deaths]
    assert [] == [death for death in deaths if death.wrong]


@pytest.mark.long
@pytest.mark.parametrize(("job", "moment"), ONE_BY_ONE, ids=lambda part: getattr(part, "name", part))
def test_killed_once_it_ends_alike(scene, job, moment):
    """Killed once and from the beginning, as `tests.crash_everywhere` does at every moment there is."""
    deaths = list(every_kill_point(scene, job, [moment]))

    assert [moment] == [death.moment for death in deaths]
    assert [] == [death for death in deaths if death.wrong]


def test_a_plan_that_was_recorded_is_a_plan(scene):
    """A planner that dies once its plan is recorded leaves a plan that can be applied, outputs and all."""
    scene.reset(FIRST_PLAN).close()
    scene.kill(FIRST_PLAN, "plan recorded")
    lake = scene.open(APPLY)
    run(lake, APPLY)

    assert [] == differences(scene.undisturbed(APPLY).after, end_of(lake, APPLY))
    assert lake.catalog.read(REPOSITORY, "main", "keep/00") == b"keep/00"


@pytest.mark.long
def test_a_whole_apply_with_its_own_spark_is_killed(scene):
    """The same with nothing shared: process, Spark and locks die, and the next apply ends alike."""
    everything = scene.undisturbed(APPLY).before["stored"]
    scene.reset(APPLY).close()
    scene.kill(APPLY, "unlink:2", own_spark=True)
    lake = scene.open(APPLY)

    assert RunState.APPLYING == lake.ledger.run(1).state
    assert 2 == len(everything - lake.stored())
    run(lake, APPLY)

    assert [] == differences(scene.undisturbed(APPLY).after, end_of(lake, APPLY))
