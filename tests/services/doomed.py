"""
A program whose children work on a target and are killed on the way, by SIGKILL, as an operator would.

It forks a child for every order that it reads, one line of JSON each, and answers with how the child ended
and which moments it came to. A child is a process of its own with its own memory, connections and locks;
nothing of these is open when it is forked. What it does is a function that the order names, whose module is
imported once and before the fork. It borrows the running tests' Spark, because to start one for every moment
would take minutes, or starts its own if there is no gateway.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from tests.services.spark import QUICK

from ebbtide import worker_daemon
from ebbtide.engine import build
from ebbtide.engine.spark.session import SparkOptions, start_session

PRELOADED = (pd, worker_daemon, build.build_id())


class Moments:
    """Tells of every moment as it comes, and dies at the last one."""

    def __init__(self, told: int, is_last: Callable[[str], bool]) -> None:
        self._told = told
        self._is_last = is_last
        self._seen: Counter[str] = Counter()

    def step(self, name: str) -> None:
        """Come to a moment."""
        os.write(self._told, f"{name}\n".encode())
        if self._is_last(name):
            os.kill(os.getpid(), signal.SIGKILL)

    def again(self, what: str) -> None:
        """Come to a moment that comes more than once: it is told by its number."""
        self._seen[what] += 1
        self.step(f"{what} {self._seen[what]}")


def session(order: dict[str, Any]) -> SparkSession:
    """Borrow the Spark of the tests, or start one."""
    if order["gateway"] is None:
        options = SparkOptions(
            master="local[1]", driver_memory="1g", shuffle_partitions=2, java_options=QUICK
        )
        return start_session(options, cache=Path(order["folder"]) / "spark")
    port, secret = order["gateway"]
    os.environ |= {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    gateway = launch_gateway()
    java = gateway.jvm.JavaSparkContext(gateway.jvm.org.apache.spark.SparkContext.getOrCreate())
    conf = SparkConf(_jvm=gateway.jvm, _jconf=java.getConf())
    borrowed = SparkSession(SparkContext(gateway=gateway, jsc=java, conf=conf)).newSession()
    for name, value in order["conf"].items():
        borrowed.conf.set(name, value)
    # So few rows are read sooner by one task than by many.
    SparkContext.defaultParallelism = property(lambda _: 1)
    return borrowed


def find_work(order: dict[str, Any]) -> Callable[[dict[str, Any], int], None]:
    """Import what a child shall do: it gets the order, and the pipe in which it tells of moments."""
    module, _, name = order["work"].partition(":")
    found: Callable[[dict[str, Any], int], None] = getattr(importlib.import_module(module), name)
    return found


def child(order: dict[str, Any], told: int) -> None:
    """Work in a process that was just forked, and leave it without any of its parent's clearing up."""
    code = 1
    try:
        find_work(order)(order, told)
        code = 0
    except BaseException:  # noqa: BLE001 (whatever it is, the parent's log shall have it)
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def fork(order: dict[str, Any]) -> dict[str, Any]:
    """Let a child carry out an order; wait for its end."""
    find_work(order)
    hears, told = os.pipe()
    pid = os.fork()
    if not pid:
        child(order, told)
    os.close(told)
    with os.fdopen(hears) as heard:
        moments = heard.read().splitlines()
    _, status = os.waitpid(pid, 0)
    return {"code": os.waitstatus_to_exitcode(status), "moments": moments}


def main() -> None:
    """Carry out one order after the other, until there are no more."""
    for line in sys.stdin:
        sys.stdout.write(json.dumps(fork(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
