"""
The verdict on each address, from all references to it: until when it is held, and by what.

The references to one address meet in one task, which groups them with Arrow: minima and maxima of texts and
lists would make Spark sort every row several times. Most addresses have one reference, and their verdict is
that row; only the rows of the others are sorted.

Every aggregate is a minimum, a maximum or a union, so that neither the order of references nor a repeated one
can change a verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from ebbtide.core.decision import DELETE, CollectorName, HoldReason
from ebbtide.engine.tables.contracts import REFERENCES
from ebbtide.engine.verdicts import GONE, TOUCHED, UNTOUCHED
from ebbtide.targets.repository.segments import NEVER_MICROS
from ebbtide.targets.repository.world import WORLD_VERDICTS

_SCHEMA = to_arrow_schema(WORLD_VERDICTS.schema, timezone="UTC")
_STRINGS = _SCHEMA.field("names").type
_BATCH = 65_536
_STRINGS_OF_REFERENCES = pa.list_(pa.string())
Array = Any


def reference_verdicts(
    references: DataFrame,
    affected: DataFrame | None = None,
    collector: CollectorName = CollectorName.LIFECYCLE,
) -> DataFrame:
    """Return the verdict on each referenced address; an affected one without any reference is gone."""
    if affected is not None:
        references = references.unionByName(affected, allowMissingColumns=True)
    together = references.select(*REFERENCES.columns).repartition("world", "hash")
    return together.mapInArrow(_Grouping(str(collector)), WORLD_VERDICTS.schema)


@dataclass(frozen=True)
class _Grouping:
    """Groups the references of a partition by address, on an executor."""

    collector: str

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        found = [batch for batch in batches if batch.num_rows]
        if found:
            verdicts = grouped_verdicts(pa.Table.from_batches(found), self.collector)
            yield from verdicts.to_batches(max_chunksize=_BATCH)


def grouped_verdicts(references: Any, collector: str) -> Any:
    """
    Return one verdict for each world and hash.

    A row without `touched` names an affected address and is not a reference. References are matched by the
    hash of the canonical address. Two addresses with one hash are both kept, which is the safe mistake.
    """
    found = _References(references.combine_chunks())
    deadline, hold, holder = _deduplicated(found)
    kinds = np.where(found.is_touched, TOUCHED, np.where(found.is_kept, UNTOUCHED, GONE))
    columns = {
        "world": pa.array(found.worlds),
        "hash": pa.array(found.hashes),
        "address": found.address,
        "names": found.names(),
        "size": found.largest("size"),
        "created": found.largest("created"),
        "deadline": deadline,
        "action": pa.repeat(DELETE, found.count),
        "hold": hold,
        "holder": holder,
        "rules": found.rules(),
        "labels": _labels("branch", found.of_latest("holder")),
        "collector": pa.repeat(collector, found.count),
        "kind": pa.array(kinds, pa.string()),
    }
    arrays = [
        columns[field.name].cast(field.type) if field.name in columns else pa.nulls(found.count, field.type)
        for field in _SCHEMA
    ]
    return pa.table(arrays, schema=_SCHEMA)


def _deduplicated(found: _References) -> tuple[Array, Array, Array]:
    """
    Step 3 of seed 000. Return until when each address is held, why, and by what: by all that references it.

    A reference that no rule matches never lapses, and keeps its address. Some addresses are never deleted,
    whatever the references say; inside its namespace a canonical address is relative, so a full URL lies
    outside.
    """
    deadline, hold = found.of_latest("lapse").cast(pa.int64()), found.of_latest("why")
    holder = _named(found.of_latest("key"), found.of_latest("holder"))
    address = found.address
    kept_by = _named(found.of_keeper("key"), found.of_keeper("holder"))
    never = [
        (found.has_keeper, found.of_keeper("why"), kept_by),
        (pc.starts_with(address, "_lakefs/"), str(HoldReason.METADATA), address),
        (pc.match_substring(address, "://"), str(HoldReason.OUTSIDE), address),
        (found.collides, str(HoldReason.COLLISION), address),
    ]
    # Each of them holds forever; the last one that applies is named.
    for when, why, by in never:
        applies = pc.and_(pc.fill_null(when, False), pa.array(found.is_touched))
        deadline = pc.if_else(applies, NEVER_MICROS, deadline)
        hold, holder = pc.if_else(applies, why, hold), pc.if_else(applies, by, holder)
    return deadline.cast(_SCHEMA.field("deadline").type), hold, holder


class _References:
    """References grouped by world and hash; a group is an address, and its number is its place."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows
        worlds, hashes = (np.asarray(rows.column(name)) for name in ("world", "hash"))
        order = np.lexsort((hashes, worlds))
        begins = np.ones(len(order), dtype=bool)
        begins[1:] = (np.diff(hashes[order]) != 0) | (np.diff(worlds[order]) != 0)
        group = np.empty(len(order), dtype=np.int64)
        group[order] = np.cumsum(begins) - 1
        self.worlds, self.hashes = worlds[order[begins]], hashes[order[begins]]
        self.count = len(self.hashes)
        touched = rows.column("touched")
        self._touched = _Rows(group, pc.fill_null(touched, False), self.count)
        self._kept = _Rows(group, pc.fill_null(pc.invert(touched), False), self.count)
        self.is_touched, self.is_kept = self._touched.per_group > 0, self._kept.per_group > 0

    def of_latest(self, name: str) -> Array:
        """Return a column of the reference that lapses last; null where no rule touches a reference."""
        return self._column(name).take(self._latest)

    def of_keeper(self, name: str) -> Array:
        """Return a column of the first reference that no rule touches; null where there is none."""
        return self._column(name).take(self._keeper)

    @cached_property
    def has_keeper(self) -> Array:
        return pa.array(self.is_kept)

    @cached_property
    def address(self) -> Array:
        """The first address of each group; null where no rule touches a reference."""
        return self._extreme("address", "min")

    @cached_property
    def collides(self) -> Array:
        """Where a group has more than one address."""
        return pc.not_equal(self.address, self._extreme("address", "max"))

    def largest(self, name: str) -> Array:
        """Return the largest value of each group among touched references."""
        return self._extreme(name, "max")

    def names(self) -> Array:
        """Return the keys of the touched references of each group, each once and in order."""
        several = self._touched.several
        pairs = pa.table({"group": self._touched.group[several], "value": self._column("key").take(several)})
        unique = (
            pairs.group_by(["group", "value"])
            .aggregate([])
            .sort_by([("group", "ascending"), ("value", "ascending")])
        )
        single = self._touched.single
        groups = np.concatenate([self._touched.group[single], np.asarray(unique.column("group"))])
        values = pa.concat_arrays([self._column("key").take(single), _joined(unique.column("value"))])
        order = np.argsort(groups, kind="stable")
        return pa.ListArray.from_arrays(self._offsets(groups), values.take(pa.array(order))).cast(_STRINGS)

    def rules(self) -> Array:
        """Return the rules of the touched references of each group, each once and in order."""
        rows = self._touched.rows
        lists = self._column("rules").take(rows).cast(_STRINGS_OF_REFERENCES)
        codes = np.asarray(pc.binary_join(lists, "\0").dictionary_encode().indices)
        known, examples = np.unique(codes, return_index=True)
        split = dict(zip(known.tolist(), lists.take(pa.array(examples)).to_pylist(), strict=True))
        chosen: dict[tuple[int, ...], int] = {(): 0}
        united: list[list[str]] = [[]]
        place = np.zeros(self.count, dtype=np.int64)
        for groups, found in _sets(self._touched.group[rows], codes, self.count):
            if found not in chosen:
                chosen[found] = len(united)
                united.append(sorted({rule for code in found for rule in split[code]}))
            place[groups] = chosen[found]
        return pa.array(united, _STRINGS).take(pa.array(place))

    @cached_property
    def _latest(self) -> Array:
        by = [("lapse", "descending"), ("key", "ascending"), ("holder", "ascending"), ("why", "ascending")]
        return self._first(self._touched, by)

    @cached_property
    def _keeper(self) -> Array:
        return self._first(self._kept, [(name, "ascending") for name in ("key", "holder", "why")])

    def _first(self, chosen: _Rows, by: Sequence[tuple[str, str]]) -> Array:
        """Return the row of each group that comes first in an order; null for a group without rows."""
        found = np.full(self.count, -1, dtype=np.int64)
        found[chosen.group[chosen.single]] = chosen.single
        several = chosen.several
        if len(several):
            table = pa.table({name: self._column(name).take(several) for name, _ in by})
            table = table.append_column("group", pa.array(chosen.group[several]))
            order = several[np.asarray(pc.sort_indices(table, sort_keys=[("group", "ascending"), *by]))]
            begins = np.ones(len(order), dtype=bool)
            begins[1:] = np.diff(chosen.group[order]) != 0
            found[chosen.group[order[begins]]] = order[begins]
        return pa.array(found, mask=found < 0)

    def _extreme(self, name: str, which: str) -> Array:
        """Return the minimum or maximum of each group among touched references."""
        column, several = self._column(name), self._touched.several
        simple = column.take(self._latest)
        if not len(several):
            return simple
        table = pa.table({"group": self._touched.group[several], "value": column.take(several)})
        grouped = table.group_by("group").aggregate([("value", which)])
        place = np.full(self.count, -1, dtype=np.int64)
        place[np.asarray(grouped.column("group"))] = np.arange(grouped.num_rows)
        values = _joined(grouped.column(f"value_{which}")).take(pa.array(place, mask=place < 0))
        return pc.if_else(pa.array(place >= 0), values, simple)

    def _offsets(self, groups: Array) -> Array:
        counts = np.bincount(groups, minlength=self.count)
        return pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())

    def _column(self, name: str) -> Array:
        return _joined(self._rows.column(name))


class _Rows:
    """Some rows of a table: those that are alone in their group, and those that are not."""

    def __init__(self, group: Array, chosen: Array, count: int) -> None:
        self.group = group
        self.rows = np.flatnonzero(np.asarray(chosen))
        self.per_group = np.bincount(group[self.rows], minlength=count)
        alone = self.per_group[group[self.rows]] == 1
        self.single, self.several = self.rows[alone], self.rows[~alone]


def _sets(groups: Array, codes: Array, count: int) -> Iterator[tuple[Array, tuple[int, ...]]]:
    """Yield groups with the set of codes of their rows; the many groups with one code come together."""
    low, high = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
    np.minimum.at(low, groups, codes)
    np.maximum.at(high, groups, codes)
    for code in np.unique(codes):
        yield np.flatnonzero((low == code) & (high == code)), (int(code),)
    among = low[groups] != high[groups]
    pairs = np.unique(np.stack([groups[among], codes[among]]), axis=1)
    edges = np.flatnonzero(np.diff(pairs[0])) + 1
    for part in np.split(np.arange(pairs.shape[1]), edges) if pairs.size else ():
        yield pairs[0][part[:1]], tuple(pairs[1][part].tolist())


def _named(key: Array, holder: Array) -> Array:
    """Name a reference in words: its key, then who holds it."""
    return pc.binary_join_element_wise(key, holder, " ")


def _labels(name: str, values: Array) -> Array:
    """Return a map with one label, or an empty one where there is no value."""
    present = np.asarray(pc.is_valid(values))
    offsets = pa.array(np.concatenate([[0], np.cumsum(present)]), pa.int32())
    items = values.filter(pa.array(present))
    return pa.MapArray.from_arrays(offsets, pa.repeat(name, len(items)), items)


def _joined(column: Array) -> Array:
    """Return a column as one array."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
