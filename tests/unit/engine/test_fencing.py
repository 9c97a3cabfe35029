"""When a fenced target is opened again: always, unless something may still be deleting."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JNetworkError

from ebbtide.core.errors import StalePlan
from ebbtide.engine.apply import unfenced_afterwards


class Target:
    """Counts how often it is opened."""

    opened = 0

    def unfence(self, manifest) -> None:
        """Count."""
        self.opened += 1


def spark_with(*running: int | Exception):
    """Make a Spark whose executors run so many tasks each time it is asked, or that cannot be asked."""
    answers = list(running)

    def infos():
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return [SimpleNamespace(numRunningTasks=lambda: answer)]

    tracker = SimpleNamespace(getExecutorInfos=infos)
    java = SimpleNamespace(sc=lambda: SimpleNamespace(statusTracker=lambda: tracker))
    return SimpleNamespace(sparkContext=SimpleNamespace(_jsc=java))


def test_a_block_that_ends_well_opens_without_asking_spark():
    """After the last batch nothing is deleting, so the target is opened."""
    target = Target()
    with unfenced_afterwards(spark_with(Py4JNetworkError("gone")), target, None):
        pass

    assert 1 == target.opened


@pytest.mark.parametrize(
    ("running", "opened", "naps"),
    [((0,), 1, 0), ((2, 1, 0), 1, 2), ((1,), 0, 100), ((Py4JNetworkError("gone"),), 0, 0)],
    ids=["idle", "soon idle", "never idle", "unreachable"],
)
@pytest.mark.parametrize("error", [StalePlan("changed"), KeyboardInterrupt()], ids=["refused", "interrupted"])
def test_a_block_that_fails_opens_only_when_no_task_runs(running, opened, naps, error):
    """After an error the target is opened when Spark says that all tasks ended, and the error goes on."""
    target, slept = Target(), []
    with (
        pytest.raises(type(error)),
        unfenced_afterwards(spark_with(*running), target, None, slept.append),
    ):
        raise error

    assert (opened, naps) == (target.opened, len(slept))
