"""
Delete noncurrent versions as a plain boto3 loop does, and through a bucket's deleter on Spark, and compare.

    python -m bench.bucket_apply --versions 40000

SeaweedFS runs beside both. The loop sends pages of 1,000 on one thread and looks at nothing; the deleter
looks again at every key before it deletes, and has an outcome for every row. Both take turns on the same kind
of keys, so only their ratio counts: it fails below 1.5. The machine must be idle: the deleter is faster by
using what the loop leaves unused.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tests.services.seaweed import S3Server, seaweed

from ebbtide.core.instant import system_clock
from ebbtide.engine.actor import DeleteOptions, act_on_rows
from ebbtide.engine.spark.session import SparkOptions, spark_session
from ebbtide.engine.tables.contracts import CONDITION
from ebbtide.storage.s3_bucket import VersionedBucket
from ebbtide.storage.store import StoreSpec
from ebbtide.targets.s3.actions.deleter import BucketDeleter
from ebbtide.targets.s3.model import Action, Versioning

BUCKET = "bench"
ROUNDS = 2
EACH = 5
"""Versions of each key; all but the current one are deleted."""
WARM = 4
"""Runs before the clock starts: a wave that is worth measuring does not meet a JVM that has just started."""
WANTED = 1.5
WRITERS = 8


def write(server: S3Server, prefix: str, keys: int) -> None:
    """Write the versions of some keys, the versions of each one after the other."""
    client = server.client()

    def one(number: int) -> None:
        for version in range(EACH):
            client.put_object(Bucket=BUCKET, Key=f"{prefix}/{number:06d}", Body=b"%d" % version)

    with ThreadPoolExecutor(WRITERS) as threads:
        list(threads.map(one, range(keys)))


def listed(server: S3Server, prefix: str) -> list[dict[str, Any]]:
    """List the versions below a prefix."""
    bucket = VersionedBucket(StoreSpec(f"s3://{BUCKET}", server.options))
    return [row for batch in bucket.versions(f"{prefix}/") for row in batch.to_pylist()]


def plain_loop(server: S3Server, rows: list[dict[str, Any]]) -> float:
    """Delete as the simplest program would, and give the seconds that it took."""
    client = server.client()
    began = time.monotonic()
    for start in range(0, len(rows), 1000):
        page = [{"Key": row["key"], "VersionId": row["version_id"]} for row in rows[start : start + 1000]]
        client.delete_objects(Bucket=BUCKET, Delete={"Objects": page})  # type: ignore[typeddict-item]
    return time.monotonic() - began


def plan(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    """Make the rows of a plan that deletes versions."""
    made = []
    for row in rows:
        required = (row["etag"], False, 0, None)
        made.append((row["key"], row["version_id"], row["last_modified"], row["size"], required))
    schema = (
        "address string, version string, created timestamp, size bigint,"
        f" condition {CONDITION.simpleString()}"
    )
    return spark.createDataFrame(made, schema).select(
        f.xxhash64("address").alias("hash"),
        "address",
        "version",
        f.lit(str(Action.DELETE_VERSION)).alias("action"),
        f.lit(None).cast("string").alias("destination"),
        "condition",
        f.array(f.lit("r1")).alias("rules"),
        "size",
        "created",
        f.lit(0).alias("batch"),
        f.lit(None).cast("string").alias("kept_because"),
    )


def deleter_run(spark: SparkSession, server: S3Server, rows: list[dict[str, Any]], place: Path) -> float:
    """Delete through Spark, write the outcomes, and give the seconds that it took."""
    planned = plan(spark, rows).cache()
    planned.count()
    make = partial(BucketDeleter, StoreSpec(f"s3://{BUCKET}", server.options), versioning=Versioning.ENABLED)
    options = DeleteOptions(rate_per_prefix=1e9)
    began = time.monotonic()
    done = act_on_rows(planned, make, options, 0, system_clock(), resumed=False, in_order=True)
    done.write.parquet(str(place))
    seconds = time.monotonic() - began
    outcomes = {
        row["outcome"]: row["count"]
        for row in spark.read.parquet(str(place)).groupBy("outcome").count().collect()
    }
    if outcomes != {"deleted": len(rows)}:
        sys.exit(f"not all were deleted: {outcomes}")
    return seconds


def measure(spark: SparkSession, server: S3Server, keys: int, place: Path) -> tuple[list[float], list[float]]:
    """Let both take turns, and give the deletes a second of each round."""
    for turn in range(WARM):
        write(server, f"warm/{turn}", 20)
        rows = [row for row in listed(server, f"warm/{turn}") if row["position"]]
        deleter_run(spark, server, rows, place / f"warm{turn}")
    loops, deleters = [], []
    for turn in range(ROUNDS):
        for kind, rates in (("plain", loops), ("ebb", deleters)):
            prefix = f"{kind}/{turn}"
            write(server, prefix, keys)
            rows = [row for row in listed(server, prefix) if row["position"]]
            if kind == "plain":
                seconds = plain_loop(server, rows)
            else:
                seconds = deleter_run(spark, server, rows, place / str(turn))
            left = listed(server, prefix)
            if len(left) != keys or not all(row["is_latest"] for row in left):
                sys.exit(f"{kind}: {len(left)} versions are left, and {keys} current ones should be")
            rates.append(len(rows) / seconds)
    return loops, deleters


def main() -> None:
    """Write, delete in turns, print; fail if the deleter is not fast enough."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--versions", type=int, default=40_000)
    keys = max(1, parser.parse_args().versions // (2 * ROUNDS * EACH))
    with tempfile.TemporaryDirectory(prefix="ebbtide-apply-") as place:
        (Path(place) / "weed").mkdir()
        with seaweed(Path(place) / "weed") as server:
            os.environ.update(server.env)
            client = server.client()
            client.create_bucket(Bucket=BUCKET)
            client.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
            with spark_session(SparkOptions(master="local[2]"), cache=Path(place)) as spark:
                loops, deleters = measure(spark, server, keys, Path(place))
    ratio = sum(deleters) / sum(loops)
    print(
        json.dumps(
            {
                "versions": 2 * ROUNDS * keys * EACH,
                "deleted_a_round": keys * (EACH - 1),
                "loop_deletes_a_second": [round(rate) for rate in loops],
                "deleter_deletes_a_second": [round(rate) for rate in deleters],
                "ratio": round(ratio, 2),
            }
        )
    )
    if ratio < WANTED:
        sys.exit(f"the deleter is {ratio:.2f} times as fast as a plain loop, and should be {WANTED}")


if __name__ == "__main__":
    main()
