"""Lakes that an inventory shows: whoever made them, their owner markers are among its keys."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ebbtide.storage.namespace import MARKER
from ebbtide.storage.store import StoreSpec, open_store
from ebbtide.targets.s3.evaluation.lookup import VERSION
from ebbtide.targets.s3.model import Protected
from ebbtide.targets.s3.protected import marked_lake


def lakes_listed(spec: StoreSpec, versions: DataFrame) -> tuple[Protected, ...]:
    """Find the lakes whose markers are in an inventory, from a listing or a report."""
    key = f.col("key")
    is_marker = (key == MARKER) | key.endswith(f"/{MARKER}")
    current = (f.col("kind") == VERSION) & f.coalesce(f.col("is_latest"), f.lit(True))
    found = versions.where(is_marker & current).select("key").distinct().toArrow().column("key").to_pylist()
    store = open_store(spec)
    return tuple(marked_lake(store, name.removesuffix(MARKER)) for name in sorted(found))
