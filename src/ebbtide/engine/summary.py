"""Counting a plan: objects and bytes by rule, prefix, branch, age and reason, each one Spark aggregation."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ebbtide.plan.decision import Decision
from ebbtide.plan.manifest import Summary, Tally
from ebbtide.rules.instant import to_micros

MOST_LABELS = 50
"""Longer tables are cut here, largest first; the rest is one line."""

_AGES = (7, 30, 90, 180, 365, 730)


def summarize(decisions: DataFrame, now: datetime, known_objects: int) -> Summary:
    """Count what was decided."""
    due = decisions.where(f.col("decision") == str(Decision.DUE))
    held = decisions.where(f.col("decision") == str(Decision.HELD))
    totals = {row.label: row for row in _tally(decisions, f.col("decision"))}
    return Summary(
        due=totals.get(Decision.DUE, Tally(str(Decision.DUE), 0, 0)),
        held=totals.get(Decision.HELD, Tally(str(Decision.HELD), 0, 0)),
        known_objects=known_objects,
        by_rule=_tally(due, f.explode("rules")),
        by_prefix=_tally(due, _folder(f.element_at("paths", 1))),
        by_branch=_tally(due, f.explode("branches")),
        by_age=_by_age(due, now),
        held_by_reason=_tally(held, f.col("reason")),
    )


def _tally(frame: DataFrame, label: Column) -> tuple[Tally, ...]:
    grouped = (
        frame.select(label.alias("label"), "size")
        .groupBy("label")
        .agg(f.count(f.lit(1)).alias("objects"), f.coalesce(f.sum("size"), f.lit(0)).alias("bytes"))
    )
    rows = grouped.orderBy(f.desc("bytes"), f.desc("objects"), "label").limit(MOST_LABELS)
    return tuple(Tally(**row) for row in rows.toArrow().to_pylist())


def _folder(path: Column) -> Column:
    """Give the first two folders of a path, or what there is of them."""
    parts = f.split(path, "/")
    folders = f.slice(parts, 1, f.least(f.size(parts) - 1, f.lit(2)))
    return f.when(f.size(parts) == 1, f.lit("(top level)")).otherwise(
        f.concat(f.array_join(folders, "/"), f.lit("/"))
    )


def _by_age(due: DataFrame, now: datetime) -> tuple[Tally, ...]:
    micros = f.lit(to_micros(now)) - f.unix_micros("created")
    age = f.floor(micros / f.lit(86_400_000_000))
    bucket = f.when(age < _AGES[0], f.lit(0))
    for number, limit in enumerate(_AGES[1:], start=1):
        bucket = bucket.when(age < limit, f.lit(number))
    tallies = _tally(due, bucket.otherwise(f.lit(len(_AGES))))
    ordered = sorted(tallies, key=lambda tally: int(tally.label))
    return tuple(Tally(_age_label(int(t.label)), t.objects, t.bytes) for t in ordered)


def _age_label(bucket: int) -> str:
    if bucket == 0:
        return f"under {_AGES[0]} days"
    if bucket == len(_AGES):
        return f"{_AGES[-1]} days and more"
    return f"{_AGES[bucket - 1]} to {_AGES[bucket] - 1} days"
