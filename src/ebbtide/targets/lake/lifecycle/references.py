"""Judging references: what ranges hold is judged on the executors, as Arrow batches, each range once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from ebbtide.engine.tables.contracts import REFERENCES
from ebbtide.targets.lake.catalog.model import RangeInfo
from ebbtide.targets.lake.lifecycle.gathering import Case, Gathered
from ebbtide.targets.lake.lifecycle.segments import Segment, Verdict, cut, hold_reason, holder_text, judge
from ebbtide.targets.lake.metadata.affected import is_affected
from ebbtide.targets.lake.metadata.ranges import ranges_with_ties
from ebbtide.targets.lake.metadata.reference_files import ReferenceFiles
from ebbtide.targets.lake.metadata.ties import Tie
from ebbtide.targets.lake.metadata.world import World
from ebbtide.targets.repository.policy import Referrer

MOST_BUFFERED = 2_000_000
"""Rows that one task gathers before it hands them on."""


@dataclass(frozen=True)
class _Judge:
    """What an executor needs of a world: no commits, no history."""

    files: ReferenceFiles
    prefixes: tuple[str, ...]
    rule_ids: tuple[str, ...]


def references(
    ranges: DataFrame,
    worlds: Mapping[int, World],
    *,
    among: Path | None = None,
) -> DataFrame:
    """
    Judge every key of every range, or of the addresses `among` a file of affected ones.

    A range is checked against its name and count when it is decoded; one that fails stops the job.
    """
    judges = {
        number: _Judge(
            world.files,
            tuple(rule.prefix for rule in world.policy.enabled),
            tuple(rule.id for rule in world.policy.enabled),
        )
        for number, world in worlds.items()
    }
    order = ("world", "min_key", "folder", "range_id")
    cores = ranges.sparkSession.sparkContext.defaultParallelism
    tied = ranges_with_ties(ranges)
    # Versions of one stretch of keys meet in one task, one after the other: what they share is emitted once.
    # Where only a few rows are looked for, finding out how to cut the ranges so would take longer than that.
    spread = tied.repartition(cores, "range_id") if among else tied.repartitionByRange(4 * cores, *order)
    return spread.sortWithinPartitions(*order).mapInArrow(_RangeReader(judges, among), REFERENCES.schema)


@dataclass
class _RangeReader:
    """Reads ranges on an executor and emits their references."""

    judges: Mapping[int, _Judge]
    among: Path | None

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        gathered = Gathered()
        for batch in batches:
            for row in batch.to_pylist():
                info = RangeInfo(row["range_id"], row["min_key"], row["max_key"], row["count"])
                ties = [Tie(Referrer(t["referrer"]), t["name"], tuple(t["days"])) for t in row["ties"]]
                if gathered.is_apart(row["world"], info.min_key) or gathered.rows > MOST_BUFFERED:
                    yield from gathered.flush()
                self._read(gathered, row["world"], row["folder"], info, ties)
        yield from gathered.flush()

    def _read(
        self, gathered: Gathered, world: int, folder: str, info: RangeInfo, ties: Sequence[Tie]
    ) -> None:
        judge_of = self.judges[world]
        chosen = None
        if self.among is not None:
            chosen = is_affected(self.among, world, judge_of.files.hashes(folder, info))
            if not chosen.any():
                return
        table = judge_of.files.rows(folder, info)
        for segment in cut(_Keys(table.column("key").combine_chunks()), judge_of.prefixes):
            verdict = judge(segment.matched, ties)
            part = table.slice(segment.start, segment.stop - segment.start)
            if chosen is not None:
                part = part.filter(pa.array(chosen[segment.start : segment.stop]))
            gathered.add(world, part, _case(judge_of, segment, verdict), holder_text(verdict.holder))
        gathered.reach(world, info.max_key)


def _case(judged: _Judge, segment: Segment, verdict: Verdict) -> Case:
    return Case(
        touched=verdict.touched,
        days=verdict.days,
        rules=tuple(judged.rule_ids[i] for i in verdict.rules),
        why=str(hold_reason(verdict, segment.matched)),
    )


class _Keys(Sequence[str]):
    """An Arrow array of keys as a sequence, for bisection: only the probed keys become Python strings."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, index: Any) -> Any:
        return self._array[index].as_py()
