"""
A program that plans or applies and is killed on the way, by SIGKILL, as a power cut or an operator would.

It is a process of its own with its own memory, connections and locks, but borrows the running tests' Spark:
starting one for every step at which it dies would take minutes. Without a port it starts a Spark of its own.

Arguments: folder, gateway's port and secret (or - and -), what to do (plan or apply), the moment to die: a
durable step's name, or `unlink:N`, after the N-th file that a Spark worker has deleted.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from tests.services.lake import open_lake

from ebbtide.engine import deleting
from ebbtide.tables.session import SparkOptions, start_session

FOLDER, PORT, SECRET, JOB, MOMENT = sys.argv[1:]
DRIVER = os.getpid()
DAY = 40
UNLINKS = int(MOMENT.removeprefix("unlink:")) if MOMENT.startswith("unlink:") else 0


class Doomed(deleting._Deleter):
    """Deletes on a worker, and after some files kills first the driver, then itself; pickled by value."""

    def _ask_store(self, requests):
        """Delete, up to the deadly one."""
        unlink, done = os.unlink, []

        def deadly(path) -> None:
            unlink(path)
            done.append(path)
            if len(done) == UNLINKS:
                os.kill(DRIVER, signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)

        os.unlink = deadly
        try:
            return super()._ask_store(requests)
        finally:
            os.unlink = unlink


def session() -> SparkSession:
    """Borrow the Spark of the tests, or start one."""
    if PORT == "-":
        options = SparkOptions(master="local[1]", driver_memory="1g", shuffle_partitions=2)
        return start_session(options, cache=Path(FOLDER) / "spark")
    os.environ |= {"PYSPARK_GATEWAY_PORT": PORT, "PYSPARK_GATEWAY_SECRET": SECRET}
    gateway = launch_gateway()
    java = gateway.jvm.JavaSparkContext(gateway.jvm.org.apache.spark.SparkContext.getOrCreate())
    conf = SparkConf(_jvm=gateway.jvm, _jconf=java.getConf())
    return SparkSession(SparkContext(gateway=gateway, jsc=java, conf=conf))


def die(step: str) -> None:
    """Die if this is the moment."""
    sys.stdout.write(f"{step}\n")
    sys.stdout.flush()
    if step == MOMENT:
        os.kill(DRIVER, signal.SIGKILL)


def main() -> None:
    """Do the job."""
    deleting._Deleter = Doomed if UNLINKS else deleting._Deleter
    lake = open_lake(session(), Path(FOLDER))
    lake.day(DAY)
    if JOB == "plan":
        lake.plan(wave_size=8, on_step=die)
    else:
        lake.apply(lake.folder_of(1).read_manifest(), on_step=die)


main()
