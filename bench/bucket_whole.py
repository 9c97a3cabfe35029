"""
Plan and apply a bucket with many versions on a real S3 server: just the planned changes must be made.

    python -m bench.bucket_whole --versions 100000

What must be done is found by the oracle from a listing with plain boto3, and what was done from another.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.services.runs import apply_bucket, plan_bucket

from ebbtide.core.instant import system_clock
from ebbtide.engine.apply import ApplyOptions
from ebbtide.engine.plan import PlanOptions
from ebbtide.engine.spark.session import SparkOptions, spark_session
from ebbtide.state.runs import Ledger
from ebbtide.storage.store import StoreSpec
from ebbtide.targets.s3.context import BucketContext, Source
from ebbtide.targets.s3.demo import check_bucket, list_versions
from ebbtide.targets.s3.rules.configuration import (
    Configuration,
    Expiration,
    Filter,
    NoncurrentExpiration,
    Rule,
)
from ebbtide.targets.s3.seaweedfs import seaweed
from ebbtide.targets.s3.stored_rules import BucketRules

BUCKET = "whole"
LATER = timedelta(days=10)
FOLDERS = 100
RULES = Configuration(
    (
        Rule("old", True, Filter(), noncurrent_expiration=NoncurrentExpiration(2, newer=1)),
        Rule("logs", True, Filter("f1"), expiration=Expiration(days=3)),
        Rule("older", True, Filter("f2"), noncurrent_expiration=NoncurrentExpiration(5)),
        Rule("cleaning", True, Filter("f3"), expiration=Expiration(expired_marker=True)),
    )
)


def fill(client: Any, versions: int) -> None:
    """Write four versions of each key, and delete every tenth, which leaves a marker."""
    client.create_bucket(Bucket=BUCKET)
    client.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
    keys = [f"f{number % FOLDERS:02d}/key-{number:07d}" for number in range(versions // 4)]

    def put(key: str) -> None:
        for number in range(4):
            client.put_object(Bucket=BUCKET, Key=key, Body=f"{key} {number}".encode())
        if key.endswith("0"):
            client.delete_object(Bucket=BUCKET, Key=key)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(put, keys))


def main() -> None:
    """Fill, plan, apply, compare, print; fail if anything else was changed or anything was left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--versions", type=int, default=100_000)
    options = parser.parse_args()
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="ebbtide-whole-") as place, seaweed(Path(place)) as server:
        root, client = Path(place), server.client()
        os.environ.update(server.env)
        began = time.monotonic()

        def took(step: str) -> None:
            nonlocal began
            seconds[step] = round(time.monotonic() - began, 1)
            began = time.monotonic()

        fill(client, options.versions)
        took("fill")
        before = list_versions(client, BUCKET)
        took("boto3_list")
        rules = BucketRules(f"sqlite:///{root}/rules.db")
        rules.put(BUCKET, RULES)
        shop = BucketContext(
            StoreSpec(f"s3://{BUCKET}", server.options),
            rules,
            Ledger(f"sqlite:///{root}/ledger.db"),
            root / "state",
            lambda: system_clock() + LATER,
        )
        with spark_session(SparkOptions(master="local[2]"), cache=root) as spark:
            took("start")
            now = shop.clock()
            manifest = plan_bucket(
                spark, shop, shop.effective_rules(Source.STORED), now=now, options=PlanOptions()
            )
            took("plan")
            applied = apply_bucket(spark, shop, manifest, options=ApplyOptions(override_breaker=True))
            took("apply")
        after = list_versions(client, BUCKET)
    checked = check_bucket(before, after, RULES, now)
    planned = manifest.summary.due.objects
    outcomes = {name: tally.objects for name, tally in applied.outcomes.items()}
    found = {"versions": len(before), "planned": planned, "outcomes": outcomes, "wrong": len(checked.wrong)}
    print(json.dumps(found | {"seconds": seconds}))
    if checked.wrong or planned != checked.gone + checked.marked:
        sys.exit("the bucket is not what it must be")


if __name__ == "__main__":
    main()
