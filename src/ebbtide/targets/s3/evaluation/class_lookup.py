"""The class of each row, found with binary searches in literals and arithmetic, and so its terms."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ebbtide.targets.s3.evaluation.key_intervals import KeyInterval, TagSet
from ebbtide.targets.s3.evaluation.rule_classes import SOURCES, RuleClasses, Signature, has_many_tag_sets
from ebbtide.targets.s3.model import MARKER, UPLOAD


def literal(values: Iterable[Any], kind: str) -> Column:
    """Make a constant array; the optimizer parses the JSON once, when it plans the query."""
    return f.from_json(f.lit(json.dumps(list(values))), f"array<{kind}>")


def with_interval(rows: DataFrame, intervals: Sequence[KeyInterval]) -> DataFrame:
    """Add the number of the key interval that contains each key."""
    key = f.col("key")
    if intervals[-1].world:
        key = f.concat(f.lpad(f.col("world").cast("string"), 6, "0"), key)
    begins = literal((interval.begins for interval in intervals), "string")
    found = _searched(rows.withColumn("_key", key), "interval", f.col("_key"), begins, len(intervals))
    return found.withColumn("interval", f.col("interval") - 1).drop("_key")


def with_classes(rows: DataFrame, known: RuleClasses) -> DataFrame:
    """
    Add the number of each row's class: `as_current`, and `as_noncurrent` with nothing newer.

    Both are computed before the shuffle by key, because they do not depend on the other versions of the key.
    So the columns that they are made of are not shuffled.
    """
    rows = _with_tag_index(rows, known)
    rows = _with_own_bounds(rows, "_size", f.col("size"), [d.sizes for d in known.dimensions])
    source = f.array_position(literal(SOURCES, "string"), f.col("storage_class")) - 1
    _, signatures, sources, ranks = _by_interval([d.widths for d in known.dimensions])
    at = _by_interval([d.starts for d in known.dimensions])
    size = f.when(f.col("size").isNull(), 0).otherwise(f.col("_size") + 1)
    # If storage classes do not matter in an interval, its dimension of sources has the width 1.
    source = f.when(sources == 1, 0).otherwise(f.greatest(source, f.lit(0)))
    version = (size * signatures + f.col("_tags")) * sources + source
    rows = rows.withColumn("_version", version.cast("int"))
    kind, own = f.col("kind"), f.col("_version")
    as_current = f.when(kind == UPLOAD, at[4]).when(kind == MARKER, at[2]).otherwise(at[0] + own)
    as_noncurrent = f.when(kind == MARKER, at[3]).otherwise(at[1] + own * ranks)
    added = {"as_current": as_current, "as_noncurrent": as_noncurrent}
    return rows.withColumns(added).drop("_tags", "_size", "_version")


def with_terms(rows: DataFrame, known: RuleClasses) -> DataFrame:
    """Add the index of each row's terms; 0 has no action."""
    rows = _with_own_bounds(rows, "_rank", f.col("newer"), [d.ranks for d in known.dimensions])
    mine = f.get(literal(known.rows, "array<int>"), f.col("interval"))
    # A current delete marker is removed only if its key has no versions.
    as_current = f.col("may_be_current") & ((f.col("kind") != MARKER) | f.col("sole"))
    # A version that may be either is held; then it only matters whether it has terms at all.
    terms = f.greatest(
        f.when(as_current, f.get(mine, f.col("as_current"))),
        f.when(f.col("may_be_noncurrent"), f.get(mine, f.col("as_noncurrent") + f.col("_rank"))),
    )
    return rows.withColumn("terms", f.coalesce(terms, f.lit(0))).drop("_rank")


def seen_signatures(rows: DataFrame, intervals: Sequence[KeyInterval]) -> dict[int, list[Signature]]:
    """Collect the signatures that occur in intervals with many tag sets; rows have their interval already."""
    many = [number for number, interval in enumerate(intervals) if has_many_tag_sets(interval)]
    if not many:
        return {}
    found: dict[int, list[Signature]] = {number: [()] for number in many}
    tagged = rows.where(f.col("interval").isin(many) & f.col("tags").isNotNull())
    distinct = tagged.select("interval", _signature(intervals).alias("signature")).distinct()
    for row in distinct.toArrow().to_pylist():
        if row["signature"]:
            found[row["interval"]].append(tuple(int(i) for i in row["signature"].split(",")))
    return found


def _by_interval(tuples: Iterable[tuple[int, ...]]) -> list[Column]:
    """Return columns with the values of each row's interval, of which each has a tuple."""
    return [f.get(literal(values, "int"), f.col("interval")) for values in zip(*tuples, strict=True)]


def _with_own_bounds(
    rows: DataFrame, name: str, value: Column, bounds: Sequence[tuple[int, ...]]
) -> DataFrame:
    """Add how many bounds of its interval each row's value has reached."""
    mine = f.get(literal(bounds, "array<bigint>"), f.col("interval"))
    return _searched(rows, name, value, mine, max(map(len, bounds)))


def _searched(rows: DataFrame, name: str, value: Column, bounds: Column, most: int) -> DataFrame:
    """
    Add the number of bounds that are not above a value; the bounds are sorted and at most `most`.

    Each step of the search is a column: in one expression, each step would contain the one before twice.
    """
    rows = rows.withColumn(name, f.lit(0))
    for step in reversed(range(most.bit_length())):
        width = 2**step
        reached = value >= f.get(bounds, f.col(name) + (width - 1))
        rows = rows.withColumn(name, f.col(name) + f.when(reached, width).otherwise(0))
    return rows


def _with_tag_index(rows: DataFrame, known: RuleClasses) -> DataFrame:
    """Add the index of each row's signature in its interval: as bits if there are few, else by name."""
    few = [() if has_many_tag_sets(interval) else interval.tag_sets for interval in known.intervals]
    index = f.lit(0)
    if any(few):
        keys, values = (_part_of_sets(few, part) for part in (0, 1))
        longest = max(len(tags) for sets in few for tags in sets)
        for i in range(max(map(len, few))):
            index += f.when(_has_all(f.get(keys, i), f.get(values, i), longest), 2**i).otherwise(0)
    if any(map(has_many_tag_sets, known.intervals)):
        names = [[",".join(map(str, s)) for s in d.signatures] for d in known.dimensions]
        mine = f.get(literal(names, "array<string>"), f.col("interval"))
        by_name = f.array_position(mine, _signature(known.intervals)) - 1
        many = literal((has_many_tag_sets(interval) for interval in known.intervals), "boolean")
        index = f.when(f.get(many, f.col("interval")), by_name).otherwise(index)
    return rows.withColumn("_tags", f.when(f.col("tags").isNull(), 0).otherwise(index).cast("int"))


def _part_of_sets(sets: Sequence[Sequence[TagSet]], part: int) -> Column:
    """Return the keys (0) or the values (1) of the tag sets of a row's interval."""
    parts = ([[tag[part] for tag in tags] for tags in mine] for mine in sets)
    return f.get(literal(parts, "array<array<string>>"), f.col("interval"))


def _has_all(keys: Column, values: Column, longest: int) -> Column:
    """Return True if a row has all tags of a set; False if the set is missing."""
    found = keys.isNotNull()
    for j in range(longest):
        key = f.get(keys, j)
        found &= key.isNull() | f.coalesce(f.try_element_at("tags", key) == f.get(values, j), f.lit(False))
    return found


def _signature(intervals: Sequence[KeyInterval]) -> Column:
    """Name the tag sets that a row has, of those that its interval requires."""
    sets = [[dict(tags) for tags in interval.tag_sets] for interval in intervals]
    mine = f.get(literal(sets, "array<map<string,string>>"), f.col("interval"))
    numbers = f.sequence(f.lit(0), f.size(mine) - 1)

    def has_all(number: Column) -> Column:
        wanted = f.map_entries(f.get(mine, number))
        return f.forall(wanted, lambda tag: f.try_element_at("tags", tag["key"]).eqNullSafe(tag["value"]))

    had = f.filter(numbers, has_all)
    return f.array_join(f.transform(had, lambda number: number.cast("string")), ",")
