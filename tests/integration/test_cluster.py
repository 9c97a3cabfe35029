"""A real standalone Spark cluster on loopback, one worker a core, makes the same plan as local mode."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from tests.services.seaweed import free_ports
from tests.services.spark import QUICK

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
READY_SECONDS = 90


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


def wait_for(log: Path, words: str) -> None:
    """Wait until a daemon has said that it is ready."""
    deadline = time.monotonic() + READY_SECONDS
    while words not in log.read_text(errors="replace"):
        if time.monotonic() > deadline:
            raise RuntimeError(f"not ready: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.1)


def wait_for_port(port: int) -> None:
    """Wait until somebody listens on a port."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise RuntimeError(f"nobody listens on port {port}")


@pytest.fixture
def cluster(spark, tmp_path) -> Iterator[str]:
    """Run a master and two workers with one core each; give the master's URL."""
    port, *ui = free_ports(4)
    url = f"spark://127.0.0.1:{port}"
    place = ["--host", "127.0.0.1"]
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            spark_daemon(MASTER, [*place, "--port", str(port), "--webui-port", str(ui[0])], tmp_path)
        )
        wait_for_port(port)
        size = ["--cores", "1", "--memory", "700m"]
        logs = [
            stack.enter_context(
                spark_daemon(WORKER, [*place, *size, "--webui-port", str(number), url], tmp_path)
            )
            for number in ui[1:]
        ]
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
