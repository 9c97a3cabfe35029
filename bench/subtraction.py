"""
Take the referenced objects from the listed ones, with Ebbtide on Spark and with DuckDB, and compare.

    python -m bench.subtraction --listed 5000000 --references 10000000

Both read the same Parquet files and write the same rows: listed, not referenced, older than a cutoff. A time
runs from the first read to the written result. A first round of both is printed and does not count: in it
the JVM loads and compiles its code, as in a real run it has done when it comes to this. What must come out is
known from how the files were made.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from bench.peak import PeakMemory
from ebbtide.engine.spark.session import SparkOptions, spark_session
from ebbtide.engine.tables.digest import address_hash, without

MOST = 3.0
ROUNDS = 3
CUTOFF = datetime(2026, 11, 1, tzinfo=UTC)
A_PARTITION = 50_000
A_FILE = 500_000
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_CUTOFF_MICROS = int(CUTOFF.timestamp()) * 1_000_000
_DAY = 86_400_000_000


@dataclass(frozen=True)
class Files:
    """Where the two tables lie, and what must remain."""

    listed: Path
    references: Path
    count: int
    checksum: int


def addresses(numbers: Any) -> Any:
    """Make the address of each number: partitions of equal length, and names that look random."""
    starts = np.array([_start(n) for n in range(int(numbers.max()) // A_PARTITION + 1)])
    text = np.concatenate([starts[numbers // A_PARTITION], _digits(numbers, 1), _digits(numbers, 2)], axis=1)
    width = text.shape[1]
    offsets = pa.py_buffer(np.arange(0, width * (len(numbers) + 1), width, dtype=np.int32))
    return pa.StringArray.from_buffers(len(numbers), offsets, pa.py_buffer(text.tobytes()))


def _start(partition: int) -> Any:
    mixed = f"{(partition + 1) * 0x9E3779B97F4A7C15 % 2**48:012x}"
    start = f"repos/{'5b' * 16}/branches/main-{'0c' * 6}/{partition:018d}_{mixed}/"
    return np.frombuffer(start.encode(), np.uint8)


def _digits(numbers: Any, salt: int) -> Any:
    """Mix numbers well (SplitMix64) and write each as sixteen digits."""
    mixed = (numbers.astype(np.uint64) + np.uint64(salt << 40)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    shifts = np.arange(60, -1, -4, dtype=np.uint64)
    return _HEX[(mixed[:, None] >> shifts) & np.uint64(15)]


def listed_rows(numbers: Any) -> pa.Table:
    """Make the rows of a listing; every tenth of each residue is younger than the cutoff."""
    young = (numbers // 5) % 10 == 0
    times = _CUTOFF_MICROS + np.where(young, 1, -1) * (_DAY + numbers)
    modified = pa.array(times, pa.timestamp("us", tz="UTC"))
    return pa.table({"address": addresses(numbers), "size": numbers + 1000, "last_modified": modified})


def make(root: Path, listed: int, references: int) -> Files:
    """Write both tables: every fifth listed address is not referenced, and some references are not listed."""
    numbers = np.arange(listed)
    stray = references // 20
    named = np.resize(numbers[numbers % 5 != 0], references - stray)
    every = np.concatenate([named, np.arange(listed, listed + stray)])
    np.random.default_rng(1).shuffle(every)
    for folder, count, table in (("listed", listed, numbers), ("references", references, every)):
        (root / folder).mkdir()
        for start in range(0, count, A_FILE):
            some = table[start : start + A_FILE]
            rows = listed_rows(some) if folder == "listed" else pa.table({"address": addresses(some)})
            path = root / folder / f"part-{start:09d}.parquet"
            pq.write_table(rows, path, compression="zstd", use_dictionary=False, row_group_size=125_000)
    expected = listed_rows(numbers[(numbers % 5 == 0) & ((numbers // 5) % 10 != 0)])
    return Files(root / "listed", root / "references", *fingerprint(expected))


def fingerprint(rows: pa.Table) -> tuple[int, int]:
    """Count rows and add up their hashes, which does not depend on their order."""
    with duckdb.connect() as database:
        database.register("found", rows)
        sums = "count(*), coalesce(sum(hash(address, size, epoch_us(last_modified))::hugeint), 0)"
        count, checksum = database.sql(f"select {sums} from found").fetchall()[0]  # noqa: S608 (no input)
    return int(count), int(checksum)


def with_spark(spark: SparkSession, files: Files, target: Path) -> None:
    """Subtract as Ebbtide does."""
    listed = spark.read.parquet(files.listed.as_uri())
    references = spark.read.parquet(files.references.as_uri())
    garbage = without(
        listed.withColumn("hash", address_hash("address")),
        references.select(address_hash("address").alias("hash")),
    )
    old = garbage.where(f.col("last_modified") < f.lit(CUTOFF)).drop("hash")
    old.write.option("parquet.enable.dictionary", "false").parquet(target.as_uri())


def with_duckdb(files: Files, target: Path) -> None:
    """Subtract as somebody would who has the files and DuckDB."""
    target.mkdir()
    with duckdb.connect(config={"threads": 2}) as database:
        database.execute("set preserve_insertion_order = false")
        database.execute(
            f"""
            copy (
                select address, size, last_modified from read_parquet('{files.listed}/*.parquet') as listed
                anti join read_parquet('{files.references}/*.parquet') as named using (address)
                where last_modified < timestamptz '{CUTOFF.isoformat()}'
            ) to '{target}/all.parquet' (format parquet, compression zstd)
            """  # noqa: S608 (paths of our own)
        )


def measure(spark: SparkSession, files: Files, root: Path) -> dict[str, object]:
    """Run both in turn, and look at what each wrote."""
    seconds: dict[str, list[float]] = {"spark": [], "duckdb": []}
    right = True
    for n in range(1 + ROUNDS):
        for name, taken in seconds.items():
            target = root / f"{name}-{n}"
            began = time.monotonic()
            if name == "spark":
                with_spark(spark, files, target)
            else:
                with_duckdb(files, target)
            taken.append(round(time.monotonic() - began, 2))
            right = right and (files.count, files.checksum) == fingerprint(pq.read_table(target))
    return {
        "garbage": files.count,
        "right": right,
        "first_seconds": {name: taken[0] for name, taken in seconds.items()},
        "spark_seconds": seconds["spark"][1:],
        "duckdb_seconds": seconds["duckdb"][1:],
        "ratio": round(sum(seconds["spark"][1:]) / sum(seconds["duckdb"][1:]), 2),
    }


def main() -> None:
    """Make, measure, print; fail if Ebbtide is too slow or anybody is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listed", type=int, default=5_000_000)
    parser.add_argument("--references", type=int, default=10_000_000)
    parser.add_argument("--driver-memory", default="2g")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ebbtide-subtraction-") as place, PeakMemory() as peak:
        root = Path(place)
        files = make(root, options.listed, options.references)
        spark_options = SparkOptions(master="local[2]", driver_memory=options.driver_memory)
        with spark_session(spark_options, cache=root) as spark:
            found = measure(spark, files, root)
    sizes = {"peak_total_mib": peak.total >> 20, "peak_jvm_mib": peak.jvm >> 20}
    print(json.dumps({"listed": options.listed, "references": options.references, **found, **sizes}))
    if not found["right"] or float(str(found["ratio"])) > MOST:
        sys.exit("the subtraction is not what it must be")


if __name__ == "__main__":
    main()
