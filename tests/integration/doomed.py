"""
A program whose children plan or apply and are killed on the way, by SIGKILL, as an operator would.

It imports everything once, then forks a child for every job that it reads, one line of JSON each, and
answers with how the child ended and which moments it came to. A child is a process of its own with its own
memory, connections and locks; nothing of these is open when it is forked. It borrows the running tests'
Spark, because to start one for every moment would take minutes, or starts its own if there is no gateway.

The moment to die is the name of a durable step, or `unlink:N`: when Spark's workers have deleted N files.
With `fine`, a child also tells of every single thing that it made durable, and can die there too.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from tests.services.lake import open_lake
from tests.services.spark import QUICK

from ebbtide import worker_daemon
from ebbtide.engine import actor, build
from ebbtide.engine import plan as planning
from ebbtide.engine.spark.session import SparkOptions, start_session
from ebbtide.engine.tables.contracts import Contract
from ebbtide.state.database import Database
from ebbtide.storage.local import LocalStore
from ebbtide.targets.repository import memory

PRELOADED = (pd, worker_daemon, build.build_id())
DOOM: dict[str, Any] = {}
"""The driver's process, how many files its workers may delete, and where they count them."""


class Doomed(actor._Deleter):
    """Deletes on a worker, and after some files kills first the driver, then itself; pickled by value."""

    def _ask_store(self, requests):
        """Delete, up to the deadly one."""
        unlink = os.unlink

        def deadly(path) -> None:
            unlink(path)
            counted = os.open(DOOM["count"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(counted, b".")
            if os.fstat(counted).st_size >= DOOM["unlinks"]:
                with suppress(ProcessLookupError):  # the other worker was faster
                    os.kill(DOOM["driver"], signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)
            os.close(counted)

        os.unlink = deadly
        try:
            return super()._ask_store(requests)
        finally:
            os.unlink = unlink


class Moments:
    """Tells of every moment as it comes, and dies at the one that was asked for."""

    def __init__(self, told: int, last: str) -> None:
        self._told = told
        self._last = last
        self._seen: Counter[str] = Counter()

    def step(self, name: str) -> None:
        """Come to a moment."""
        os.write(self._told, f"{name}\n".encode())
        if name == self._last:
            os.kill(os.getpid(), signal.SIGKILL)

    def again(self, what: str) -> None:
        """Come to a moment that comes more than once: it is told by its number."""
        self._seen[what] += 1
        self.step(f"{what} {self._seen[what]}")


def watch_everything(moments: Moments) -> None:
    """Make a moment of whatever this process makes durable or removes, whoever asks for it."""
    _after(Contract, "write", lambda table, *_: moments.again(f"table {table.name}"))
    _after(LocalStore, "write", lambda *_: moments.again("object"))
    _after(shutil, "rmtree", lambda *_: moments.again("removal"))
    _after(shutil, "copytree", lambda *_: moments.again("copy"))
    _after(planning, "write_durably", lambda *_: moments.again("manifest"))
    _after(memory, "write_durably", lambda *_: moments.again("memory"))
    _after(memory, "remove_unused", lambda *_: moments.again("unused ranges"))
    _after_block(Database, "writing", lambda database: moments.again(database.schema.owner))


def _after(owner: Any, name: str, then: Callable[..., None]) -> None:
    plain = getattr(owner, name)

    def watched(*arguments, **options):
        result = plain(*arguments, **options)
        then(*arguments)
        return result

    setattr(owner, name, watched)


def _after_block(owner: Any, name: str, then: Callable[[Any], None]) -> None:
    plain = getattr(owner, name)

    @contextmanager
    def watched(self) -> Iterator[Any]:
        with plain(self) as value:
            yield value
        then(self)

    setattr(owner, name, watched)


def session(job: dict[str, Any]) -> SparkSession:
    """Borrow the Spark of the tests, or start one."""
    if job["gateway"] is None:
        options = SparkOptions(
            master="local[1]", driver_memory="1g", shuffle_partitions=2, java_options=QUICK
        )
        return start_session(options, cache=Path(job["folder"]) / "spark")
    port, secret = job["gateway"]
    os.environ |= {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    gateway = launch_gateway()
    java = gateway.jvm.JavaSparkContext(gateway.jvm.org.apache.spark.SparkContext.getOrCreate())
    conf = SparkConf(_jvm=gateway.jvm, _jconf=java.getConf())
    borrowed = SparkSession(SparkContext(gateway=gateway, jsc=java, conf=conf)).newSession()
    for name, value in job["conf"].items():
        borrowed.conf.set(name, value)
    # So few rows are read sooner by one task than by many.
    SparkContext.defaultParallelism = property(lambda _: 1)
    return borrowed


def work(job: dict[str, Any], told: int) -> None:
    """Do the job, up to the moment."""
    moments = Moments(told, job["moment"])
    if job["moment"].startswith("unlink:"):
        count = f"{job['folder']}/unlinked-{os.getpid()}"
        DOOM.update(driver=os.getpid(), unlinks=int(job["moment"].removeprefix("unlink:")), count=count)
        actor._Deleter = Doomed
    lake = open_lake(session(job), Path(job["folder"]))
    lake.day(job["day"])
    if job["fine"]:
        watch_everything(moments)
    if job["kind"] == "plan":
        lake.plan(batch_size=job["batch_size"], on_step=moments.step)
    else:
        lake.apply(lake.folder_of(job["run_id"]).read_manifest(), on_step=moments.step)


def child(job: dict[str, Any], told: int) -> None:
    """Work in a process that was just forked, and leave it without any of its parent's clearing up."""
    code = 1
    try:
        work(job, told)
        code = 0
    except BaseException:  # noqa: BLE001 (whatever it is, the parent's log shall have it)
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def fork(job: dict[str, Any]) -> dict[str, Any]:
    """Let a child do the job; wait for its end."""
    hears, told = os.pipe()
    pid = os.fork()
    if not pid:
        child(job, told)
    os.close(told)
    with os.fdopen(hears) as heard:
        moments = heard.read().splitlines()
    _, status = os.waitpid(pid, 0)
    return {"code": os.waitstatus_to_exitcode(status), "moments": moments}


def main() -> None:
    """Do one job after the other, until there are no more."""
    for line in sys.stdin:
        sys.stdout.write(json.dumps(fork(json.loads(line))) + "\n")
        sys.stdout.flush()


main()
