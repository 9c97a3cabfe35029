"""
Plan the whole lifecycle of a large repository, with Ebbtide and with DuckDB, and compare.

    python -m bench.lifecycle --entries 5000000

Both answer the same question from the same range files: until when is each address held by all of its
references, and which addresses are due. A time runs from the first read to the last written file; Ebbtide
also writes all verdicts, the plan in batches, its digest and its summary. The session is warm: a first plan
of each is printed and does not count.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from tests.services.runs import plan_lake

from bench.peak import PeakMemory
from ebbtide.core.manifest import Manifest
from ebbtide.engine.plan import PlanOptions
from ebbtide.engine.spark.session import SparkOptions, spark_session
from ebbtide.state.runs import Ledger
from ebbtide.targets.lake.catalog.catalog import Catalog
from ebbtide.targets.lake.context import LakeContext

NOW = datetime(2026, 11, 1, tzinfo=UTC)
RULES = {"raw/": 150, "tmp/": 100}
POLICY = json.dumps({prefix.strip("/"): {"prefix": prefix, "days": days} for prefix, days in RULES.items()})
SHARES = {"keep/": 0.1, "raw/": 0.6, "tmp/": 1.0}
"""Top folders, and up to which share of all keys each reaches."""
MOST = 4.0
ROUNDS = 2
_A_TABLE = 250_000
_DAY = 86_400_000_000
_REPOSITORY = "big"


def entries(count: int) -> Iterator[pa.Table]:
    """Make the rows of a repository; every tenth key has the address of the key before it."""
    for start in range(0, count, _A_TABLE):
        numbers = np.arange(start, min(start + _A_TABLE, count))
        tops = np.array(list(SHARES))[
            np.searchsorted(np.array(list(SHARES.values())) * count, numbers, "right")
        ]
        ages = 90 + numbers * 7919 % 90_000 / 1000
        created = int(NOW.timestamp() * 1e6) - (ages * _DAY).astype(np.int64)
        named = numbers - (numbers % 10 == 9)
        yield pa.table(
            {
                "key": _joined(tops, "day=", numbers // 1000, "/part-", numbers),
                "address": _joined("repos/r/branches/main/p/", named, "-0123456789abcdef"),
                "created": pa.array(created, pa.timestamp("us", tz="UTC")),
                "size": pa.array(1000 + named % 1000, pa.int64()),
                "checksum": pa.repeat("", len(numbers)),
            }
        )


def _joined(*parts: Any) -> Any:
    """Join texts and numbers, row by row; a number has twelve digits."""
    columns = [part if isinstance(part, str) else _text(part) for part in parts]
    return pc.binary_join_element_wise(*columns, "")


def _text(values: Any) -> Any:
    if values.dtype.kind == "U":
        return pa.array(values)
    return pc.utf8_lpad(pa.array(values).cast(pa.string()), 12, "0")


def with_duckdb(lake: Path, target: Path) -> int:
    """Answer the question as a person with the range files and DuckDB would; return how many are due."""
    midnight = "date_trunc('day', created + interval 1 day - interval 1 microsecond)"
    lapse = " ".join(
        f"when starts_with(key, '{prefix}') then {midnight} + interval {days} day"
        for prefix, days in RULES.items()
    )
    with duckdb.connect(config={"threads": 2}) as database:
        database.execute("set preserve_insertion_order = false")
        database.execute("set timezone = 'UTC'")
        database.execute(
            f"""
            copy (
                with lapses as (
                    select key, address, size, case {lapse} else timestamptz '9999-12-31' end as lapse
                    from read_parquet('{lake}/_lakefs/committed/*.parquet')
                )
                select address, max(lapse) as deadline, list(key) as names, max(size) as size from lapses
                group by address having max(lapse) <= timestamptz '{NOW.isoformat()}'
            ) to '{target}' (format parquet, compression zstd)
            """  # noqa: S608 (paths and rules of our own)
        )
        return int(database.sql(f"select count(*) from '{target}'").fetchall()[0][0])  # noqa: S608


def timed_plan(spark: SparkSession, context: LakeContext, *, full: bool) -> tuple[Manifest, dict[str, float]]:
    """Plan, and return the seconds of each step."""
    began = last = time.monotonic()
    steps: dict[str, float] = {}

    def on_step(name: str) -> None:
        nonlocal last
        now = time.monotonic()
        steps[name] = round(now - last, 1)
        last = now

    manifest = plan_lake(
        spark, context, _REPOSITORY, now=NOW, options=PlanOptions(), full=full, on_step=on_step
    )
    return manifest, {"total": round(time.monotonic() - began, 1), **steps}


def build(root: Path, count: int) -> LakeContext:
    """Make the repository, unless it is there."""

    def clock() -> datetime:
        return NOW - timedelta(days=1)

    catalog = Catalog(f"sqlite:///{root}/catalog.db", clock=clock)
    context = LakeContext(
        catalog, Ledger(f"sqlite:///{root}/ledger.db", clock=lambda: NOW), root, lambda: NOW
    )
    if not (root / "lake").is_dir():
        catalog.create_repository(_REPOSITORY, str(root / "lake"))
        catalog.import_entries(_REPOSITORY, "main", entries(count), "all of it")
        catalog.set_policy(_REPOSITORY, POLICY, "json")
    return context


def measure(spark: SparkSession, root: Path, count: int) -> dict[str, Any]:
    """Run both in turn."""
    began = time.monotonic()
    context = build(root, count)
    print(f"built in {time.monotonic() - began:.1f} s", file=sys.stderr)
    found: dict[str, Any] = {"entries": count, "ebbtide": [], "duckdb": []}
    for number in range(1 + ROUNDS):
        manifest, steps = timed_plan(spark, context, full=True)
        began = time.monotonic()
        due = with_duckdb(root / "lake", root / f"due-{number}.parquet")
        seconds = time.monotonic() - began
        print(json.dumps({"ebbtide": steps, "duckdb": round(seconds, 2)}), file=sys.stderr)
        if due != manifest.summary.due.objects:
            sys.exit(f"DuckDB finds {due} due, Ebbtide {manifest.summary.due.objects}")
        if number:
            found["ebbtide"].append(steps["total"])
            found["duckdb"].append(round(seconds, 2))
    return found | {"due": due, "ratio": round(sum(found["ebbtide"]) / sum(found["duckdb"]), 2)}


def main() -> None:
    """Build, measure, print; fail if the ratio is too large."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=5_000_000)
    parser.add_argument("--driver-memory", default="2g")
    parser.add_argument("--root", type=Path, help="keep the repository here, for the next time")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ebbtide-lifecycle-") as place:
        root = options.root or Path(place)
        root.mkdir(exist_ok=True)
        spark_options = SparkOptions(master="local[2]", driver_memory=options.driver_memory)
        with spark_session(spark_options, cache=root) as spark, PeakMemory() as peak:
            found = measure(spark, root, options.entries)
    print(json.dumps(found | {"peak_mib": peak.total // 2**20}))
    if found["ratio"] > MOST:
        sys.exit(f"the plan takes {found['ratio']} times as long as DuckDB, at most {MOST} is wanted")


if __name__ == "__main__":
    main()
