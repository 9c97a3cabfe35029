"""One Spark session for all tests: starting one takes longer than most tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from tests.services.seaweed import S3Server

from ebbtide.engine.spark.session import SparkOptions, spark_session

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Tests make many small queries and run each once: the quick compiler is the fast one here."""

OPTIONS = SparkOptions(
    master="local[2]",
    driver_memory="1g",
    shuffle_partitions=2,
    java_options=QUICK,
    conf={
        # Spark's Python workers get their environment when it starts, which may be before the S3 server does.
        **{f"spark.executorEnv.{name}": value for name, value in S3Server("").env.items()},
        # Nobody looks at what Spark keeps of the past, thousands of queries in one session.
        "spark.sql.ui.retainedExecutions": "10",
        "spark.ui.retainedJobs": "100",
        "spark.ui.retainedStages": "100",
        "spark.ui.retainedTasks": "1000",
        # To compile a query takes longer than to interpret it for a handful of rows, and this takes a quarter
        # off the time of all tests. The cluster, and every `ebb` that tests start, run compiled.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    },
)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Run Spark on this machine for the rest of the session."""
    with spark_session(OPTIONS, cache=tmp_path_factory.mktemp("spark")) as session:
        yield session
