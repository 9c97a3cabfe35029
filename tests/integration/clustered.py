"""A program that plans the lake in a folder on a cluster; prints the plan's hash and how many executed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.services.lake import open_lake
from tests.services.spark import QUICK

from ebbtide.engine.spark.session import SparkOptions, spark_session


def main(folder: Path, master: str) -> None:
    """Plan."""
    options = SparkOptions(
        master=master,
        driver_memory="1g",
        shuffle_partitions=3,
        java_options=QUICK,
        conf={
            "spark.driver.host": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": QUICK,
            "spark.cores.max": "2",
            # An executor that starts late would find all done, and not be counted.
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "240s",
        },
    )
    with spark_session(options, cache=folder / "spark") as spark:
        lake = open_lake(spark, folder)
        lake.day(40)
        # In full: what the other Spark remembered must not answer for this one.
        manifest = lake.plan(full=True)
        executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
        sys.stdout.write(json.dumps({"plan_hash": manifest.plan_hash, "executors": executors}))


main(Path(sys.argv[1]), sys.argv[2])
