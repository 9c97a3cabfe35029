"""Counting what the breaker compares: parts of a target, what is due of each, and what of that is routine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as f

from ebbtide.core.breaker import ROUTINE, SHARES, Routine, Share
from ebbtide.core.decision import MOVED
from ebbtide.core.errors import EbbtideError
from ebbtide.core.instant import to_micros
from ebbtide.core.manifest import Manifest
from ebbtide.engine.layout import run_folder
from ebbtide.state.runs import Ledger, RunState


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
