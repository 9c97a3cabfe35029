"""
Plan over many entries in a small Spark driver and say how long it took and how much memory it needed.

    python -m bench.memory --entries 5000000 --driver-memory 2g

Objects are not written: a plan reads metadata only. The peak is that of the whole process tree (the driver's
Python, the JVM and Spark's Python workers), sampled from /proc.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from tests.services.runs import plan_lake

from bench.peak import PeakMemory
from ebbtide.engine.plan import PlanOptions
from ebbtide.engine.spark.session import SparkOptions, spark_session
from ebbtide.state.runs import Ledger
from ebbtide.targets.lake.catalog.catalog import Catalog
from ebbtide.targets.lake.context import LakeContext

NOW = datetime(2026, 11, 1, tzinfo=UTC)
POLICY = '{"raw": {"prefix": "raw/", "days": 30}, "tmp": {"prefix": "tmp/", "days": 3}}'
TOP = ("keep/", "raw/", "tmp/")


def entries(count: int, step: int) -> list[pa.Table]:
    """Make sorted tables of entries: three folders, ages spread over ninety days, some shared addresses."""
    tables = []
    for top in TOP:
        for start in range(0, count // len(TOP), step):
            numbers = range(start, min(start + step, count // len(TOP)))
            created = [NOW - timedelta(days=90 * n / (count // len(TOP))) for n in numbers]
            shared = "keep" if top == "raw/" else top.strip("/")
            tables.append(
                pa.table(
                    {
                        "key": [f"{top}part-{n:09d}" for n in numbers],
                        # Every tenth object under raw/ is also a path under keep/, which no rule matches.
                        "address": [
                            f"repos/r/branches/main/p/{shared if n % 10 == 0 else top.strip('/')}{n:020d}"
                            for n in numbers
                        ],
                        "created": pa.array(created, pa.timestamp("us", tz="UTC")),
                        "size": pa.array([1000] * len(numbers), pa.int64()),
                        "checksum": [""] * len(numbers),
                    }
                )
            )
    return tables


def main() -> None:
    """Build, plan, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=5_000_000)
    parser.add_argument("--driver-memory", default="2g")
    parser.add_argument("--master", default="local[2]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ebbtide-memory-") as place:
        root = Path(place)
        catalog = Catalog(f"sqlite:///{root}/catalog.db", clock=lambda: NOW)
        catalog.create_repository("big", str(root / "lake"))
        catalog.import_entries("big", "main", entries(options.entries, 500_000), "all of it")
        catalog.set_policy("big", POLICY, "json")
        shop = LakeContext(catalog, Ledger(f"sqlite:///{root}/ledger.db"), root, lambda: NOW)
        spark_options = SparkOptions(master=options.master, driver_memory=options.driver_memory)
        with PeakMemory() as peak:
            began = time.monotonic()
            with spark_session(spark_options, cache=root) as spark:
                started = time.monotonic()
                manifest = plan_lake(spark, shop, "big", now=NOW, options=PlanOptions())
            seconds = time.monotonic() - started
    print(
        json.dumps(
            {
                "entries": options.entries,
                "driver_memory": options.driver_memory,
                "due": manifest.summary.due.objects,
                "held": manifest.summary.held.objects,
                "session_seconds": round(started - began, 1),
                "plan_seconds": round(seconds, 1),
                "peak_jvm_mib": peak.jvm >> 20,
                "peak_total_mib": peak.total >> 20,
            }
        )
    )


if __name__ == "__main__":
    main()
