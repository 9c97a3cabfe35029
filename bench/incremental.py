"""
Change a little of a large repository, and compare an incremental plan with a full one.

    python -m bench.incremental --entries 2000000 --commits 500

Both plans are made in one run on one machine, so only their ratio counts. The incremental plan must read the
new ranges and no others, come to the same plan, and take at most a quarter of the full one's time.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from tests.services.runs import apply_lake, plan_lake

from ebbtide.core.manifest import Manifest
from ebbtide.engine.apply import ApplyOptions
from ebbtide.engine.plan import PlanOptions
from ebbtide.engine.spark.session import SparkOptions, spark_session
from ebbtide.state.runs import Ledger
from ebbtide.targets.lake.catalog.catalog import Catalog
from ebbtide.targets.lake.catalog.ranges import CommittedContent
from ebbtide.targets.lake.context import LakeContext

NOW = datetime(2026, 11, 1, tzinfo=UTC)
POLICY = '{"raw": {"prefix": "raw/", "days": 150}, "tmp": {"prefix": "tmp/", "days": 100}}'
TOP = {"keep/": 0.7, "raw/": 0.85, "tmp/": 1.0}
"""Top folders, and up to which share of all keys each reaches."""
KEYS_A_COMMIT = 1_000
MOST = 0.25
ROUNDS = 3
"""A machine that others use is slow now and then: times are added up over so many rounds."""


@dataclass
class Clock:
    """A clock that the history sets."""

    now: datetime = NOW

    def __call__(self) -> datetime:
        """Say what time it is."""
        return self.now


@dataclass(frozen=True)
class Bench:
    """A repository under measurement; its objects are not written, for plans read metadata only."""

    root: Path
    entries: int
    clock: Clock
    shop: LakeContext

    def build(self, commits: int) -> None:
        """Import all keys, then change a thousand in each further commit, spread over the half year."""
        self.shop.catalog.create_repository("big", str(self.root / "lake"))
        self.clock.now = NOW - timedelta(days=90)
        self.shop.catalog.import_entries("big", "main", self._everything(), "all of it")
        for number in range(1, commits):
            self.change(number, NOW - timedelta(days=90 * (commits - number) / commits))
        self.shop.catalog.set_policy("big", POLICY, "json")

    def change(self, number: int, moment: datetime) -> None:
        """Overwrite a thousand keys of one folder in one commit."""
        self.clock.now = moment
        folders = self.entries // KEYS_A_COMMIT - 1
        first = (number * 7919) % folders * KEYS_A_COMMIT
        rows = self._rows(range(first, first + KEYS_A_COMMIT), [moment] * KEYS_A_COMMIT, number)
        self.shop.catalog.import_entries("big", "main", [rows], f"change {number}")

    def ranges(self) -> set[str]:
        """Name all ranges of all commits."""
        content = CommittedContent(self.shop.catalog.store("big"))
        snapshot = self.shop.catalog.snapshot("big")
        return {
            info.id for commit in snapshot.commits.values() for info in content.ranges(commit.metarange_id)
        }

    def plan(self, spark: SparkSession, *, full: bool) -> tuple[Manifest, float]:
        """Plan and say how many seconds it took."""
        began = time.monotonic()
        manifest = plan_lake(spark, self.shop, "big", now=NOW, options=PlanOptions(), full=full)
        return manifest, time.monotonic() - began

    def round(self, spark: SparkSession, number: int, changes: int) -> dict[str, Any]:
        """Make changes, plan incrementally and in full, and compare."""
        before = self.ranges()
        for change in range(number, number + changes):
            self.change(change, NOW - timedelta(hours=1))
        self.clock.now = NOW
        new = len(self.ranges() - before)
        incremental, incremental_seconds = self.plan(spark, full=False)
        full, full_seconds = self.plan(spark, full=True)
        return {
            "incremental": incremental_seconds,
            "full": full_seconds,
            "same_plan": (incremental.digest, incremental.summary) == (full.digest, full.summary),
            "ranges": incremental.snapshot["ranges"],
            "new": new,
            "decoded": incremental.snapshot["ranges_decoded"],
            "decoded_by_full": full.snapshot["ranges_decoded"],
            "due": incremental.summary.due.objects,
            "held": incremental.summary.held.objects,
        }

    def _everything(self) -> Iterator[pa.Table]:
        step = 200_000
        for start in range(0, self.entries, step):
            numbers = range(start, min(start + step, self.entries))
            ages = [90 + n * 7919 % 90_000 / 1000 for n in numbers]
            yield self._rows(numbers, [NOW - timedelta(days=age) for age in ages], 0)

    def _top(self, number: int) -> str:
        return next(top for top, share in TOP.items() if number < share * self.entries)

    def _rows(self, numbers: range, created: list[datetime], version: int) -> pa.Table:
        return pa.table(
            {
                "key": [f"{self._top(n)}day={n // 1000:05d}/part-{n:09d}" for n in numbers],
                "address": [f"repos/r/branches/main/p/{version:05d}x{n:016d}" for n in numbers],
                "created": pa.array(created, pa.timestamp("us", tz="UTC")),
                "size": pa.array([1000] * len(numbers), pa.int64()),
                "checksum": [""] * len(numbers),
            }
        )


def measure(bench: Bench, spark: SparkSession, commits: int, share: float) -> dict[str, object]:
    """Let a first run succeed; then, in each round, change a share of the keys and plan again both ways."""
    first, first_seconds = bench.plan(spark, full=False)
    apply_lake(spark, bench.shop, first, options=ApplyOptions())
    changes = max(1, round(bench.entries * share / KEYS_A_COMMIT))
    rounds = [bench.round(spark, commits + number * changes, changes) for number in range(ROUNDS)]
    last = rounds[-1]
    incremental, full = (sum(found[kind] for found in rounds) for kind in ("incremental", "full"))
    return {
        "entries": bench.entries,
        "commits": commits,
        "changed_keys": changes * KEYS_A_COMMIT,
        "first_seconds": round(first_seconds, 1),
        "full_seconds": [round(found["full"], 1) for found in rounds],
        "incremental_seconds": [round(found["incremental"], 1) for found in rounds],
        "ratio": round(incremental / full, 3),
        "same_plan": all(found["same_plan"] for found in rounds),
        "reads_only_new": all(found["decoded"] == found["new"] for found in rounds),
        **{name: last[name] for name in ("ranges", "new", "decoded", "decoded_by_full", "due", "held")},
    }


def main() -> None:
    """Build, measure, print; fail if an incremental plan reads too much, differs or takes too long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=2_000_000)
    parser.add_argument("--commits", type=int, default=500)
    parser.add_argument("--changed", type=float, default=0.01)
    parser.add_argument("--driver-memory", default="2g")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ebbtide-incremental-") as place:
        root, clock = Path(place), Clock()
        catalog = Catalog(f"sqlite:///{root}/catalog.db", clock=clock)
        shop = LakeContext(catalog, Ledger(f"sqlite:///{root}/ledger.db", clock=clock), root, clock)
        bench = Bench(root, options.entries, clock, shop)
        bench.build(options.commits)
        clock.now = NOW
        spark_options = SparkOptions(master="local[2]", driver_memory=options.driver_memory)
        with spark_session(spark_options, cache=root) as spark:
            found = measure(bench, spark, options.commits, options.changed)
    print(json.dumps(found))
    if not (found["same_plan"] and found["reads_only_new"] and float(str(found["ratio"])) <= MOST):
        sys.exit("the incremental plan is not what it must be")


if __name__ == "__main__":
    main()
