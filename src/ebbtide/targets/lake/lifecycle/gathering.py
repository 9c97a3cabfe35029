"""
Gathering judged rows: what many versions of a stretch of keys have in common leaves the executor once.

A commit that changes one key rewrites a whole range, so a history holds the same (key, address) pairs many
times over. Rows are kept small while they are gathered: instead of its verdict each carries the number of a
*case* and that of a holder. Rows that agree in all but the holder are one, with the first of their holders
in the order of their names, so that what leaves does not depend on what was gathered where.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.core.decision import HoldReason
from ebbtide.core.instant import MICROSECONDS_A_DAY, NEVER, to_micros

NEVER_MICROS = to_micros(NEVER)
_MAX_DAYS = NEVER_MICROS // MICROSECONDS_A_DAY
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_ROWS = pa.schema(
    [
        ("world", pa.int32()),
        ("hash", pa.int64()),
        ("address", pa.string()),
        ("key", pa.string()),
        ("created", _TIMESTAMP),
        ("size", pa.int64()),
        ("touched", pa.bool_()),
        ("lapse", _TIMESTAMP),
        ("rules", pa.list_(pa.string())),
        ("holder", pa.string()),
        ("why", pa.string()),
    ]
)
_BATCH = 65_536


@dataclass(frozen=True)
class Case:
    """A verdict as rows refer to it: how its references are treated, whoever they are."""

    touched: bool
    days: int | None
    rules: tuple[str, ...]
    why: str


@dataclass
class Gathered:
    """The rows of one stretch of keys, from all the ranges that cover it."""

    rows: int = 0
    _world: int = -1
    _max_key: str = ""
    _tables: list[Any] = field(default_factory=list)
    _cases: dict[Case, int] = field(default_factory=dict)
    _holders: dict[str, int] = field(default_factory=dict)

    def is_apart(self, world: int, min_key: str) -> bool:
        """Tell whether a range shares no keys with what was gathered so far."""
        return bool(self._tables) and (world != self._world or min_key > self._max_key)

    def reach(self, world: int, max_key: str) -> None:
        """Note how far the gathered ranges go."""
        self._max_key = max(self._max_key, max_key) if world == self._world else max_key
        self._world = world

    def add(self, world: int, part: Any, case: Case, holder: str) -> None:
        """Add the rows of a segment, all of one case and with one holder."""
        if not part.num_rows:
            return
        self._world = world
        codes = np.full(part.num_rows, _number(self._cases, case), dtype=np.int32)
        doubtful = np.asarray(part.column("doubtful"))
        if doubtful.any():
            spelling = replace(case, days=None, why=str(HoldReason.SPELLING))
            codes[doubtful] = _number(self._cases, spelling)
        holders = np.full(part.num_rows, _number(self._holders, holder), dtype=np.int32)
        rows = part.drop_columns(["doubtful"])
        self._tables.append(
            rows.append_column("case", pa.array(codes)).append_column("holder", pa.array(holders))
        )
        self.rows += part.num_rows

    def flush(self) -> Iterator[Any]:
        """Hand on what was gathered, each distinct row once."""
        if not self._tables:
            return
        columns = ["hash", "key", "address", "created", "size", "case"]
        names = sorted(self._holders)
        places = np.argsort(np.argsort(np.array(list(self._holders), dtype=object))).astype(np.int32)
        together = pa.concat_tables(self._tables).select([*columns, "holder"])
        ordered = pa.array(places[np.asarray(together.column("holder"))])
        together = together.set_column(len(columns), "holder", ordered)
        if len(self._tables) > len(self._cases):
            grouped = together.group_by(columns, use_threads=False).aggregate([("holder", "min")])
            together = grouped.rename_columns({"holder_min": "holder"})
        for batch in together.combine_chunks().to_batches(max_chunksize=_BATCH):
            yield self._expanded(batch, names)
        self.rows, self._max_key = 0, ""
        self._tables, self._cases, self._holders = [], {}, {}

    def _expanded(self, batch: Any, holders: list[str]) -> Any:
        codes = batch.column("case")
        numbers = np.asarray(codes)
        lapse = lapse_micros(batch.column("created"), np.array([_days(c) for c in self._cases])[numbers])
        columns = {
            "world": pa.repeat(pa.scalar(self._world, pa.int32()), batch.num_rows),
            "hash": batch.column("hash"),
            "address": batch.column("address"),
            "key": batch.column("key"),
            "created": batch.column("created"),
            "size": batch.column("size"),
            "touched": pa.array([c.touched for c in self._cases]).take(codes),
            "lapse": pa.array(lapse, _TIMESTAMP),
            "rules": pa.array([c.rules for c in self._cases], pa.list_(pa.string())).take(codes),
            "holder": pa.array(holders, pa.string()).take(batch.column("holder")),
            "why": pa.array([c.why for c in self._cases], pa.string()).take(codes),
        }
        return pa.RecordBatch.from_arrays([columns[name] for name in _ROWS.names], schema=_ROWS)


_Known = TypeVar("_Known", bound=Hashable)


def _number(known: dict[_Known, int], value: _Known) -> int:
    """Give a value its number, a new one if it is new."""
    return known.setdefault(value, len(known))


def _days(case: Case) -> int:
    return _MAX_DAYS + 1 if case.days is None else min(case.days, _MAX_DAYS + 1)


def lapse_micros(created: Any, days: Any) -> Any:
    """Give each row's lapse: the next midnight after it was written, plus its days; too many are never."""
    micros = np.asarray(pc.cast(created, pa.int64()))
    midnights = -(-micros // MICROSECONDS_A_DAY)
    lapse = np.minimum((midnights + days) * MICROSECONDS_A_DAY, NEVER_MICROS)
    return np.where(days > _MAX_DAYS, NEVER_MICROS, lapse)
