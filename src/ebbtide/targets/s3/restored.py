"""Versions that were restored from the recycle bin: the rules let them alone for some days."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ebbtide.core.decision import Outcome
from ebbtide.engine.removed_items import RemovedItems
from ebbtide.engine.removed_table import RemovedTable
from ebbtide.targets.s3.evaluation.verdicts import RESTORED_UNTIL

_ANY = ""
"""Stands for every version of a key, where nobody knows which one came back."""


def with_restored(versions: DataFrame, removed: RemovedItems) -> DataFrame:
    """Add to each version until when it is held because it was restored."""
    if not removed.restored:
        return versions.withColumn(RESTORED_UNTIL, f.lit(None).cast("timestamp"))
    held = removed.held(versions.sparkSession)
    entries = f.collect_list(f.struct(f.coalesce("version", f.lit(_ANY)), "until"))
    by_key = held.groupBy(f.col("address").alias("key")).agg(f.map_from_entries(entries).alias("_holds"))
    until = [f.try_element_at("_holds", name) for name in (f.col("version_id"), f.lit(_ANY))]
    joined = versions.join(by_key.hint("broadcast" if removed.is_few else "shuffle_hash"), "key", "left")
    return joined.withColumn(RESTORED_UNTIL, f.greatest(*until)).drop("_holds")


def restored_versions(table: RemovedTable, key: str) -> Mapping[str, datetime]:
    """Look up without Spark until when each version of a key is held because it was restored."""
    rows: list[dict[str, Any]] = [row for row in table.find(key) if row["outcome"] == Outcome.RESTORED]
    return {row["version"] or _ANY: row["until"] for row in rows if row["until"] is not None}


def restored_until(holds: Mapping[str, datetime], version: str) -> datetime | None:
    """Return until when a version is held."""
    return max((holds[name] for name in (version, _ANY) if name in holds), default=None)
