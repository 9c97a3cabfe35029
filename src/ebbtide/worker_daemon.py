"""
The process from which Spark forks its Python workers, with all imports done once before the first fork.

Without it every worker imports Arrow, NumPy and PySpark anew, which takes longer than most of its tasks. It
is above all packages, because workers run code from many of them.
"""

from __future__ import annotations

import pyarrow.parquet
from pyspark.daemon import manager

import ebbtide.engine.actor
import ebbtide.targets.oci.client.distribution
import ebbtide.targets.oci.inventory.spark_scan
import ebbtide.targets.repository.increments
import ebbtide.targets.repository.lifecycle
import ebbtide.targets.repository.live_objects
import ebbtide.targets.repository.outputs
import ebbtide.targets.s3.actions.deleter
import ebbtide.targets.s3.inventory.listing
from ebbtide.engine.build import build_id
from ebbtide.storage.executor_proof import note_unfitness

PRELOADED = (
    pyarrow.parquet,
    ebbtide.targets.s3.actions.deleter,
    ebbtide.targets.s3.inventory.listing,
    ebbtide.engine.actor,
    ebbtide.targets.repository.live_objects,
    ebbtide.targets.repository.outputs,
    ebbtide.targets.repository.lifecycle,
    ebbtide.targets.repository.increments,
    ebbtide.targets.oci.client.distribution,
    ebbtide.targets.oci.inventory.spark_scan,
)

if __name__ == "__main__":
    note_unfitness(build_id())
    manager()
