# ruff: noqa: T201 (it reports to whoever started it)
"""
The soak: machines from seed after seed until the time is over, then one line of JSON with what was done.

`make soak SECONDS=600 SEED=1`. A failure ends it with the seed, and with how to play it again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession
from tests.machine.generating import a_scene, many_histories, run_decisions, run_engine
from tests.machine.history import History
from tests.machine.judging import judge
from tests.machine.kinds import Kind
from tests.machine.scratch import scratch_folder
from tests.seeds import draw_alike
from tests.services.spark import OPTIONS

from ebbtide.engine.spark.session import spark_session

HISTORIES = 100
"""How many histories share their Spark jobs."""
ENGINES = 3
ENGINE_STEPS = 10
_KINDS = (*(f"kind {kind}" for kind in Kind), "swept optimized", "unseen by optimized")


class Failed(Exception):
    """Spark and the oracle, or two ways of Spark, do not agree."""


@dataclass
class Soak:
    """What was done so far, and until when it goes on."""

    spark: SparkSession
    seed: int
    seconds: float
    began: float = field(default_factory=time.monotonic)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.began

    def goes_on(self) -> bool:
        """Tell whether there is time left."""
        return self.elapsed < self.seconds

    def batch(self, seed: int) -> None:
        """Judge the histories of one seed, and run its engines."""
        histories = many_histories(HISTORIES, seed, go_on=self.goes_on)
        found = judge(self.spark, histories)
        worlds = sum(len(history.worlds) for history in histories)
        self.counts.update(worlds=worlds, histories=len(histories), plans_compared=worlds)
        self._add(histories, "steps")
        if found:
            hint = f"{len(found)} of {len(histories)} histories; make the first one small with"
            raise Failed(f"{hint}: python -m tests.soak --shrink {found[0].seed}\n{found[0]}")
        if self.goes_on():
            engines = run_engine(self.spark, ENGINES, ENGINE_STEPS, seed)
            self._add(engines, "engine_steps")
            self.counts["plans_compared"] += sum(one.counts["plans compared"] for one in engines)

    def _add(self, histories: list[History], steps: str) -> None:
        self.counts[steps] += sum(history.counts["steps"] for history in histories)
        self.counts["crashes"] += sum(history.counts["crashes"] for history in histories)
        for name in _KINDS:
            self.counts[name] += sum(history.counts[name] for history in histories)

    def summary(self, failures: int) -> dict[str, Any]:
        """Give what the last line says."""
        names = ("worlds", "histories", "steps", "engine_steps", "plans_compared", "crashes")
        done = {name: self.counts[name] for name in names}
        plans = {kind.value: self.counts[f"kind {kind}"] for kind in Kind}
        return {
            "seed": self.seed,
            "seconds": round(self.elapsed),
            **done,
            "plans": plans,
            "optimized_sweeps": self.counts["swept optimized"],
            "unseen_by_optimized": self.counts["unseen by optimized"],
            "failures": failures,
        }


def soak(spark: SparkSession, seconds: float, seed: int) -> int:
    """Run batch after batch; give how many failed, which is none or one."""
    work, failures, number = Soak(spark, seed, seconds), 0, seed
    while work.goes_on() and not failures:
        try:
            work.batch(number)
        except Exception:  # noqa: BLE001 (whatever it is, the seed must be told)
            failures = 1
            traceback.print_exc()
            print(f"FAILED with seed {number}; again: make soak SEED={number} SECONDS=600")
        else:
            print(f"seed {number}: {dict(work.counts)} in {work.elapsed:.0f} s", flush=True)
        number += 1
    print(json.dumps(work.summary(failures)), flush=True)
    return failures


def shrink(spark: SparkSession, seed: int) -> int:
    """Judge the few histories of one of Hypothesis's seeds alone, and make the one that fails small."""

    def check(history: History) -> None:
        for found in judge(spark, [history]):
            raise Failed(str(found))

    with a_scene() as scene:
        run_decisions(scene, seed, check)
    print(f"the histories of seed {seed} are judged alike")
    return 0


def main() -> int:
    """Read the command line and do as it says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shrink", type=int, metavar="SEED", help="make a failing history small")
    wanted = parser.parse_args()
    draw_alike()
    with scratch_folder() as cache, spark_session(OPTIONS, cache=cache) as spark:
        if wanted.shrink is not None:
            return shrink(spark, wanted.shrink)
        return soak(spark, wanted.seconds, wanted.seed)


if __name__ == "__main__":
    sys.exit(main())
