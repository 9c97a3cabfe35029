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
from ebbtide.lake.lifecycle.ranges import ranges_with_ties
from ebbtide.lake.lifecycle.segments import Segment, Verdict, cut, hold_reason, holder_text, judge
from ebbtide.lake.lifecycle.world import World
from ebbtide.plan.decision import HoldReason
from ebbtide.rules.instant import MICROSECONDS_A_DAY, NEVER, to_micros
from ebbtide.rules.lake_policy import Referrer
from ebbtide.store.address import canonical_column
from ebbtide.store.base import StoreSpec
from ebbtide.store.opening import open_store
from ebbtide.tables.contracts import REFERENCES
from ebbtide.tables.digest import address_hash

NEVER_MICROS = to_micros(NEVER)
_COLUMNS = ("key", "address", "created", "size")
_MAX_DAYS = NEVER_MICROS // MICROSECONDS_A_DAY
_STRINGS = pa.list_(pa.string())
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_ROWS = pa.schema(
    [
        ("world", pa.int32()),
        ("address", pa.string()),
        ("key", pa.string()),
        ("created", _TIMESTAMP),
        ("size", pa.int64()),
        ("lapse", _TIMESTAMP),
        ("lapsed", pa.bool_()),
        ("rules", _STRINGS),
        ("branches", _STRINGS),
        ("holder", pa.string()),
        ("why", pa.string()),
    ]
)


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


def references(ranges: DataFrame, worlds: Mapping[int, World], side: Side) -> DataFrame:
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
    grouped = ranges_with_ties(ranges)
    cores = ranges.sparkSession.sparkContext.defaultParallelism
    spread = grouped.repartition(4 * cores, "range_id")
    rows = spread.mapInArrow(_RangeReader(judges, side), REFERENCES.schema)
    return rows.withColumn("hash", address_hash("address"))


class _RangeReader:
    """Reads ranges on an executor and emits the references of one side."""

    def __init__(self, judges: Mapping[int, _Judge], side: Side) -> None:
        self._judges = judges
        self._side = side

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            for row in batch.to_pylist():
                info = RangeInfo(row["range_id"], row["min_key"], row["max_key"], row["count"])
                ties = [Tie(Referrer(t["referrer"]), t["name"], tuple(t["days"])) for t in row["ties"]]
                yield from self._read(row["world"], row["folder"], info, ties)

    def _read(self, world: int, folder: str, info: RangeInfo, ties: Sequence[Tie]) -> Iterator[Any]:
        judge_of = self._judges[world]
        if not self._may_want(info, ties, judge_of.prefixes):
            return
        table = read_range(open_store(judge_of.store), folder, info, _COLUMNS).combine_chunks()
        keys = table.column("key").combine_chunks() if table.num_rows else pa.array([], pa.string())
        _check_sorted(info, keys)
        table = _with_canonical_addresses(table, judge_of.namespace)
        for segment in cut(_Keys(keys), judge_of.prefixes):
            verdict = judge(segment.matched, ties)
            if self._wants(verdict):
                yield _rows(world, table, segment, verdict, ties, judge_of)

    def _wants(self, verdict: Verdict) -> bool:
        return self._side is Side.BOTH or verdict.touched == (self._side is Side.TOUCHED)

    def _may_want(self, info: RangeInfo, ties: Sequence[Tie], prefixes: Sequence[str]) -> bool:
        """Tell from the first and last key alone whether a range can hold references of this side."""
        covered = [any(tie.days[i] is not None for tie in ties) for i in range(len(prefixes))]
        meets = [
            info.min_key[: len(p)] <= p <= info.max_key for p, c in zip(prefixes, covered, strict=True) if c
        ]
        if self._side is Side.TOUCHED:
            return any(meets)
        if self._side is Side.UNTOUCHED:
            # Sorted keys between two that share a prefix share it too: then every reference is touched.
            return not any(
                info.min_key.startswith(p) and info.max_key.startswith(p)
                for p, c in zip(prefixes, covered, strict=True)
                if c
            )
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
    if len(keys) > 1 and not pc.all(pc.less(keys[:-1], keys[1:])).as_py():
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


def _rows(
    world: int, table: Any, segment: Segment, verdict: Verdict, ties: Sequence[Tie], judged: _Judge
) -> Any:
    count = segment.stop - segment.start
    part = table.slice(segment.start, count)
    lapse = lapse_micros(part.column("created"), verdict.days)
    branches = sorted({holder_text(tie) for tie in ties})
    why = pa.repeat(str(hold_reason(verdict, segment.matched)), count)
    doubtful = np.asarray(part.column("doubtful"))
    if doubtful.any():
        lapse = np.where(doubtful, NEVER_MICROS, lapse)
        why = pc.if_else(pa.array(doubtful), str(HoldReason.SPELLING), why)
    columns = {
        "world": pa.repeat(pa.scalar(world, pa.int32()), count),
        "address": part.column("address").combine_chunks(),
        "key": part.column("key").combine_chunks(),
        "created": part.column("created").combine_chunks(),
        "size": part.column("size").combine_chunks(),
        "lapse": pa.array(lapse, _TIMESTAMP),
        "lapsed": pa.array(lapse <= judged.now),
        "rules": _constant_list([judged.rule_ids[i] for i in verdict.rules], count),
        "branches": _constant_list(branches, count),
        "holder": pa.repeat(holder_text(verdict.holder), count),
        "why": why,
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in _ROWS.names], schema=_ROWS)


def lapse_micros(created: Any, days: int | None) -> Any:
    """Give each row's lapse: the next midnight after it was written, plus the days; never stays never."""
    if days is None or days > _MAX_DAYS:
        return np.full(len(created), NEVER_MICROS, dtype=np.int64)
    micros = np.asarray(pc.cast(created, pa.int64()))
    midnights = -(-micros // MICROSECONDS_A_DAY)
    return np.minimum((midnights + days) * MICROSECONDS_A_DAY, NEVER_MICROS)


def _constant_list(values: Sequence[str], count: int) -> Any:
    offsets = pa.array(
        np.arange(0, (count + 1) * len(values), max(1, len(values)), dtype=np.int32)[: count + 1]
    )
    if not values:
        offsets = pa.array(np.zeros(count + 1, dtype=np.int32))
    flat = pa.array(np.tile(np.array(values, dtype=object), count), pa.string())
    return pa.ListArray.from_arrays(offsets, flat)
