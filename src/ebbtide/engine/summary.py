"""
The counts of a plan: objects and bytes by rule, prefix, age, action, collector, label and hold.

And what the breaker compares: the parts of a target, what is due of each, and how much of that is routine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, Window
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
_DUE, _HELD, _UNTOUCHED = "is due", "is held", "is untouched"
_KNOWN, _GOES, _ROUTINE, _ACT = "known of part ", "due of part ", "routine of part ", "act"
_AGES = (7, 30, 90, 180, 365, 730)


@dataclass(frozen=True)
class Counted:
    """What a plan consists of, as one job counted it."""

    summary: Summary
    shares: dict[str, Any]
    """The parts that the breaker compares and what is routine, as plain data for the manifest."""


def summarize(
    verdicts: DataFrame,
    now: datetime,
    known: int | None = None,
    frees: str = "true",
    parts: Sequence[Part] = (),
    routine: Routine | None = None,
) -> Counted:
    """
    Count all verdicts in one job: what is due, held and untouched, and what the due items consist of.

    `known` is the number of items of the target, if the collector counted them; `frees` selects items that
    free bytes. Each `parts` of the target is counted too, with what is due of it.
    """
    untouched = f.col("kind") == UNTOUCHED
    due = f.coalesce(~untouched & is_due(now), f.lit(False))
    own = _label(
        f.when(untouched, _UNTOUCHED).when(due, _DUE).otherwise(_HELD),
        f.when(~untouched & ~due, f.col("hold")),
    )
    every = _flagged({f"{_KNOWN}{n}": f.expr(part.where) for n, part in enumerate(parts)}, [own])
    planned = f.concat(every, _plan_labels(now, frees), *_due_shares(parts, routine))
    # An item with a value that is missing where none may be is still counted as what it is.
    at = f.when(due, f.coalesce(planned, every)).otherwise(every)
    tallies = _tally(verdicts.select(f.explode(at).alias("at"), "size"))
    return Counted(_summary(tallies, known), _shares(tallies, parts, routine))


def _plan_labels(now: datetime, frees: str) -> Column:
    return f.concat(
        _labels("rule", f.col("rules")),
        _labels("prefix", f.array(_folder(f.get("names", 0)))),
        _labels("age", f.array(_age(now).cast("string"))),
        _labels("collector", f.array("collector")),
        _labels("action", f.array("action")),
        _named_labels(),
        _labels("frees", f.array_compact(f.array(f.when(f.expr(frees), f.lit(_FREED))))),
    )


def _summary(tallies: Mapping[str, tuple[Tally, ...]], known: int | None) -> Summary:
    due, held = _total(Decision.DUE, tallies.get(_DUE, ())), _total(Decision.HELD, tallies.get(_HELD, ()))
    touched = due.objects + held.objects
    untouched = sum(tally.objects for tally in tallies.get(_UNTOUCHED, ()))
    return Summary(
        due=due,
        held=held,
        # Items that earlier runs deleted do not count, or a plan for all the rest would look small.
        known_objects=untouched + touched if known is None else max(known, touched),
        by_rule=tallies.get("rule", ()),
        by_prefix=tallies.get("prefix", ()),
        by_age=_in_order(tallies.get("age", ())),
        held_by_reason=tallies.get(_HELD, ())[:MOST_LABELS],
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


def _label(dimension: Column, label: Column | None = None) -> Column:
    named = f.lit(None).cast("string") if label is None else label
    return f.struct(dimension.alias("dimension"), named.alias("label"))


def _flagged(flags: Mapping[str, Column], others: Sequence[Column] = ()) -> Column:
    """Return an array of labels: one of each flag that is true, and others."""
    return f.array_compact(
        f.array(*(f.when(flag, _label(f.lit(name))) for name, flag in flags.items()), *others)
    )


def _labels(dimension: str, values: Column) -> Column:
    return f.transform(values, lambda v: f.struct(f.lit(dimension).alias("dimension"), v.alias("label")))


def _named_labels() -> Column:
    """Return the dimensions and labels of an item's own labels; it may have none."""
    entries = f.map_entries(f.coalesce("labels", f.expr("cast(map() AS map<string,string>)")))
    return f.transform(
        entries,
        lambda one: f.struct(
            f.concat(f.lit(_LABEL), one["key"]).alias("dimension"), one["value"].alias("label")
        ),
    )


def _tally(rows: DataFrame) -> dict[str, tuple[Tally, ...]]:
    """Count all dimensions in one job, and keep the largest labels of those that may have many."""
    counted = rows.groupBy("at.dimension", "at.label").agg(*_sums())
    largest = Window.partitionBy("dimension").orderBy(f.desc("bytes"), f.desc("objects"), "label")
    is_kept = (f.col("rank") <= MOST_LABELS) | f.col("dimension").isin(_DUE, _HELD, _UNTOUCHED, _ACT)
    found: dict[str, list[Tally]] = {}
    for row in counted.withColumn("rank", f.row_number().over(largest)).where(is_kept).toArrow().to_pylist():
        found.setdefault(row["dimension"], []).append(Tally(row["label"], row["objects"], row["bytes"]))
    return {dimension: tuple(sorted(found[dimension], key=_largest_first)) for dimension in sorted(found)}


def _largest_first(tally: Tally) -> tuple[int, int, str]:
    return -tally.bytes, -tally.objects, tally.label or ""


def _folder(path: Column) -> Column:
    """Return the first two folders of a path, or fewer if it has fewer."""
    parts = f.split(path, "/")
    folders = f.slice(parts, 1, f.least(f.size(parts) - 1, f.lit(2)))
    named = f.when(f.size(parts) == 1, f.lit("(top level)")).otherwise(
        f.concat(f.array_join(folders, "/"), f.lit("/"))
    )
    return f.coalesce(named, f.lit("(no path)"))


def _age(now: datetime) -> Column:
    """Return the number of the age bucket of an object."""
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
    """A part of a target: a noun for its items, and a Spark expression for its verdicts."""

    of: str
    where: str = "true"


def last_succeeded(root: Path, ledger: Ledger, target_uid: str, collector: str) -> Manifest | None:
    """Return the plan of the last successful run; None if there is none or it cannot be read."""
    last = ledger.last_run(target_uid, RunState.SUCCEEDED, collector)
    try:
        return run_folder(root, last).read_manifest() if last is not None else None
    except EbbtideError:
        return None


def _due_shares(parts: Sequence[Part], routine: Routine | None) -> list[Column]:
    """Return the labels of a due item by which shares of parts are counted; what is moved stays."""
    if not parts:
        return []
    # An item whose action is missing counts as one that goes.
    goes = f.coalesce(f.col("action") != MOVED, f.lit(True))
    flags = {f"{_GOES}{n}": goes & f.expr(part.where) for n, part in enumerate(parts)}
    if routine:
        usual = goes & _is_routine(routine)
        flags |= {f"{_ROUTINE}{n}": usual & f.expr(part.where) for n, part in enumerate(parts)}
    acts = f.when(goes, _labels(_ACT, _acts())).otherwise(_labels(_ACT, f.array().cast("array<string>")))
    return [_flagged(flags), acts]


def _shares(
    tallies: Mapping[str, tuple[Tally, ...]], parts: Sequence[Part], routine: Routine | None
) -> dict[str, Any]:
    """Return what each part has, what of it is due, and which rule has done what; as plain data."""
    if not parts:
        return {}

    def objects(name: str) -> int:
        return sum(tally.objects for tally in tallies.get(name, ()))

    before = routine.acts if routine else frozenset[str]()
    if not objects(_DUE):
        return {SHARES: [asdict(Share(part.of, 0, 0)) for part in parts], ROUTINE: sorted(before)}
    shares = [
        Share(part.of, objects(f"{_GOES}{n}"), objects(f"{_KNOWN}{n}"), objects(f"{_ROUTINE}{n}"))
        for n, part in enumerate(parts)
    ]
    acts = {tally.label for tally in tallies.get(_ACT, ())}
    return {SHARES: [asdict(share) for share in shares], ROUTINE: sorted(before | acts)}


def _acts() -> Column:
    """Return the pairs of action and rule of an item."""
    return f.transform("rules", lambda rule: f.concat_ws(" ", "action", rule))


def _is_routine(routine: Routine) -> Column:
    """Return True for a due item that aged since then, under rules that did the same before."""
    aged = f.unix_micros("deadline") > to_micros(routine.since)
    seen = f.array(*map(f.lit, sorted(routine.acts))).cast("array<string>")
    return aged & (f.size("rules") > 0) & (f.size(f.array_except(_acts(), seen)) == 0)
