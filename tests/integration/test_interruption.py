"""A run that is asked to stop records that, and its command ends with one line and the shell's exit code."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from time import sleep

import pytest
from tests.services.ebb import ebb

from ebbtide.cli import apply, pipeline
from ebbtide.cli.failure import Interrupted
from ebbtide.core.errors import EnvironmentProblem
from ebbtide.state.runs import Ledger, RunState

__all__ = ["ebb"]

LONG_AGO = "2020-01-01"

# The command as users run it, but at one step an executor says that it is there and then works for ever.
COMMAND = """
import signal, sys, time
# Ctrl-C works here also if whoever started the tests ignores it, as workers of pytest-xdist do.
signal.signal(signal.SIGINT, signal.default_int_handler)
from functools import partial
from pathlib import Path
from pyspark.sql import SparkSession
import ebbtide.cli.apply, ebbtide.cli.pipeline
from ebbtide.cli.main import main

module, name, step = sys.modules[f"ebbtide.cli.{sys.argv[1]}"], sys.argv[2], sys.argv[3]

def work(_):
    Path("working").touch()
    while True:
        time.sleep(1)

def on_step(reached):
    if reached == step:
        SparkSession.getActiveSession().sparkContext.parallelize([0], 1).foreach(work)

setattr(module, name, partial(getattr(module, name), on_step=on_step))
sys.argv[1:4] = []
main()
"""


def stop_at(
    step: tuple[str, str, str], words: list[str], number: int, *, group: bool
) -> tuple[int, str, str]:
    """Run a command until an executor works in this step, send it a signal, and see how it ends."""
    command = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *step, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        while not Path("working").exists():
            assert command.poll() is None, command.communicate()
            sleep(0.1)
        os.killpg(command.pid, number) if group else command.send_signal(number)
        out, error = command.communicate(timeout=300)
    finally:
        command.kill()
        command.wait()
    return command.returncode, out, error


@pytest.fixture
def lake(ebb):
    """Make a lake of thirty objects under a policy, with batches of ten."""
    (ebb.folder / "data").mkdir()
    for number in range(30):
        (ebb.folder / "data" / f"{number}.csv").write_text("x")
    (ebb.folder / "policy.json").write_text('{"all": {"prefix": "", "days": 3}}')
    (ebb.folder / "ebbtide.toml").write_text(
        "[deletes]\nbatch_size = 10\n[breaker]\nmax_delete_fraction = 1\n[spark]\nmaster = 'local[2]'\n"
    )
    ebb("lake", "create", "sales", "./lake", now=LONG_AGO)
    ebb("lake", "upload", "sales", "data", now=LONG_AGO)
    ebb("lake", "commit", "sales", "-m", "first", now=LONG_AGO)
    ebb("lake", "policy", "set", "sales", "policy.json", now=LONG_AGO)
    return ebb


def test_a_terminated_plan_is_recorded_as_abandoned(lake):
    """After SIGTERM a run does not stay `planning`; one line says so, and the exit code is 143."""
    step = ("pipeline", "plan", "verdicts linked")
    code, out, error = stop_at(step, ["plan", "lake:sales"], signal.SIGTERM, group=False)
    run = Ledger(f"sqlite:///{lake.folder}/.ebbtide/ledger.db").run(1)

    assert (143, "") == (code, out)
    assert "interrupted; run 1 was abandoned, nothing was deleted\n" == error
    assert (RunState.ABANDONED, "interrupted") == (run.state, run.error)
    assert not list((lake.folder / ".ebbtide" / "runs").iterdir())


def test_an_interrupted_apply_says_how_far_it_got(lake):
    """Ctrl-C in the second batch: the first is recorded, the run has failed, and applying again goes on."""
    planned = lake.json("plan", "lake:sales")
    step = ("apply", "apply_plan", "batch 1 started")
    code, out, error = stop_at(
        step, ["apply", "1", "--yes", "--override-breaker", "--json"], signal.SIGINT, group=True
    )
    run = Ledger(f"sqlite:///{lake.folder}/.ebbtide/ledger.db").run(1)
    done = json.loads(error)["error"]

    assert 3 == planned["waves"]
    assert (130, "", 130) == (code, out, done["exit_code"]), error
    assert 1 == len(error.splitlines())
    assert "run 1 stopped in batch 2 of 3: " in done["what"]
    assert done["what"].endswith(" of 30 items are done and recorded; 'ebb apply 1' goes on")
    assert (RunState.FAILED, "interrupted") == (run.state, run.error)
    assert 30 == lake.json("apply", "1", "--yes", "--override-breaker")["freed"]["objects"]


def jvm_dies_first(monkeypatch, module, name, step):
    """Let a signal reach the JVM and this process at one step, and the JVM's failure be seen last."""

    def on_step(reached):
        if reached == step:
            try:
                raise Interrupted(signal.SIGINT)
            finally:
                raise EnvironmentProblem("a Spark job failed: the JVM is gone")

    monkeypatch.setattr(module, name, partial(getattr(module, name), on_step=on_step))


@pytest.mark.spark
def test_an_apply_whose_jvm_died_of_the_signal_was_interrupted(lake, monkeypatch):
    """If the JVM got the signal too and failed first, the run is recorded as interrupted all the same."""
    lake("plan", "lake:sales")
    jvm_dies_first(monkeypatch, apply, "apply_plan", "batch 1 started")
    _, error = lake("apply", "1", "--yes", "--override-breaker", code=130)
    run = Ledger(f"sqlite:///{lake.folder}/.ebbtide/ledger.db").run(1)

    assert "run 1 stopped in batch 2 of 3: " in error
    assert (RunState.FAILED, "interrupted") == (run.state, run.error)


@pytest.mark.spark
def test_a_plan_whose_jvm_died_of_the_signal_was_interrupted(lake, monkeypatch):
    """If the JVM got the signal too and failed first, the run is recorded as interrupted all the same."""
    jvm_dies_first(monkeypatch, pipeline, "plan", "verdicts linked")
    _, error = lake("plan", "lake:sales", code=130)
    run = Ledger(f"sqlite:///{lake.folder}/.ebbtide/ledger.db").run(1)

    assert "interrupted; run 1 was abandoned, nothing was deleted\n" == error
    assert (RunState.ABANDONED, "interrupted") == (run.state, run.error)
