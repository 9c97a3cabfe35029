"""
Segments: the policy is evaluated for slices of a range, not row by row.

The keys of a range are sorted, so the keys that a prefix matches are one slice of it, found by bisection. The
prefixes of all rules cut a range into a few *segments* in which every key matches the same rules. The policy
is evaluated once per segment, by the same pure functions that define its meaning.

A commit that changes one key rewrites a whole range, so a history holds the same (key, address) pairs many
times. A `ReferenceBuffer` emits each of them once. Its rows are small: instead of its lifetime each carries
the number of a *treatment* and of a holder. Rows that differ only in the holder become one, with the first
holder by name, so that the result does not depend on which rows met in which task.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.core.decision import HoldReason
from ebbtide.core.instant import MICROSECONDS_A_DAY, NEVER, to_micros
from ebbtide.targets.repository.policy import ReferrerKind, class_days
from ebbtide.targets.repository.referrers import Referrer

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
_Known = TypeVar("_Known", bound=Hashable)


@dataclass(frozen=True)
class Segment:
    """The rows from `start` up to `stop`; the same rules match all of them."""

    start: int
    stop: int
    matched: tuple[int, ...]


@dataclass(frozen=True)
class Lifetime:
    """How long the rules keep the keys of a segment, given all referrers of the range."""

    touched: bool
    """A rule matches at least one of the references."""
    days: int | None
    """How long the longest-lived reference lives; None keeps forever."""
    holder: Referrer
    """The referrer of the reference that lives longest."""
    rules: tuple[int, ...]
    """The rules that cover at least one of the references."""


def cut(keys: Sequence[str], prefixes: Sequence[str]) -> list[Segment]:
    """Cut sorted keys into segments by the prefixes that match them."""
    slices = [prefix_slice(keys, prefix) for prefix in prefixes]
    edges = sorted({0, len(keys), *(edge for lo, hi in slices for edge in (lo, hi))})
    return [
        Segment(a, b, tuple(i for i, (lo, hi) in enumerate(slices) if lo <= a and b <= hi))
        for a, b in pairwise(edges)
    ]


def prefix_slice(keys: Sequence[str], prefix: str) -> tuple[int, int]:
    """Return the slice of sorted keys that start with a prefix."""
    size = len(prefix)

    def head(key: str) -> str:
        return key[:size]

    return bisect_left(keys, prefix, key=head), bisect_right(keys, prefix, key=head)


def lifetime_of(matched: Sequence[int], referrers: Sequence[Referrer]) -> Lifetime:
    """Evaluate the rules that match a segment for all referrers: the latest lapse counts."""
    lives = [class_days(referrer.days, matched) for referrer in referrers]
    rules = tuple(i for i in matched if any(referrer.days[i] is not None for referrer in referrers))
    for_ever = [referrer for referrer, days in zip(referrers, lives, strict=True) if days is None]
    if for_ever:
        return Lifetime(bool(rules), None, for_ever[0], rules)
    longest = max(days for days in lives if days is not None)
    holder = next(referrer for referrer, days in zip(referrers, lives, strict=True) if days == longest)
    return Lifetime(True, longest, holder, rules)


def hold_reason(lifetime: Lifetime, matched: Sequence[int]) -> HoldReason:
    """Return why a reference with this lifetime holds its item."""
    if lifetime.days is not None:
        return HoldReason.NOT_YET
    if lifetime.holder.kind is ReferrerKind.TAG:
        return HoldReason.TAG
    if lifetime.holder.kind is ReferrerKind.DANGLING:
        return HoldReason.DANGLING
    if lifetime.holder.kind is ReferrerKind.STAGING:
        return HoldReason.STAGED
    return HoldReason.BRANCH if matched else HoldReason.OTHER_PATH


def holder_text(referrer: Referrer) -> str:
    """Return a referrer in words; messages put it after a key."""
    words = {
        ReferrerKind.BRANCH: "on branch",
        ReferrerKind.STAGING: "staged on branch",
        ReferrerKind.TAG: "under tag",
        ReferrerKind.DANGLING: "in dangling commit",
    }
    return f"{words[referrer.kind]} {referrer.name}"


@dataclass(frozen=True)
class Treatment:
    """A lifetime without its holder: rows refer to it by a number."""

    touched: bool
    days: int | None
    rules: tuple[str, ...]
    why: str


@dataclass
class ReferenceBuffer:
    """The references of overlapping ranges; equal ones are emitted once."""

    rows: int = 0
    _world: int = -1
    _max_key: str = ""
    _tables: list[Any] = field(default_factory=list)
    _treatments: dict[Treatment, int] = field(default_factory=dict)
    _holders: dict[str, int] = field(default_factory=dict)

    def is_apart(self, world: int, min_key: str) -> bool:
        """Return True if a range cannot share keys with the ranges in the buffer."""
        return bool(self._tables) and (world != self._world or min_key > self._max_key)

    def reach(self, world: int, max_key: str) -> None:
        """Record the last key of a range that was added."""
        self._max_key = max(self._max_key, max_key) if world == self._world else max_key
        self._world = world

    def add(self, world: int, part: Any, treatment: Treatment, holder: str) -> None:
        """Add the rows of a segment, which have one treatment and one holder."""
        if not part.num_rows:
            return
        self._world = world
        codes = np.full(part.num_rows, _number(self._treatments, treatment), dtype=np.int32)
        doubtful = np.asarray(part.column("doubtful"))
        if doubtful.any():
            spelling = replace(treatment, days=None, why=str(HoldReason.SPELLING))
            codes[doubtful] = _number(self._treatments, spelling)
        holders = np.full(part.num_rows, _number(self._holders, holder), dtype=np.int32)
        rows = part.drop_columns(["doubtful"])
        self._tables.append(
            rows.append_column("treatment", pa.array(codes)).append_column("holder", pa.array(holders))
        )
        self.rows += part.num_rows

    def flush(self) -> Iterator[Any]:
        """Emit each distinct row of the buffer once, and empty it."""
        if not self._tables:
            return
        columns = ["hash", "key", "address", "created", "size", "treatment"]
        names = sorted(self._holders)
        places = np.argsort(np.argsort(np.array(list(self._holders), dtype=object))).astype(np.int32)
        united = pa.concat_tables(self._tables).select([*columns, "holder"])
        ordered = pa.array(places[np.asarray(united.column("holder"))])
        united = united.set_column(len(columns), "holder", ordered)
        if len(self._tables) > len(self._treatments):
            grouped = united.group_by(columns, use_threads=False).aggregate([("holder", "min")])
            united = grouped.rename_columns({"holder_min": "holder"})
        for batch in united.combine_chunks().to_batches(max_chunksize=_BATCH):
            yield self._expanded(batch, names)
        self.rows, self._max_key = 0, ""
        self._tables, self._treatments, self._holders = [], {}, {}

    def _expanded(self, batch: Any, holders: list[str]) -> Any:
        codes = batch.column("treatment")
        numbers = np.asarray(codes)
        lapse = lapse_micros(batch.column("created"), np.array([_days(c) for c in self._treatments])[numbers])
        columns = {
            "world": pa.repeat(pa.scalar(self._world, pa.int32()), batch.num_rows),
            "hash": batch.column("hash"),
            "address": batch.column("address"),
            "key": batch.column("key"),
            "created": batch.column("created"),
            "size": batch.column("size"),
            "touched": pa.array([c.touched for c in self._treatments]).take(codes),
            "lapse": pa.array(lapse, _TIMESTAMP),
            "rules": pa.array([c.rules for c in self._treatments], pa.list_(pa.string())).take(codes),
            "holder": pa.array(holders, pa.string()).take(batch.column("holder")),
            "why": pa.array([c.why for c in self._treatments], pa.string()).take(codes),
        }
        return pa.RecordBatch.from_arrays([columns[name] for name in _ROWS.names], schema=_ROWS)


def _number(known: dict[_Known, int], value: _Known) -> int:
    """Return the number of a value; a new value gets the next number."""
    return known.setdefault(value, len(known))


def _days(treatment: Treatment) -> int:
    return _MAX_DAYS + 1 if treatment.days is None else min(treatment.days, _MAX_DAYS + 1)


def lapse_micros(created: Any, days: Any) -> Any:
    """Return when each row lapses: the next midnight after it was written, plus its days."""
    micros = np.asarray(pc.cast(created, pa.int64()))
    midnights = -(-micros // MICROSECONDS_A_DAY)
    lapse = np.minimum((midnights + days) * MICROSECONDS_A_DAY, NEVER_MICROS)
    return np.where(days > _MAX_DAYS, NEVER_MICROS, lapse)
