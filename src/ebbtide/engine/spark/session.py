"""The Spark session: local by default, any cluster by its master URL, quiet and in UTC."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from ebbtide.core.errors import EnvironmentProblem
from ebbtide.engine.spark.failures import FailureLog, root_cause, whole_text
from ebbtide.engine.spark.java import find_java_home
from ebbtide.engine.spark.latency import java_options_for_small, settings_for_small

FEW = 1_000_000
"""This many hashes (about 50 MB) may be sent to every executor; Spark's own estimate is not used."""

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
    # Tables are partitioned by few values, so rows are written to their files without sorting them first.
    "spark.sql.maxConcurrentOutputFileWriters": "16",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.execution.pythonUDF.arrow.enabled": "true",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    # Recording the source line of each column expression takes longer than planning a small query.
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
    is_small: bool = False
    """The work is known to be small: start soon, rather than run fast once started (see `latency`)."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Anything else, passed to Spark as it is."""


SparkSource = SparkSession | Callable[[], AbstractContextManager[SparkSession]]
"""A session, or what starts one for a block."""


def opened(spark: SparkSource) -> AbstractContextManager[SparkSession]:
    """Return the session for a block, and start it if it is not started yet."""
    return nullcontext(spark) if isinstance(spark, SparkSession) else spark()


_running: list[SparkSession] = []
"""The session of the `spark_session` block that this process is in, if any."""


@contextmanager
def spark_session(options: SparkOptions, *, cache: Path) -> Iterator[SparkSession]:
    """Start a session and stop it at the end; inside another such block, use that block's session."""
    if _running:
        # A process has one Spark context. To stop it here would end the work of the outer block.
        yield _running[-1]
        return
    session = start_session(options, cache=cache)
    _running.append(session)
    try:
        yield session
    finally:
        _running.clear()
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
        # A local Spark needs no network, so it must not depend on how this machine's name resolves.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(options.master)
    settings = {**ALWAYS, **_address(options.master), **_sized(options, java_home), **options.conf}
    for name, value in settings.items():
        builder = builder.config(name, value)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    log = cache / "spark.log"
    try:
        with _output_into(log), _own_interrupt_handler():
            session = builder.getOrCreate()
    except Exception as broken:
        raise EnvironmentProblem(
            f"Spark did not start on master {options.master!r}: {root_cause(whole_text(broken)).line}",
            fix=f"check the master URL and that its cluster is up (Spark's own log is {log})",
        ) from broken
    FailureLog.file = log
    session.sparkContext.setLogLevel("ERROR")
    return session


@contextmanager
def _output_into(log: Path) -> Iterator[None]:
    """
    Redirect the output of processes that start inside the block, such as Spark's JVM, to a file.

    Spark's log does not belong between our lines on the terminal, and a program that reads our output must
    not wait for the JVM, which ends after us.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    ours = {number: os.dup(number) for number in (1, 2)}
    try:
        with log.open("ab") as file:
            for number in ours:
                os.dup2(file.fileno(), number)
        yield
    finally:
        for number, copy in ours.items():
            os.dup2(copy, number)
            os.close(copy)


@contextmanager
def _own_interrupt_handler() -> Iterator[None]:
    """
    Restore the handler of Ctrl-C, which Spark replaces in the block.

    Spark's handler calls into the JVM in the middle of another call, and fails.
    """
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


def is_local(master: str) -> bool:
    """Return True if tasks run in the driver's own process tree and on its own disks."""
    return master == "local" or master.startswith("local[")


def _address(master: str) -> dict[str, str]:
    """Return the driver's address for executors: loopback, or the one from which it reaches the master."""
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


def _sized(options: SparkOptions, java_home: str | None) -> dict[str, str]:
    """Return the settings that depend on the machine, on the user's options and on the size of the work."""
    sized = {"spark.driver.memory": options.driver_memory}
    cores = os.cpu_count() or 2
    if options.shuffle_partitions:
        sized["spark.sql.shuffle.partitions"] = str(options.shuffle_partitions)
    elif options.master.startswith("local"):
        sized["spark.sql.shuffle.partitions"] = str(max(4, 4 * cores))
    # Spark generates one method for a long expression, which Java does not compile by default.
    compiled = "-XX:-DontCompileHugeMethods"
    sized["spark.executor.extraJavaOptions"] = compiled
    # Throughput matters more than pauses, and this garbage collector uses less CPU time.
    own = [compiled, "-XX:+UseParallelGC"]
    if options.is_small and is_local(options.master):
        sized |= settings_for_small(options.conf, sized, fixed=options.shuffle_partitions > 0)
        own = [compiled, *java_options_for_small(options.java_options, java_home)]
    if re.search(r"-XX:\+Use\w+GC", options.java_options):
        own = [one for one in own if not re.fullmatch(r"-XX:\+Use\w+GC", one)]
    log4j = Path(__file__).with_name("log4j2.properties")
    sized["spark.driver.extraJavaOptions"] = " ".join(
        [*own, options.java_options, f"-Dlog4j2.configurationFile={log4j.as_uri()}"]
    )
    return sized
