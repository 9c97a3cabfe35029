"""Running decision machines: many histories from one seed, or one failure made small."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from pyspark.sql import SparkSession
from tests.machine.decisions import DecisionMachine, Scene
from tests.machine.engine import EngineMachine
from tests.machine.history import History
from tests.machine.numbering import numbered_ids
from tests.machine.scratch import scratch_folder
from tests.services.lake import Lake, make_lake

OnHistory = Callable[[History], None]

STEPS = 15
"""How many rules a machine runs; each of them does several things."""
CHUNK = 8
"""
How many machines share one seed of Hypothesis.

From the tenth on it mostly repeats parts of the ones before, which is not what we want: a few are all new.
The first of each chunk is the simplest of all.
"""
_CHUNKS = 100_000
"""More than any seed has, so that the chunks of two seeds differ."""


def many_histories(
    count: int, number: int, steps: int = STEPS, go_on: Callable[[], bool] = lambda: True
) -> list[History]:
    """Give so many histories, the same for the same seed; what fails within a machine is made small."""
    found: list[History] = []
    with a_scene() as scene:
        for chunk in range(number * _CHUNKS, (number + 1) * _CHUNKS):
            if len(found) >= count or not go_on():
                break
            run_decisions(scene, chunk, found.append, steps)
            found = [history for history in found if history.worlds]
    return found[:count]


@contextmanager
def a_scene() -> Iterator[Scene]:
    """Open an empty catalog for the block."""
    with scratch_folder() as folder, numbered_ids():
        scene = Scene(folder)
        try:
            yield scene
        finally:
            scene.catalog.close()


def run_decisions(scene: Scene, number: int, on_history: OnHistory, steps: int = STEPS) -> None:
    """Run a chunk of machines and hand over the history of each; what that raises is made small, too."""

    @seed(number)
    class Machine(DecisionMachine):
        """The machine of this chunk."""

    def hand_over(history: History) -> None:
        history.seed = number
        on_history(history)

    Machine.scene, Machine.on_history = scene, staticmethod(hand_over)
    run_state_machine_as_test(Machine, settings=machine_settings(CHUNK, steps))


def machine_settings(
    examples: int, steps: int, phases: tuple[Phase, ...] = (Phase.generate, Phase.shrink)
) -> settings:
    """Say how machines run: from their seed alone, however long it takes."""
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        phases=phases,
        suppress_health_check=list(HealthCheck),
        deadline=None,
        database=None,
        print_blob=True,
        report_multiple_bugs=False,
    )


def run_engine(spark: SparkSession, examples: int, steps: int, number: int) -> list[History]:
    """Run so many engine machines, the same for the same seed, and give their histories."""
    found: list[History] = []
    with scratch_folder() as folder, numbered_ids():

        def fresh_lake() -> Lake:
            place = Path(tempfile.mkdtemp(dir=folder))
            return make_lake(spark, place, range_keys=3, fence_wait=timedelta(0))

        @seed(number)
        class Machine(EngineMachine):
            """The machine of this seed."""

        Machine.make_lake, Machine.on_history = staticmethod(fresh_lake), staticmethod(found.append)
        # One that fails is not made small: that would take Spark an hour. Its seed plays it again.
        run_state_machine_as_test(Machine, settings=machine_settings(examples, steps, (Phase.generate,)))
    return found
