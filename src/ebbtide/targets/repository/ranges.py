"""
The range table: every range of a repository once, with the referrers that reach it.

`range_table` reads all metaranges on executors, for a run. `reached_ranges` reads the same on the driver and
without Spark, to answer questions about a few objects.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.core.decision import HoldReason
from ebbtide.core.errors import MetadataError
from ebbtide.engine.spark.latency import is_small
from ebbtide.engine.tables.contracts import RANGES
from ebbtide.engine.tables.counted import read_rows
from ebbtide.engine.tables.row_counts import counted_rows
from ebbtide.targets.repository.model import RangeInfo
from ebbtide.targets.repository.policy import PolicyClass, ReferrerKind
from ebbtide.targets.repository.protocol import RangeDecoder
from ebbtide.targets.repository.referrers import Referrer
from ebbtide.targets.repository.terms import Term
from ebbtide.targets.repository.world import Metarange, World, latest_order, metaranges_of

_ROWS = pa.schema(
    [
        ("world", pa.int32()),
        ("folder", pa.string()),
        ("range_id", pa.string()),
        ("min_key", pa.string()),
        ("max_key", pa.string()),
        ("count", pa.int64()),
        ("referrer", pa.string()),
        ("name", pa.string()),
        ("days", pa.list_(pa.int32())),
        ("until", pa.timestamp("us", tz="UTC")),
        ("keeper", pa.string()),
        ("why", pa.string()),
        ("lapses", pa.bool_()),
    ]
)
_LISTED = ["range_id", "min_key", "max_key", "count"]
_SIDE_BY_SIDE = 16
_FEW_RANGES = 1000


def written_ranges(spark: SparkSession, worlds: Mapping[int, World], folder: Path) -> DataFrame:
    """Write the range table and return it; MetadataError unless every metarange was read."""
    listed = {number: metaranges_of(world) for number, world in worlds.items()}
    read = spark.sparkContext.accumulator(frozenset(), _Numbers())
    RANGES.write(_range_table(spark, worlds, listed, read), folder)
    check_all_read(sum(map(len, listed.values())), len(read.value))
    return RANGES.read(spark, folder)


def has_few_entries(folder: Path) -> bool:
    """Return True if all ranges of a written table together have few entries."""
    if counted_rows(folder) > _FEW_RANGES:
        return False
    return is_small(sum(row["count"] for row in read_rows(RANGES, folder)))


def check_all_read(handed_out: int, read: int) -> None:
    """Raise MetadataError unless executors have read all metaranges: each may have live references."""
    if read != handed_out:
        raise MetadataError(
            f"{handed_out} metaranges were to be read, and the executors read {read}",
            why="what the others reference would look unreferenced",
            fix="plan again; if this happens again, it is a defect of Ebbtide",
        )


def range_table(spark: SparkSession, worlds: Mapping[int, World]) -> DataFrame:
    """
    Return the ranges of all commits and all staged entries, one row per range and policy class.

    The driver knows the metaranges, one per commit; executors read their content.
    """
    listed = {number: metaranges_of(world) for number, world in worlds.items()}
    return _range_table(spark, worlds, listed, None)


def _range_table(
    spark: SparkSession,
    worlds: Mapping[int, World],
    listed: Mapping[int, list[Metarange]],
    read: Accumulator[frozenset[int]] | None,
) -> DataFrame:
    terms = {
        number: sorted({m.term for m in found if m.term}, key=latest_order)
        for number, found in listed.items()
    }
    decoders = {number: world.decoder for number, world in worlds.items()}
    found = _metaranges(spark, listed, terms).mapInArrow(
        _MetarangeReader(decoders, terms, read), RANGES.schema
    )
    defaults = sorted({world.default_branch for world in worlds.values()})
    # One name per class is enough for messages. The default branch is preferred, so that the table changes
    # little when other branches come and go; else the first in order, so that it does not depend on Spark.
    first = f.min(f.struct((~f.col("name").isin(defaults)).alias("other"), "name"))
    return (
        found.groupBy("world", "folder", "range_id", "referrer", "days")
        .agg(
            f.min("min_key").alias("min_key"),
            f.max("max_key").alias("max_key"),
            f.max("count").alias("count"),
            first["name"].alias("name"),
            latest_term().alias("term"),
            f.max("lapses").alias("lapses"),
        )
        .select("*", "term.*")
        .select(*RANGES.columns)
    )


def latest_term() -> Column:
    """Return the term that ends last; of those that never end, that of a head."""
    by_head = (f.col("why") == str(HoldReason.HEAD)).alias("by_head")
    return f.max(f.struct("until", by_head, "keeper", "why"))


def _metaranges(
    spark: SparkSession, listed: Mapping[int, list[Metarange]], terms: Mapping[int, list[Term]]
) -> DataFrame:
    """Return all metaranges, each with its referrers as JSON and the position of its term, if any."""
    places = {number: {term: place for place, term in enumerate(found)} for number, found in terms.items()}
    rows = [
        (number, m.folder, m.id, _text(m.referrers), places[number].get(m.term) if m.term else None, m.lapses)
        for number, found in listed.items()
        for m in found
    ]
    columns = [range(len(rows)), *(zip(*rows, strict=True) if rows else [()] * 6)]
    kinds = [("world", pa.int32()), ("folder", pa.string()), ("id", pa.string()), ("referrers", pa.string())]
    schema = pa.schema([("number", pa.int64()), *kinds, ("term", pa.int32()), ("lapses", pa.bool_())])
    return spark.createDataFrame(pa.table(list(map(list, columns)), schema=schema))


def _text(referrers: Sequence[Referrer]) -> str:
    """Return referrers as JSON; the same referrers always give the same text."""
    ordered = sorted(referrers, key=lambda referrer: (referrer.kind, referrer.name))
    return json.dumps([(referrer.kind, referrer.name, referrer.days) for referrer in ordered])


def ranges_with_referrers(ranges: DataFrame) -> DataFrame:
    """Return one row per range with all its referrers: the unit that an executor reads."""
    referrers = f.sort_array(f.collect_list(f.struct("referrer", "name", "days"))).alias("referrers")
    return ranges.groupBy("world", "folder", "range_id").agg(
        f.min("min_key").alias("min_key"),
        f.max("max_key").alias("max_key"),
        f.max("count").alias("count"),
        referrers,
    )


class _Numbers(AccumulatorParam[frozenset[int]]):
    """Collects which metaranges tasks have read; a task that runs twice adds nothing."""

    def zero(self, value: frozenset[int]) -> frozenset[int]:
        """Return the empty set."""
        return value & frozenset()

    def addInPlace(self, value1: frozenset[int], value2: frozenset[int]) -> frozenset[int]:  # noqa: N802
        """Add the metaranges that a task has read."""
        return value1 | value2


class _MetarangeReader:
    """Reads metaranges on an executor; a range that many of them share is emitted once."""

    def __init__(
        self,
        decoders: Mapping[int, RangeDecoder],
        terms: Mapping[int, list[Term]],
        read: Accumulator[frozenset[int]] | None,
    ) -> None:
        self._decoders = decoders
        self._terms = terms
        self._read = read

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        # Most commits of a branch have the same referrers: their ranges are united and emitted once.
        alike: dict[tuple[int, str, str], list[Any]] = {}
        numbers: set[int] = set()
        for batch in batches:
            for row in batch.to_pylist():
                listed = self._decoders[row["world"]].ranges(row["folder"], row["id"])
                place = pa.repeat(pa.scalar(row["term"], pa.int32()), listed.num_rows)
                lapses = pa.repeat(pa.scalar(row["lapses"]), listed.num_rows)
                termed = listed.append_column("term", place).append_column("lapses", lapses)
                alike.setdefault((row["world"], row["folder"], row["referrers"]), []).append(termed)
                numbers.add(row["number"])
        for (world, folder, referrers), tables in alike.items():
            united = pa.concat_tables(tables)
            distinct = united.group_by(_LISTED, use_threads=False).aggregate(
                [("term", "max"), ("lapses", "max")]
            )
            kept = self._kept(world, distinct)
            for referrer in json.loads(referrers) if distinct.num_rows else ():
                yield from _rows(world, folder, distinct, kept, *referrer)
        if self._read is not None:
            self._read.add(frozenset(numbers))

    def _kept(self, world: int, ranges: Any) -> dict[str, Any]:
        """Return until when ranges are kept and by what; terms are sorted, so the last is the latest."""
        terms = self._terms[world]
        columns = {
            "until": pa.array([term.until for term in terms], pa.timestamp("us", tz="UTC")),
            "keeper": pa.array([term.keeper for term in terms], pa.string()),
            "why": pa.array([term.why for term in terms], pa.string()),
        }
        places = ranges.column("term_max").combine_chunks()
        kept = {name: column.take(places) for name, column in columns.items()}
        return kept | {"lapses": ranges.column("lapses_max")}


def _rows(
    world: int,
    folder: str,
    ranges: Any,
    kept: Mapping[str, Any],
    referrer: str,
    name: str,
    days: list[int | None],
) -> Any:
    """Return one row for each range that a referrer reaches."""
    same = {"world": world, "folder": folder, "referrer": referrer, "name": name, "days": days}
    columns = [
        pa.repeat(pa.scalar(same[field.name], field.type), ranges.num_rows)
        if field.name in same
        else (ranges.column(field.name) if field.name in _LISTED else kept[field.name])
        for field in _ROWS
    ]
    return pa.table(columns, schema=_ROWS).combine_chunks().to_batches()


@dataclass(frozen=True)
class ReachedRange:
    """A range with its referrers, one per policy class."""

    folder: str
    info: RangeInfo
    referrers: tuple[Referrer, ...]
    term: Term | None
    """The longest term of a commit or of staged entries, where retention is evaluated."""
    lapses: bool
    """At least one of their terms ends."""

    def can_contain(self, key: str) -> bool:
        """Return True if a key is between the first and the last key of this range."""
        return self.info.min_key <= key <= self.info.max_key


@dataclass
class _Reaching:
    """The referrers and terms of a range, as far as metaranges were read."""

    info: RangeInfo
    names: dict[tuple[ReferrerKind, PolicyClass], str] = field(default_factory=dict)
    terms: list[Term] = field(default_factory=list)
    lapses: bool = False

    def add(self, metarange: Metarange, default_branch: str) -> None:
        for referrer in metarange.referrers:
            known = self.names.get((referrer.kind, referrer.days))
            if known is None or (referrer.name != default_branch, referrer.name) < (
                known != default_branch,
                known,
            ):
                self.names[referrer.kind, referrer.days] = referrer.name
        self.terms += [metarange.term] if metarange.term else []
        self.lapses = self.lapses or metarange.lapses

    @property
    def referrers(self) -> tuple[Referrer, ...]:
        """One referrer per class, in the order in which a run evaluates them."""
        found = [Referrer(kind, name, days) for (kind, days), name in self.names.items()]
        return tuple(sorted(found, key=_referrer_order))

    @property
    def term(self) -> Term | None:
        return max(self.terms, key=lambda term: (*latest_order(term), term.why), default=None)


def reached_ranges(world: World) -> list[ReachedRange]:
    """Return the ranges of all commits and all staged entries, each once."""
    found: dict[tuple[str, str], _Reaching] = {}
    for metarange, infos in _listed(world):
        for info in infos:
            reaching = found.setdefault((metarange.folder, info.id), _Reaching(info))
            reaching.add(metarange, world.default_branch)
    return [
        ReachedRange(folder, reaching.info, reaching.referrers, reaching.term, reaching.lapses)
        for (folder, _), reaching in found.items()
    ]


def _listed(world: World) -> Iterator[tuple[Metarange, list[RangeInfo]]]:
    """Read the ranges of each metarange, several metaranges at a time."""
    metaranges = metaranges_of(world)
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        read = pool.map(lambda one: range_infos(world.decoder, one.folder, one.id), metaranges)
        yield from zip(metaranges, read, strict=True)


def range_infos(decoder: RangeDecoder, source: str, metarange_id: str) -> list[RangeInfo]:
    """Return the ranges of a metarange as objects."""
    rows = decoder.ranges(source, metarange_id).to_pylist()
    return [RangeInfo(row["range_id"], row["min_key"], row["max_key"], row["count"]) for row in rows]


def _referrer_order(referrer: Referrer) -> tuple[str, str, tuple[tuple[bool, int], ...]]:
    """Return the order of referrers that Spark uses: null days come before all numbers."""
    return str(referrer.kind), referrer.name, tuple((days is not None, days or 0) for days in referrer.days)
