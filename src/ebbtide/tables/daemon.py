"""
The process from which Spark forks its Python workers, with the heavy imports done once before the first fork.

Without it every worker imports Arrow and NumPy anew, which takes longer than most of its tasks.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.daemon import manager

PRELOADED = (np, pa, pc, pq)

if __name__ == "__main__":
    manager()
