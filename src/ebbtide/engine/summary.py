"""
The counts of a plan: objects and bytes by rule, prefix, age, action, collector, label and hold.

And what the breaker compares: the parts of a target, what is due of each, and how much of that is routine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as f

from ebbtide.core.breaker import ROUTINE, SHARES, Routine, Share
from ebbtide.core.decision import MOVED, Decision
from ebbtide.core.errors import EbbtideError
from ebbtide.core.instant import to_micros
from ebbtide.core.manifest import Manifest, Summary, Tally
from ebbtide.engine.run_folder import run_folder
from ebbtide.engine.verdicts import UNTOUCHED, is_due
from ebbtide.state.runs import Ledger, RunState

MOST_LABELS = 50
"""Longer tables are cut here, largest first."""

_FREED, _LABEL = "freed", "label "
_AGES = (7, 30, 90, 180, 365, 730)


@dataclass(frozen=True)
class Counts:
    """How many items are due, how many are held for which reason, and how many no rule touches."""

    due: Tally
    held: Tally
    by_reason: tuple[Tally, ...]
    """Of what is held; largest first."""
    untouched: int


def count_verdicts(verdicts: DataFrame, now: datetime) -> Counts:
    """Count what is due and what is held by its reason, and with them what no rule touches, in one job."""
    untouched = f.col("kind") == UNTOUCHED
    decision = f.when(untouched, UNTOUCHED).when(is_due(now), str(Decision.DUE)).otherwise(str(Decision.HELD))
    counted = verdicts.groupBy(decision.alias("decision"), "hold").agg(*_sums()).toArrow().to_pylist()
    held = [
        Tally(row["hold"], row["objects"], row["bytes"])
        for row in counted
        if row["decision"] == Decision.HELD
    ]
    due = [Tally("", row["objects"], row["bytes"]) for row in counted if row["decision"] == Decision.DUE]
    return Counts(
        due=_total(Decision.DUE, due),
        held=_total(Decision.HELD, held),
        by_reason=tuple(sorted(held, key=lambda tally: (-tally.bytes, -tally.objects, tally.label))),
        untouched=sum(row["objects"] for row in counted if row["decision"] == UNTOUCHED),
    )


def summarize(
    counts: Counts, plan: DataFrame, now: datetime, known: int | None = None, frees: str = "true"
) -> Summary:
    """
    Add to the counts what the plan is made up of.

    `known` is the target's size if somebody counted it; `frees` tells which items give bytes back.
    """
    touched = counts.due.objects + counts.held.objects
    labels = f.concat(
        _labels("rule", f.col("rules")),
        _labels("prefix", f.array(_folder(f.get("names", 0)))),
        _labels("age", f.array(_age(now).cast("string"))),
        _labels("collector", f.array("collector")),
        _labels("action", f.array("action")),
        _named_labels(),
        _labels("frees", f.array_compact(f.array(f.when(f.expr(frees), f.lit(_FREED))))),
    )
    tallies = _tally(plan.select(f.explode(labels).alias("at"), "size")) if counts.due.objects else {}
    return Summary(
        due=counts.due,
        held=counts.held,
        # What earlier runs deleted is no part of the target; counted in, it could hide a plan for the rest.
        known_objects=counts.untouched + touched if known is None else max(known, touched),
        by_rule=tallies.get("rule", ()),
        by_prefix=tallies.get("prefix", ()),
        by_age=_in_order(tallies.get("age", ())),
        held_by_reason=counts.by_reason[:MOST_LABELS],
        by_collector=tallies.get("collector", ()),
        by_action=tallies.get("action", ()),
        by_label={
            dimension.removeprefix(_LABEL): counted
            for dimension, counted in tallies.items()
            if dimension.startswith(_LABEL)
        },
        frees=next(iter(tallies.get("frees", ())), Tally(_FREED, 0, 0)),
    )


def _sums() -> list[Column]:
    return [f.count(f.lit(1)).alias("objects"), f.coalesce(f.sum("size"), f.lit(0)).alias("bytes")]


def _total(decision: Decision, tallies: Sequence[Tally]) -> Tally:
    return Tally(str(decision), sum(t.objects for t in tallies), sum(t.bytes for t in tallies))


def _labels(dimension: str, values: Column) -> Column:
    return f.transform(values, lambda v: f.struct(f.lit(dimension).alias("dimension"), v.alias("label")))


def _named_labels() -> Column:
    """Return what an item's own labels count it under; an item may have none."""
    entries = f.map_entries(f.coalesce("labels", f.expr("cast(map() AS map<string,string>)")))
    return f.transform(
        entries,
        lambda one: f.struct(
            f.concat(f.lit(_LABEL), one["key"]).alias("dimension"), one["value"].alias("label")
        ),
    )


def _tally(rows: DataFrame) -> dict[str, tuple[Tally, ...]]:
    """Count all dimensions in one job, and keep the largest labels of each."""
    counted = rows.groupBy("at.dimension", "at.label").agg(*_sums())
    largest = Window.partitionBy("dimension").orderBy(f.desc("bytes"), f.desc("objects"), "label")
    ranked = counted.withColumn("rank", f.row_number().over(largest)).where(f.col("rank") <= MOST_LABELS)
    found: dict[str, list[Tally]] = {}
    for row in ranked.orderBy("dimension", "rank").toArrow().to_pylist():
        found.setdefault(row["dimension"], []).append(Tally(row["label"], row["objects"], row["bytes"]))
    return {dimension: tuple(tallies) for dimension, tallies in found.items()}


def _folder(path: Column) -> Column:
    """Give the first two folders of a path, or what there is of them."""
    parts = f.split(path, "/")
    folders = f.slice(parts, 1, f.least(f.size(parts) - 1, f.lit(2)))
    named = f.when(f.size(parts) == 1, f.lit("(top level)")).otherwise(
        f.concat(f.array_join(folders, "/"), f.lit("/"))
    )
    return f.coalesce(named, f.lit("(no path)"))


def _age(now: datetime) -> Column:
    """Give the number of the age bucket that an object falls into."""
    micros = f.lit(to_micros(now)) - f.unix_micros("created")
    age = f.floor(micros / f.lit(86_400_000_000))
    bucket = f.when(age < _AGES[0], f.lit(0))
    for number, limit in enumerate(_AGES[1:], start=1):
        bucket = bucket.when(age < limit, f.lit(number))
    return bucket.otherwise(f.lit(len(_AGES)))


def _in_order(tallies: tuple[Tally, ...]) -> tuple[Tally, ...]:
    ordered = sorted(tallies, key=lambda tally: int(tally.label))
    return tuple(Tally(_age_label(int(t.label)), t.objects, t.bytes) for t in ordered)


def _age_label(bucket: int) -> str:
    if bucket == 0:
        return f"under {_AGES[0]} days"
    if bucket == len(_AGES):
        return f"{_AGES[-1]} days and more"
    return f"{_AGES[bucket - 1]} to {_AGES[bucket] - 1} days"


@dataclass(frozen=True)
class Part:
    """A part of a target: what it consists of, and which verdicts belong to it, as a Spark expression."""

    of: str
    where: str = "true"


def last_succeeded(root: Path, ledger: Ledger, target_uid: str, collector: str) -> Manifest | None:
    """Read the plan of the last run that succeeded; one that cannot be read counts as none."""
    last = ledger.last_run(target_uid, RunState.SUCCEEDED, collector)
    try:
        return run_folder(root, last).read_manifest() if last is not None else None
    except EbbtideError:
        return None


def count_shares(
    parts: Sequence[Part], known: DataFrame, plan: DataFrame | None, routine: Routine | None
) -> dict[str, Any]:
    """
    Count each part, and name what which rule does and has done; as plain data, for the manifest.

    Nothing is counted in a plan for nothing, which is None.
    """
    if not parts:
        return {}
    before = routine.acts if routine else frozenset[str]()
    if plan is None:
        return {SHARES: [asdict(Share(part.of, 0, 0)) for part in parts], ROUTINE: sorted(before)}
    counted = _only_row(known.select(*_counts(parts, f.lit(True), "known")))
    due = _only_row(
        plan.where(f.col("action") != MOVED).select(
            *_counts(parts, f.lit(True), "due"),
            *_counts(parts, _is_routine(routine) if routine else f.lit(False), "routine"),
            f.flatten(f.collect_set(_acts())).alias("acts"),
        )
    )
    shares = [
        Share(part.of, due[f"due{n}"], counted[f"known{n}"], due[f"routine{n}"])
        for n, part in enumerate(parts)
    ]
    return {SHARES: [asdict(share) for share in shares], ROUTINE: sorted(before | set(due["acts"]))}


def _only_row(counted: DataFrame) -> Row:
    return counted.collect()[0]


def _counts(parts: Sequence[Part], also: Column, name: str) -> list[Column]:
    return [
        f.count_if(f.coalesce(f.expr(part.where) & also, f.lit(False))).alias(f"{name}{n}")
        for n, part in enumerate(parts)
    ]


def _acts() -> Column:
    """Name what is done to an item by which rules."""
    return f.transform("rules", lambda rule: f.concat_ws(" ", "action", rule))


def _is_routine(routine: Routine) -> Column:
    """Tell of a due item whether it aged since, under a rule that has done the same before."""
    aged = f.unix_micros("deadline") > to_micros(routine.since)
    seen = f.array(*map(f.lit, sorted(routine.acts))).cast("array<string>")
    return aged & (f.size("rules") > 0) & (f.size(f.array_except(_acts(), seen)) == 0)
