"""A program that runs a job on a cluster whose executor dies of it each time; prints what is said of that."""

from __future__ import annotations

import sys
from pathlib import Path

from ebbtide.core.errors import EbbtideError
from ebbtide.engine.spark.failures import own_errors
from ebbtide.engine.spark.session import SparkOptions, spark_session


def main(folder: Path, master: str) -> None:
    """Kill, and tell."""

    def kill(batches):
        import os  # noqa: PLC0415 - all that an executor needs comes with the function
        import signal  # noqa: PLC0415

        stat = open(f"/proc/{os.getppid()}/stat").read()  # noqa: SIM115, PTH123
        os.kill(int(stat.rsplit(")", 1)[1].split()[1]), signal.SIGKILL)
        yield from batches

    conf = {"spark.executor.memory": "512m", "spark.task.maxFailures": "1"}
    with spark_session(SparkOptions(master, "700m", conf=conf), cache=folder) as spark:
        try:
            with own_errors():
                spark.range(0, 1, 1, 1).mapInArrow(kill, "id long").collect()
        except EbbtideError as failed:
            sys.stdout.write(str(failed))


main(Path(sys.argv[1]), sys.argv[2])
