"""The Spark session: local by default, any cluster by its master URL, quiet and in UTC."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from ebbtide.core.errors import EnvironmentProblem
from ebbtide.engine.spark.failures import FailureLog, root_cause, whole_text
from ebbtide.engine.spark.java import find_java_home

FEW = 1_000_000
"""So many hashes, some 50 MB, may be sent to every executor; Spark is never left to guess."""

ALWAYS = {
    "spark.app.name": "ebbtide",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Spark's estimate of a decoded range is wrong by orders of magnitude, and a broadcast chosen on it
    # kills the driver.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.autoBroadcastJoinThreshold": "-1",
    "spark.sql.join.preferSortMergeJoin": "false",
    "spark.sql.parquet.compression.codec": "zstd",
    # Without this Spark writes times as INT96, which has no zone and, read elsewhere, no year 9999.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Tables are parted by few values: rows go to their files as they come, without being sorted first.
    "spark.sql.maxConcurrentOutputFileWriters": "16",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.execution.pythonUDF.arrow.enabled": "true",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    # Noting for each column expression where it was written takes longer than planning a small query.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.dataFrameQueryContext.enabled": "false",
    "spark.python.daemon.module": "ebbtide.worker_daemon",
    # A second copy of a task that deletes would only report what the first one did as absent.
    "spark.speculation": "false",
}


@dataclass(frozen=True)
class SparkOptions:
    """How to start Spark."""

    master: str = "local[*]"
    driver_memory: str = "2g"
    java: str = "auto"
    java_options: str = ""
    shuffle_partitions: int = 0
    """0 leaves it to the number of cores."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Anything else, passed to Spark as it is."""


@contextmanager
def spark_session(options: SparkOptions, *, cache: Path) -> Iterator[SparkSession]:
    """Start a session, hand it out, and stop it."""
    session = start_session(options, cache=cache)
    try:
        yield session
    finally:
        # A signal that ends us may have ended Spark's JVM as well.
        with suppress(Py4JError, OSError):
            session.stop()


def start_session(options: SparkOptions, *, cache: Path) -> SparkSession:
    """Start Spark with the Python that runs us on every worker, so that both sides have the same code."""
    java_home = find_java_home(options.java, cache=cache)
    if java_home:
        os.environ["JAVA_HOME"] = java_home
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if options.master.startswith("local"):
        # With nobody else to reach, Spark must not depend on how this machine's name resolves.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(options.master)
    for name, value in {**ALWAYS, **_address(options.master), **_sized(options), **options.conf}.items():
        builder = builder.config(name, value)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    log = cache / "spark.log"
    try:
        with _stderr_into(log), _own_interrupt_handler():
            session = builder.getOrCreate()
    except Exception as broken:
        raise EnvironmentProblem(
            f"Spark did not start on master {options.master!r}: {root_cause(whole_text(broken)).line}",
            fix=f"check the master URL and that its cluster is up (its own words are in {log})",
        ) from broken
    FailureLog.file = log
    session.sparkContext.setLogLevel("ERROR")
    return session


@contextmanager
def _stderr_into(log: Path) -> Iterator[None]:
    """
    Let whatever starts inside the block, and so Spark's JVM for its whole life, write its stderr to a file.

    What Spark has to say to its operators does not belong between our lines on the terminal.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    ours = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


@contextmanager
def _own_interrupt_handler() -> Iterator[None]:
    """
    Keep the handler of Ctrl-C, which Spark would replace in the block.

    Spark's own calls into the JVM from the handler, in the middle of another call, and fails.
    """
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


def is_local(master: str) -> bool:
    """Tell whether tasks run in the driver's own process tree and on its own disks."""
    return master == "local" or master.startswith("local[")


def _address(master: str) -> dict[str, str]:
    """Say where executors reach the driver: on loopback, or where it reaches the master from."""
    if master.startswith("local"):
        return {"spark.driver.bindAddress": "127.0.0.1"}
    found = re.fullmatch(r"spark://([^:,/]+):(\d+).*", master)
    if found is None:
        return {}
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((found[1], int(found[2])))  # sends nothing
            own = probe.getsockname()[0]
    except OSError:
        return {}
    return {"spark.driver.host": own, "spark.driver.bindAddress": own}


def _sized(options: SparkOptions) -> dict[str, str]:
    sized = {"spark.driver.memory": options.driver_memory}
    cores = os.cpu_count() or 2
    if options.shuffle_partitions:
        sized["spark.sql.shuffle.partitions"] = str(options.shuffle_partitions)
    elif options.master.startswith("local"):
        sized["spark.sql.shuffle.partitions"] = str(max(4, 4 * cores))
    log4j = Path(__file__).with_name("log4j2.properties")
    # Jobs have to end soon, not to answer soon: this collector leaves more of two cores to them.
    collector = "" if re.search(r"-XX:\+Use\w+GC", options.java_options) else "-XX:+UseParallelGC"
    # The code that Spark makes of a long expression is one method, which Java would not compile by itself.
    compiled = "-XX:-DontCompileHugeMethods"
    sized["spark.driver.extraJavaOptions"] = (
        f"{collector} {compiled} {options.java_options} -Dlog4j2.configurationFile={log4j.as_uri()}"
    )
    sized["spark.executor.extraJavaOptions"] = compiled
    return sized
