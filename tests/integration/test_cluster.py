"""A real standalone Spark cluster on loopback, one worker a core, makes the same plan as local mode."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from tests.services.spark import QUICK

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
READY_SECONDS = 240


@contextlib.contextmanager
def spark_daemon(name: str, arguments: list[str], folder: Path) -> Iterator[Path]:
    """Run one of Spark's daemons until the block ends; give its log."""
    home = Path(pyspark.__file__).parent
    loopback = {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK,
    }
    log = folder / f"{name.rsplit('.', 1)[-1]}-{time.monotonic_ns()}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [home / "bin" / "spark-class", name, *arguments],
            env=os.environ | loopback | {"SPARK_WORKER_DIR": str(folder / "work")},
            stdout=file,
            stderr=file,
            cwd=folder,
        )
    try:
        yield log
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(log: Path, words: str) -> str:
    """Wait until a daemon has said that it is ready, and give its very words."""
    deadline = time.monotonic() + READY_SECONDS
    while not (said := re.search(words, log.read_text(errors="replace"))):
        if time.monotonic() > deadline:
            raise RuntimeError(f"not ready: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.1)
    return said[0]


@pytest.fixture
def cluster(spark, tmp_path) -> Iterator[str]:
    """Run a master and two workers with one core each; give the master's URL."""
    # Each takes whatever port is free; where the master listens it says itself.
    place = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    with contextlib.ExitStack() as stack:
        master = stack.enter_context(spark_daemon(MASTER, place, tmp_path))
        url = wait_for(master, r"spark://127\.0\.0\.1:\d+(?=\s)")
        wait_for(master, "New state: ALIVE")
        size = ["--cores", "1", "--memory", "700m"]
        logs = [stack.enter_context(spark_daemon(WORKER, [*place, *size, url], tmp_path)) for _ in range(2)]
        for log in logs:
            wait_for(log, "Successfully registered with master")
        yield url


def test_a_cluster_makes_the_same_plan(lake, cluster, tmp_path):
    """Planned by two executors of a cluster, the same lake gives the plan with the very same hash."""
    local = lake.plan()
    lake.close()
    planned = subprocess.run(
        [sys.executable, Path(__file__).with_name("clustered.py"), tmp_path, cluster],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == planned.returncode, planned.stderr[-3000:]
    assert {"plan_hash": local.plan_hash, "executors": 2} == json.loads(planned.stdout)
    assert [5, 5] == [run.due_objects for run in lake.ledger.runs()]
