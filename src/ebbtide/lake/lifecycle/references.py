"""Reading references: ranges are decoded, checked and judged on the executors, as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from ebbtide.errors import MetadataError
from ebbtide.lake.catalog.model import RangeInfo
from ebbtide.lake.catalog.ranges import read_range
from ebbtide.lake.lifecycle.commits import Tie
from ebbtide.lake.lifecycle.gathering import Case, Gathered
from ebbtide.lake.lifecycle.ranges import ranges_with_ties
from ebbtide.lake.lifecycle.segments import Segment, Verdict, cut, hold_reason, holder_text, judge
from ebbtide.lake.lifecycle.world import World
from ebbtide.rules.instant import to_micros
from ebbtide.rules.lake_policy import Referrer
from ebbtide.store.address import canonical_column
from ebbtide.store.base import StoreSpec
from ebbtide.store.opening import open_store
from ebbtide.tables.contracts import REFERENCES
from ebbtide.tables.digest import address_hash

_COLUMNS = ("key", "address", "created", "size")
MOST_BUFFERED = 2_000_000
"""Rows that one task gathers before it hands them on."""


class Side(StrEnum):
    """Which references a pass wants."""

    TOUCHED = "touched"
    """Those that a rule matches: the candidates."""
    UNTOUCHED = "untouched"
    """Those that no rule matches: they keep whatever they name."""
    BOTH = "both"


@dataclass(frozen=True)
class _Judge:
    """What an executor needs of a world: no commits, no history."""

    store: StoreSpec
    namespace: str | None
    prefixes: tuple[str, ...]
    rule_ids: tuple[str, ...]
    now: int


@dataclass(frozen=True)
class Wanted:
    """Narrows a pass to a few items, and names everyone who reaches them."""

    keys: frozenset[str] = frozenset()
    addresses: frozenset[str] = frozenset()


def references(
    ranges: DataFrame, worlds: Mapping[int, World], side: Side, wanted: Wanted | None = None
) -> DataFrame:
    """
    Read every range that can hold references of the wanted side, once, and judge its keys.

    Ranges that cannot (by their first and last key) are not opened; all others are checked against their
    names and counts, and one that fails the check stops the job.
    """
    judges = {
        number: _Judge(
            world.store,
            world.namespace,
            tuple(rule.prefix for rule in world.policy.enabled),
            tuple(rule.id for rule in world.policy.enabled),
            to_micros(world.now),
        )
        for number, world in worlds.items()
    }
    order = ("world", "min_key", "folder", "range_id")
    tasks = 4 * ranges.sparkSession.sparkContext.defaultParallelism
    # Versions of one stretch of keys meet in one task, one after the other: what they share is emitted once.
    spread = ranges_with_ties(ranges).repartitionByRange(tasks, *order).sortWithinPartitions(*order)
    rows = spread.mapInArrow(_RangeReader(judges, side, wanted), REFERENCES.schema)
    return rows.withColumn("hash", address_hash("address"))


@dataclass
class _RangeReader:
    """Reads ranges on an executor and emits the references of one side."""

    judges: Mapping[int, _Judge]
    side: Side
    wanted: Wanted | None

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
        if not self._may_want(info, ties, judge_of.prefixes):
            return
        table = read_range(open_store(judge_of.store), folder, info, _COLUMNS).combine_chunks()
        keys = table.column("key").combine_chunks() if table.num_rows else pa.array([], pa.string())
        _check_sorted(info, keys)
        table = _with_canonical_addresses(table, judge_of.namespace)
        for segment in cut(_Keys(keys), judge_of.prefixes):
            verdict = judge(segment.matched, ties)
            if self._wants(verdict):
                part = self._narrowed(table.slice(segment.start, segment.stop - segment.start))
                case = self._case(judge_of, segment, verdict, ties)
                holder = case.named or holder_text(verdict.holder)
                gathered.add(world, judge_of.now, part, case, holder)
        gathered.reach(world, info.max_key)

    def _case(self, judged: _Judge, segment: Segment, verdict: Verdict, ties: Sequence[Tie]) -> Case:
        everyone = ", ".join(sorted({holder_text(tie) for tie in ties})) if self.wanted else ""
        return Case(
            days=verdict.days,
            rules=tuple(judged.rule_ids[i] for i in verdict.rules),
            why=str(hold_reason(verdict, segment.matched)),
            referrer=str(verdict.holder.referrer),
            named=everyone,
        )

    def _narrowed(self, part: Any) -> Any:
        if self.wanted is None:
            return part
        keys = pc.is_in(part.column("key"), value_set=pa.array(self.wanted.keys, pa.string()))
        addresses = pc.is_in(part.column("address"), value_set=pa.array(self.wanted.addresses, pa.string()))
        return part.filter(pc.or_(keys, addresses))

    def _wants(self, verdict: Verdict) -> bool:
        return self.side is Side.BOTH or verdict.touched == (self.side is Side.TOUCHED)

    def _may_want(self, info: RangeInfo, ties: Sequence[Tie], prefixes: Sequence[str]) -> bool:
        """Tell from the first and last key alone whether a range can hold references of this side."""
        covered = [p for i, p in enumerate(prefixes) if any(tie.days[i] is not None for tie in ties)]
        if self.side is Side.TOUCHED:
            return any(info.min_key[: len(p)] <= p <= info.max_key for p in covered)
        if self.side is Side.UNTOUCHED:
            # Sorted keys between two that share a prefix share it too: then every reference is touched.
            return not any(info.min_key.startswith(p) and info.max_key.startswith(p) for p in covered)
        return True


class _Keys(Sequence[str]):
    """An Arrow array of keys as a sequence, for bisection: only the probed keys become Python strings."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, index: Any) -> Any:
        return self._array[index].as_py()


def _check_sorted(info: RangeInfo, keys: Any) -> None:
    # Bisection on keys that are not sorted would give rules to keys that they do not match.
    # A staged range may hold a key twice: once from a commit under way, once from after it began.
    if len(keys) > 1 and not pc.all(pc.less_equal(keys[:-1], keys[1:])).as_py():
        raise MetadataError(f"range {info.id} is not sorted by key", fix="restore it from a backup")


def _with_canonical_addresses(table: Any, namespace: str | None) -> Any:
    """Give addresses their canonical form and mark those that may name another object than that form."""
    raw = table.column("address")
    address = canonical_column(raw, namespace)
    doubtful = np.zeros(table.num_rows, dtype=bool)
    if namespace is not None:
        for i in np.flatnonzero(np.asarray(pc.not_equal(raw.combine_chunks(), address))):
            # A full URL that ends in the very same key names the same object; any other spelling may not.
            doubtful[i] = not raw[i].as_py().endswith("/" + address[i].as_py())
    return table.set_column(1, "address", address).append_column("doubtful", pa.array(doubtful))
