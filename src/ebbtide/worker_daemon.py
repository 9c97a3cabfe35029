"""
The process from which Spark forks its Python workers, with all imports done once before the first fork.

Without it every worker imports Arrow, NumPy and PySpark anew, which takes longer than most of its tasks. It
stands above all packages, because what workers run lives in many of them.
"""

from __future__ import annotations

import pyarrow.parquet
from pyspark.daemon import manager

import ebbtide.bucket.actions.deleter
import ebbtide.bucket.inventory.listing
import ebbtide.engine.deleting
import ebbtide.lake.checking
import ebbtide.lake.lifecycle.outputs
import ebbtide.lake.lifecycle.references
import ebbtide.lake.lifecycle.visiting
import ebbtide.registry.client.server
import ebbtide.registry.inventory.dating

PRELOADED = (
    pyarrow.parquet,
    ebbtide.bucket.actions.deleter,
    ebbtide.bucket.inventory.listing,
    ebbtide.engine.deleting,
    ebbtide.lake.checking,
    ebbtide.lake.lifecycle.outputs,
    ebbtide.lake.lifecycle.references,
    ebbtide.lake.lifecycle.visiting,
    ebbtide.registry.client.server,
    ebbtide.registry.inventory.dating,
)

if __name__ == "__main__":
    manager()
