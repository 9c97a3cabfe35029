"""What differs between two versions, and what a merge makes of two such differences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.core.errors import Refused
from ebbtide.storage.store import Store
from ebbtide.targets.lake.catalog.model import RangeInfo
from ebbtide.targets.lake.catalog.ranges import ENTRIES, Table
from ebbtide.targets.lake.catalog.segments import CHANGES, Cursor, Segment, is_in, windows

_CONTENT = [name for name in ENTRIES.names if name != "key"]

DIFFERENCES = pa.schema(
    list(CHANGES) + [ENTRIES.field(n).with_name(f"was_{n}").with_nullable(True) for n in _CONTENT]
)
"""Changes that also remember what was there before (null: nothing)."""

SHOWN_CONFLICTS = 10


def differences(store: Store, left: Iterable[Segment], right: Iterable[Segment]) -> Iterator[Table]:
    """Stream the changes that turn left into right, in key order; ranges they share are not decoded."""
    pairs = windows(Cursor(store, left, ENTRIES), Cursor(store, right, ENTRIES))
    for before, after in pairs:
        page = _page(before, after)
        if page.num_rows:
            yield page


def three_way(
    store: Store, base: list[RangeInfo], source: list[RangeInfo], target: list[RangeInfo]
) -> Iterator[Table]:
    """
    Stream the changes that source made since base and that target lacks; Refused on a conflict.

    A key that both sides changed is a conflict unless both made it the same content.
    """
    theirs = Cursor(store, differences(store, base, source), DIFFERENCES)
    ours = Cursor(store, differences(store, base, target), DIFFERENCES)
    conflicts: list[str] = []
    for wanted, present in windows(theirs, ours):
        in_both = is_in(wanted, present)
        both, same = wanted.filter(in_both), present.filter(is_in(present, wanted))
        # Both tables are sorted by the same unique keys, so row i of one is row i of the other.
        clash = _differ(both, same, ["address", "size", "checksum"])
        conflicts += both.filter(clash).column("key").to_pylist()
        if len(conflicts) >= SHOWN_CONFLICTS:
            break
        yield wanted.filter(pc.invert(in_both)).select(CHANGES.names)
    if conflicts:
        _refuse(conflicts)


def _refuse(conflicts: list[str]) -> None:
    """Name the first conflicts."""
    shown = ", ".join(repr(key) for key in conflicts[:SHOWN_CONFLICTS])
    more = " and maybe more" if len(conflicts) >= SHOWN_CONFLICTS else ""
    raise Refused(
        f"the two sides conflict in {shown}{more}",
        why="both changed these keys since their common ancestor, each in its own way",
        fix="make the two sides agree on these keys, commit, and try again",
    )


def _page(before: Table, after: Table) -> Table:
    """Compare two tables of the same window of keys."""
    stays, stayed = is_in(before, after), is_in(after, before)
    old, new = before.filter(stays), after.filter(stayed)
    changed = pc.fill_null(_any_differs(old, new, _CONTENT), False)
    parts = [
        _joined(before.filter(pc.invert(stays)), None),
        _joined(old.filter(changed), new.filter(changed)),
        _joined(None, after.filter(pc.invert(stayed))),
    ]
    filled = [part for part in parts if part.num_rows]
    if not filled:
        return DIFFERENCES.empty_table()
    return filled[0] if len(filled) == 1 else pa.concat_tables(filled).sort_by("key")


def _joined(before: Table, after: Table) -> Table:
    """Put both sides into one row; a side that is None gives nulls."""
    rows = before if after is None else after
    columns = {"key": rows.column("key"), "tombstone": pa.repeat(after is None, rows.num_rows)}
    for name in _CONTENT:
        nothing = pa.nulls(rows.num_rows, ENTRIES.field(name).type)
        columns[name] = nothing if after is None else after.column(name)
        columns[f"was_{name}"] = nothing if before is None else before.column(name)
    return pa.table([columns[name] for name in DIFFERENCES.names], schema=DIFFERENCES)


def _differ(left: Table, right: Table, names: list[str]) -> Any:
    """Compare aligned changes; a null (a tombstone's content) differs from nothing."""
    content = pc.fill_null(_any_differs(left, right, names), False)
    return pc.or_(content, pc.not_equal(left.column("tombstone"), right.column("tombstone")))


def _any_differs(left: Table, right: Table, names: list[str]) -> Any:
    """Mark the rows of two aligned tables that differ in any of these columns."""
    found = pc.not_equal(left.column(names[0]), right.column(names[0]))
    for name in names[1:]:
        found = pc.or_kleene(found, pc.not_equal(left.column(name), right.column(name)))
    return found
