"""
Lifecycle, in the order of the steps of seed 000.

1. `policy_table`, `current_rules`: the dates of all runs, and up to which date runs have deleted
2. `potential_commits`: commits that may hold something that no earlier run could delete
3. `references`: the references in every range, with the time at which each lapses
4. `reference_verdicts` in address_verdicts.py: until when each address is held, by all its references

Steps 3 and 4 do not depend on the time: they tell *until when* an address is held and by what, not whether it
is. The result is a pure function of the ranges that name the address, their referrers and the rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from ebbtide.engine.tables.contracts import REFERENCES
from ebbtide.targets.repository.affected import is_affected
from ebbtide.targets.repository.model import Commit, RangeInfo
from ebbtide.targets.repository.policy import PolicyRun, ReferrerKind
from ebbtide.targets.repository.range_cache import RangeCache
from ebbtide.targets.repository.ranges import ranges_with_referrers
from ebbtide.targets.repository.referrers import Referrer, reached_by
from ebbtide.targets.repository.segments import (
    Lifetime,
    ReferenceBuffer,
    Segment,
    Treatment,
    cut,
    hold_reason,
    holder_text,
    lifetime_of,
)
from ebbtide.targets.repository.world import World

_NEVER_POTENTIAL = datetime.max.replace(tzinfo=UTC)
_FROM_THE_BEGINNING = datetime.min.replace(tzinfo=UTC)
MOST_BUFFERED = 2_000_000
"""How many rows a task buffers before it emits them."""


@dataclass(frozen=True, order=True)
class PolicyRow:
    """A row of the policy table; an empty branch means every branch that is not named."""

    run_id: int
    rule_id: str
    prefix: str
    branch: str
    date_to_be_deleted: date


@dataclass(frozen=True)
class CurrentRule:
    """Up to which date this run deletes for a prefix and branch, and up to which an earlier run has."""

    prefix: str
    branch: str
    date_to_be_deleted: date
    last_deleted: date | None


def policy_table(runs: Iterable[PolicyRun]) -> list[PolicyRow]:
    """Step 1. Return, for every run, the date up to which each rule deletes."""
    return sorted(
        PolicyRow(run.run_id, row.rule_id, row.prefix, row.branch, row.date_to_be_deleted)
        for run in runs
        for row in run.policy.dates(run.now)
    )


def current_rules(table: Iterable[PolicyRow], run_id: int, succeeded: Iterable[int]) -> list[CurrentRule]:
    """
    Step 1. Return the dates of this run by prefix and branch, and the last date of a run that succeeded.

    Of two rules for one prefix and branch the later date counts, which deletes more.
    """
    rows = list(table)
    done = set(succeeded) - {run_id}
    current: dict[tuple[str, str], date] = {}
    last: dict[tuple[str, str], date] = {}
    for row in rows:
        place = (row.prefix, row.branch)
        if row.run_id == run_id:
            current[place] = max(current.get(place, date.min), row.date_to_be_deleted)
        elif row.run_id in done:
            last[place] = max(last.get(place, date.min), row.date_to_be_deleted)
    return [
        CurrentRule(prefix, branch, day, last.get((prefix, branch)))
        for (prefix, branch), day in sorted(current.items())
    ]


@dataclass(frozen=True)
class PotentialCommit:
    """A commit that may hold addresses which no earlier run could delete, with the branches that reach it."""

    commit_id: str
    branches: tuple[str, ...]


def potential_commits(
    commits: Mapping[str, Commit], branches: Mapping[str, str], rules: Sequence[CurrentRule]
) -> list[PotentialCommit]:
    """
    Step 2. Return the commits after the latest limit of the branches that reach them.

    An object is deleted only when no branch keeps it, so the latest limit counts for a commit that several
    branches reach (the seed's intersection). A commit that no branch reaches takes the default.
    """
    limits = _branch_limits(rules)
    names = reached_by(commits, ((head, name, name) for name, head in branches.items()))
    found = []
    for commit_id, commit in sorted(commits.items()):
        reaching = tuple(sorted(names[commit_id]))
        limit = max(_limit_of(name, limits) for name in reaching or ("",))
        if commit.created > limit:
            found.append(PotentialCommit(commit_id, reaching))
    return found


def _branch_limits(rules: Sequence[CurrentRule]) -> dict[str, datetime]:
    """Return the earliest last deleted date of each named branch, and of all others as ""."""
    limits: dict[str, datetime] = {}
    for rule in rules:
        limit = _midnight(rule.last_deleted)
        limits[rule.branch] = min(limits.get(rule.branch, _NEVER_POTENTIAL), limit)
    return limits


def _limit_of(branch: str, limits: Mapping[str, datetime]) -> datetime:
    # The default row concerns every branch, so a named branch is limited by the earlier of the two.
    return min(limits.get(branch, _NEVER_POTENTIAL), limits.get("", _NEVER_POTENTIAL))


def _midnight(day: date | None) -> datetime:
    return _FROM_THE_BEGINNING if day is None else datetime.combine(day, time.min, UTC)


@dataclass(frozen=True)
class _RangeRules:
    """What an executor needs of a world: no commits, no history."""

    files: RangeCache
    prefixes: tuple[str, ...]
    rule_ids: tuple[str, ...]


def references(
    ranges: DataFrame,
    worlds: Mapping[int, World],
    *,
    among: Path | None = None,
    few: bool = False,
) -> DataFrame:
    """
    Step 3, by range. Return every key of every range, or those of affected addresses, with its lapse.

    A range is checked when it is decoded; one that is damaged stops the job.
    """
    rules = {
        number: _RangeRules(
            world.files,
            tuple(rule.prefix for rule in world.policy.enabled),
            tuple(rule.id for rule in world.policy.enabled),
        )
        for number, world in worlds.items()
    }
    order = ("world", "min_key", "folder", "range_id")
    cores = ranges.sparkSession.sparkContext.defaultParallelism
    grouped = ranges_with_referrers(ranges)
    # Versions of the same keys meet in one task, one after the other, so that common rows are emitted once.
    # Where only a few rows are wanted, partitioning by key would take longer than it saves.
    tasks = 1 if few else 4 * cores
    spread = grouped.repartition(cores, "range_id") if among else grouped.repartitionByRange(tasks, *order)
    return spread.sortWithinPartitions(*order).mapInArrow(_RangeReader(rules, among), REFERENCES.schema)


@dataclass
class _RangeReader:
    """Reads ranges on an executor and emits their references."""

    rules: Mapping[int, _RangeRules]
    among: Path | None

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        buffer = ReferenceBuffer()
        for batch in batches:
            for row in batch.to_pylist():
                info = RangeInfo(row["range_id"], row["min_key"], row["max_key"], row["count"])
                referrers = [
                    Referrer(ReferrerKind(t["referrer"]), t["name"], tuple(t["days"]))
                    for t in row["referrers"]
                ]
                if buffer.is_apart(row["world"], info.min_key) or buffer.rows > MOST_BUFFERED:
                    yield from buffer.flush()
                self._read(buffer, row["world"], row["folder"], info, referrers)
        yield from buffer.flush()

    def _read(
        self, buffer: ReferenceBuffer, world: int, folder: str, info: RangeInfo, referrers: Sequence[Referrer]
    ) -> None:
        rules = self.rules[world]
        chosen = None
        if self.among is not None:
            chosen = is_affected(self.among, world, rules.files.hashes(folder, info))
            if not chosen.any():
                return
        table = rules.files.rows(folder, info)
        for segment in cut(_Keys(table.column("key").combine_chunks()), rules.prefixes):
            lifetime = lifetime_of(segment.matched, referrers)
            part = table.slice(segment.start, segment.stop - segment.start)
            if chosen is not None:
                part = part.filter(pa.array(chosen[segment.start : segment.stop]))
            buffer.add(world, part, _treatment(rules, segment, lifetime), holder_text(lifetime.holder))
        buffer.reach(world, info.max_key)


def _treatment(rules: _RangeRules, segment: Segment, lifetime: Lifetime) -> Treatment:
    return Treatment(
        touched=lifetime.touched,
        days=lifetime.days,
        rules=tuple(rules.rule_ids[i] for i in lifetime.rules),
        why=str(hold_reason(lifetime, segment.matched)),
    )


class _Keys(Sequence[str]):
    """An Arrow array of keys as a sequence, for bisection: only the probed keys become Python strings."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, index: Any) -> Any:
        return self._array[index].as_py()
