"""Looking up the terms of each row: binary searches in literals, and then arithmetic."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ebbtide.targets.s3.evaluation.classes import SOURCES, Classes, Signature, has_many_tag_sets
from ebbtide.targets.s3.evaluation.places import Place, TagSet

VERSION, MARKER, UPLOAD = "version", "marker", "upload"


def literal(values: Iterable[Any], kind: str) -> Column:
    """Make a constant array of any kind in one call; the optimizer reads the text once, when it plans."""
    return f.from_json(f.lit(json.dumps(list(values))), f"array<{kind}>")


def with_place(rows: DataFrame, places: Sequence[Place]) -> DataFrame:
    """Add the number of the place in which each key lies."""
    key = f.col("key")
    if places[-1].world:
        key = f.concat(f.lpad(f.col("world").cast("string"), 6, "0"), key)
    begins = literal((place.begins for place in places), "string")
    found = _searched(rows.withColumn("_key", key), "place", f.col("_key"), begins, len(places))
    return found.withColumn("place", f.col("place") - 1).drop("_key")


def with_classes(rows: DataFrame, known: Classes) -> DataFrame:
    """
    Add where each row's terms stand in the row of its place: `as_current`, and `as_noncurrent` with nothing
    newer.

    Both need no look at the other versions of a key, so they are found before rows are sent to their keys;
    what they are made of need not be sent.
    """
    rows = _with_tag_index(rows, known)
    rows = _with_own_bounds(rows, "_size", f.col("size"), [d.sizes for d in known.dimensions])
    source = f.array_position(literal(SOURCES, "string"), f.col("storage_class")) - 1
    _, signatures, sources, ranks = _by_place([d.widths for d in known.dimensions])
    at = _by_place([d.starts for d in known.dimensions])
    size = f.when(f.col("size").isNull(), 0).otherwise(f.col("_size") + 1)
    # Where storage classes do not matter there is one place for all of them.
    source = f.when(sources == 1, 0).otherwise(f.greatest(source, f.lit(0)))
    version = (size * signatures + f.col("_tags")) * sources + source
    rows = rows.withColumn("_version", version.cast("int"))
    kind, own = f.col("kind"), f.col("_version")
    as_current = f.when(kind == UPLOAD, at[4]).when(kind == MARKER, at[2]).otherwise(at[0] + own)
    as_noncurrent = f.when(kind == MARKER, at[3]).otherwise(at[1] + own * ranks)
    added = {"as_current": as_current, "as_noncurrent": as_noncurrent}
    return rows.withColumns(added).drop("_tags", "_size", "_version")


def with_terms(rows: DataFrame, known: Classes) -> DataFrame:
    """Add the number of each row's terms; 0 is that of the terms that say nothing."""
    rows = _with_own_bounds(rows, "_rank", f.col("newer"), [d.ranks for d in known.dimensions])
    mine = f.get(literal(known.rows, "array<int>"), f.col("place"))
    # Of a delete marker that is current something is said only if it is all that is left of its key.
    as_current = f.col("may_be_current") & ((f.col("kind") != MARKER) | f.col("sole"))
    # A version is one of the two; only in doubt it may be either, and then all that matters is that one of
    # them has terms.
    terms = f.greatest(
        f.when(as_current, f.get(mine, f.col("as_current"))),
        f.when(f.col("may_be_noncurrent"), f.get(mine, f.col("as_noncurrent") + f.col("_rank"))),
    )
    return rows.withColumn("terms", f.coalesce(terms, f.lit(0))).drop("_rank")


def seen_signatures(rows: DataFrame, places: Sequence[Place]) -> dict[int, list[Signature]]:
    """Collect the signatures that occur in places with many tag sets; rows already have their place."""
    many = [number for number, place in enumerate(places) if has_many_tag_sets(place)]
    if not many:
        return {}
    found: dict[int, list[Signature]] = {number: [()] for number in many}
    tagged = rows.where(f.col("place").isin(many) & f.col("tags").isNotNull())
    distinct = tagged.select("place", _signature(places).alias("signature")).distinct()
    for row in distinct.toArrow().to_pylist():
        if row["signature"]:
            found[row["place"]].append(tuple(int(i) for i in row["signature"].split(",")))
    return found


def _by_place(tuples: Iterable[tuple[int, ...]]) -> list[Column]:
    """Give a row's own of what there is a tuple of for each place."""
    return [f.get(literal(values, "int"), f.col("place")) for values in zip(*tuples, strict=True)]


def _with_own_bounds(
    rows: DataFrame, name: str, value: Column, bounds: Sequence[tuple[int, ...]]
) -> DataFrame:
    """Add how many of its place's bounds each row's value has reached."""
    mine = f.get(literal(bounds, "array<bigint>"), f.col("place"))
    return _searched(rows, name, value, mine, max(map(len, bounds)))


def _searched(rows: DataFrame, name: str, value: Column, bounds: Column, most: int) -> DataFrame:
    """
    Add how many of the bounds, which are sorted and at most so many, are not above a value.

    Each step is a column of its own: written as one expression, each would hold the one before it twice.
    """
    rows = rows.withColumn(name, f.lit(0))
    for step in reversed(range(most.bit_length())):
        width = 2**step
        reached = value >= f.get(bounds, f.col(name) + (width - 1))
        rows = rows.withColumn(name, f.col(name) + f.when(reached, width).otherwise(0))
    return rows


def _with_tag_index(rows: DataFrame, known: Classes) -> DataFrame:
    """Add which of its place's signatures each row has: as bits where they are few, else by its name."""
    few = [() if has_many_tag_sets(place) else place.tag_sets for place in known.places]
    index = f.lit(0)
    if any(few):
        keys, values = (_part_of_sets(few, part) for part in (0, 1))
        longest = max(len(tags) for sets in few for tags in sets)
        for i in range(max(map(len, few))):
            index += f.when(_has_all(f.get(keys, i), f.get(values, i), longest), 2**i).otherwise(0)
    if any(map(has_many_tag_sets, known.places)):
        names = [[",".join(map(str, s)) for s in d.signatures] for d in known.dimensions]
        mine = f.get(literal(names, "array<string>"), f.col("place"))
        by_name = f.array_position(mine, _signature(known.places)) - 1
        many = literal((has_many_tag_sets(place) for place in known.places), "boolean")
        index = f.when(f.get(many, f.col("place")), by_name).otherwise(index)
    return rows.withColumn("_tags", f.when(f.col("tags").isNull(), 0).otherwise(index).cast("int"))


def _part_of_sets(sets: Sequence[Sequence[TagSet]], part: int) -> Column:
    """Give the keys (0) or the values (1) of each of the tag sets of a row's place."""
    parts = ([[tag[part] for tag in tags] for tags in mine] for mine in sets)
    return f.get(literal(parts, "array<array<string>>"), f.col("place"))


def _has_all(keys: Column, values: Column, longest: int) -> Column:
    """Tell whether a row has all of a set of tags; there is none where the set is missing."""
    found = keys.isNotNull()
    for j in range(longest):
        key = f.get(keys, j)
        found &= key.isNull() | f.coalesce(f.try_element_at("tags", key) == f.get(values, j), f.lit(False))
    return found


def _signature(places: Sequence[Place]) -> Column:
    """Name the tag sets that a row has, of those that its place asks for."""
    sets = [[dict(tags) for tags in place.tag_sets] for place in places]
    mine = f.get(literal(sets, "array<map<string,string>>"), f.col("place"))
    numbers = f.sequence(f.lit(0), f.size(mine) - 1)

    def has_all(number: Column) -> Column:
        wanted = f.map_entries(f.get(mine, number))
        return f.forall(wanted, lambda tag: f.try_element_at("tags", tag["key"]).eqNullSafe(tag["value"]))

    had = f.filter(numbers, has_all)
    return f.array_join(f.transform(had, lambda number: number.cast("string")), ",")
