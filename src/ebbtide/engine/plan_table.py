"""
The table of a plan: what would be deleted, as it is read and digested.

Plans of earlier versions of Ebbtide are read as typed verdicts. Up to format 2 a row had `paths`, `branches`
and, where its target had several actions, a `task`: the action, the version and what had to be true of it.
`collector` was then the action, and the `goal` of a task was a destination or a list of tags. Such plans are
shown as before. One that was begun is applied to its end; one that was not begun has to be made again.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from ebbtide.core.decision import DELETE, MOVED
from ebbtide.core.manifest import Manifest
from ebbtide.engine.actor import ACTED_ON
from ebbtide.engine.layout import RunFolder
from ebbtide.engine.tables.contracts import PLAN, STRINGS, Contract, condition, labels, schema

DIGESTED = [*ACTED_ON, "deadline", "names", "collector"]
"""The columns that the digest of a plan covers."""
_EARLIER_DIGESTED = ["hash", "address", "deadline", "paths", "rules", "size", "collector", "task"]
_TASK = schema(
    action=t.StringType(),
    version=t.StringType(),
    etag=t.StringType(),
    latest=t.BooleanType(),
    newer=t.IntegerType(),
    goal=t.StringType(),
)
_EARLIER = Contract(
    "plan of an earlier version",
    schema(
        hash=t.LongType(),
        address=t.StringType(),
        deadline=t.TimestampType(),
        paths=STRINGS,
        rules=STRINGS,
        branches=STRINGS,
        size=t.LongType(),
        created=t.TimestampType(),
        collector=t.StringType(),
        task=_TASK,
        wave=t.IntegerType(),
    ),
)


def read_plan(spark: SparkSession, folder: RunFolder) -> DataFrame:
    """Read what a plan would delete, whichever version of Ebbtide made it."""
    if not _is_earlier(folder):
        return PLAN.read(spark, folder.plan)
    return _typed(_EARLIER.read(spark, folder.plan), folder.read_manifest().collector)


def digested_table(spark: SparkSession, folder: RunFolder, manifest: Manifest) -> tuple[DataFrame, list[str]]:
    """Return the table of a plan as it was written, with its batches, and the columns of its digest."""
    if manifest.is_typed:
        return PLAN.read(spark, folder.plan), DIGESTED
    return _EARLIER.read(spark, folder.plan).withColumnRenamed("wave", "batch"), _EARLIER_DIGESTED


def typed_row(row: dict[str, Any], collector: str) -> dict[str, Any]:
    """Return a row of a plan or of verdicts as a typed verdict; `collector` is the plan's."""
    if "paths" not in row:
        return row | {"labels": dict(row.get("labels") or ())}
    task = row.get("task") or {}
    action, goal = task.get("action") or DELETE, task.get("goal")
    moves, branch = action == MOVED, next(iter(row.get("branches") or ()), None)
    required = {
        "etag": task.get("etag"),
        "is_latest": task.get("latest"),
        "newer_versions": task.get("newer"),
        "siblings": goal.split() if goal and not moves else None,
    }
    kept = {name: row[name] for name in ("hash", "address", "size", "created", "deadline", "rules")}
    return kept | {
        "version": task.get("version"),
        "names": row["paths"],
        "action": action,
        "destination": goal if moves else None,
        "condition": required if task else None,
        "hold": row.get("reason"),
        "holder": row.get("held_by"),
        "labels": {} if branch is None else {"branch": branch},
        "collector": collector if row["collector"] == task.get("action") else row["collector"],
    }


def _is_earlier(folder: RunFolder) -> bool:
    """Return whether the plan is divided into `wave=`; it is divided into `batch=` since format 3."""
    return any(folder.plan.glob("wave=*"))


def _typed(rows: DataFrame, collector: str) -> DataFrame:
    action, goal = f.coalesce("task.action", f.lit(DELETE)), f.col("task.goal")
    moves = action == MOVED
    required = condition(
        etag=f.col("task.etag"),
        is_latest=f.col("task.latest"),
        newer_versions=f.col("task.newer"),
        siblings=f.when(~moves & (goal != ""), f.split(goal, " ")),
    )
    named: dict[str, Column] = {
        "version": f.col("task.version"),
        "names": f.col("paths"),
        "action": action,
        "destination": f.when(moves, goal),
        "condition": f.when(f.col("task").isNotNull(), required),
        "labels": labels(branch=f.get("branches", 0)),
        "collector": f.when(f.col("collector") == f.col("task.action"), collector).otherwise(
            f.col("collector")
        ),
        "batch": f.col("wave"),
    }
    return PLAN.check(rows.withColumns(named))
