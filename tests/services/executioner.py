"""Sends orders to the program whose children are killed (`tests.services.doomed`)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from pyspark import SparkContext
from pyspark.sql import SparkSession

QUICK = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}
"""To compile a query takes longer than to run it on so few rows; what is made durable is the same."""


@dataclass(frozen=True)
class Ended:
    """How a process ended, and the moments it came to."""

    code: int
    moments: list[str]

    @property
    def killed(self) -> bool:
        """Return True if the process was killed, and did not end by itself."""
        return self.code == -signal.SIGKILL


class Executioner:
    """Has work done in processes of their own, which die at a moment."""

    def __init__(self, spark: SparkSession, log: Path) -> None:
        self._spark = spark
        self._log = log
        self._program: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        """Start the program that forks them."""
        with self._log.open("wb") as errors:
            self._program = subprocess.Popen(
                [sys.executable, Path(__file__).with_name("doomed.py")],
                env=os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the program end: it has nothing more to read."""
        if self._program:
            self._program.communicate()

    def run(self, work: str, *, own_spark: bool = False, **order: Any) -> Ended:
        """Have work done until it ends or dies, and wait until Spark has nothing left to do of it."""
        gateway: Any = SparkContext._gateway
        reach = gateway.gateway_parameters
        order |= {
            "work": work,
            "gateway": None if own_spark else [reach.port, reach.auth_token],
            "conf": {} if own_spark else QUICK,
        }
        ended = Ended(**self._ask(order))
        while self._spark.sparkContext.statusTracker().getActiveStageIds():
            time.sleep(0.05)
        return ended

    def last_words(self) -> str:
        """Return the end of what the processes wrote to standard error."""
        return self._log.read_text(errors="replace")[-3000:]

    def _ask(self, order: dict[str, Any]) -> dict[str, Any]:
        asked, answers = _pipes(self._program)
        asked.write(json.dumps(order) + "\n")
        asked.flush()
        return dict(json.loads(answers.readline()))


def _pipes(program: subprocess.Popen[str] | None) -> tuple[IO[str], IO[str]]:
    if program is None or program.stdin is None or program.stdout is None:
        raise RuntimeError("the program is not started")
    return program.stdin, program.stdout
