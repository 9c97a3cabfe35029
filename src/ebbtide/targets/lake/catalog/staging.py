"""
Staged rows: what was uploaded, linked, copied or deleted on a branch and is not committed yet.

Rows live in layers. Writers write to the branch's current layer, replacing rows there. A commit *seals* the
layers so far by raising the branch's layer, so the rows it reads cannot change or vanish under it: an upload
of the same key meanwhile lands in the next layer, on top, and stays staged. An overwritten row of a sealed
layer is still a reference, because the commit under way is about to make it one for good.

A row that is replaced or dropped may have been the last reference to its object: its address goes into the
reclaim queue in the same transaction, before the row goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection, and_, bindparam, delete, func, select, true, update
from sqlalchemy.dialects import postgresql, sqlite

from ebbtide.core.instant import from_micros, to_micros
from ebbtide.targets.lake.catalog import reclaim_queue, schema
from ebbtide.targets.lake.catalog.model import Entry
from ebbtide.targets.lake.catalog.names import after_prefix
from ebbtide.targets.lake.catalog.range_writer import CHANGES, live
from ebbtide.targets.lake.catalog.ranges import Table
from ebbtide.targets.lake.catalog.reclaim_queue import DropReason
from ebbtide.targets.lake.catalog.refs import Branch, WriteTransaction

_rows = schema.staging
PAGE = 50_000


@dataclass(frozen=True)
class StagedRow:
    """What is staged for one key in one layer; no entry means that the key is deleted."""

    layer: int
    entry: Entry | None


def put(writing: WriteTransaction, branch: Branch, entries: Iterable[Entry]) -> None:
    """Stage entries in the branch's current layer; the last of several with one key wins."""
    rows = [
        {
            "branch_id": branch.id,
            "key": entry.key,
            "layer": branch.layer,
            "seq": writing.sequence,
            "tombstone": False,
            "address": entry.address,
            "created": to_micros(entry.created),
            "size": entry.size,
            "checksum": entry.checksum,
        }
        for entry in entries
    ]
    last = {row["key"]: row["address"] for row in rows}
    # Of several entries with one key, all but the last are replaced at once.
    beaten = [str(row["address"]) for row in rows if row["address"] != last[row["key"]]]
    reclaim_queue.queue_addresses(writing, DropReason.OVERWRITTEN, beaten)
    _upsert(writing, branch, rows, DropReason.OVERWRITTEN)


def put_tombstones(writing: WriteTransaction, branch: Branch, keys: Iterable[str]) -> None:
    """Stage the deletion of keys in the branch's current layer."""
    content = {"address": "", "created": 0, "size": 0, "checksum": ""}
    place = {"branch_id": branch.id, "layer": branch.layer, "seq": writing.sequence, "tombstone": True}
    _upsert(writing, branch, [place | content | {"key": key} for key in keys], DropReason.DELETED)


def _upsert(
    writing: WriteTransaction, branch: Branch, rows: list[dict[str, object]], reason: DropReason
) -> None:
    """Insert rows, or replace those of the same branch, key and layer, whose addresses are queued."""
    if rows:
        dialect = writing.connection.dialect.name
        _queue_replaced(writing, branch, [str(row["key"]) for row in rows], reason)
        writing.connection.execute(_upsert_statement(dialect), rows)


def _queue_replaced(writing: WriteTransaction, branch: Branch, keys: list[str], reason: DropReason) -> None:
    """Queue what the current layer has under these keys and is about to lose."""
    statement = _replaced_statement(writing.connection.dialect.name)
    for part in reclaim_queue.chunks(keys):
        reclaim_queue.queue_selected(
            writing, reason, statement, branch=branch.id, layer=branch.layer, keys=list(part)
        )


@lru_cache
def _replaced_statement(dialect_name: str) -> Any:
    """Build the statement that queues rows of one layer, by key."""
    place = (_rows.c.branch_id == bindparam("branch"), _rows.c.layer == bindparam("layer"))
    keys = _rows.c.key.in_(bindparam("keys", expanding=True))
    return reclaim_queue.queue_statement(
        dialect_name, select(_rows.c.address).where(*place, keys, ~_rows.c.tombstone)
    )


@lru_cache
def _upsert_statement(dialect_name: str) -> Any:
    """Build the statement once: that costs more than to run it for one row."""
    dialect: Any = postgresql if dialect_name == "postgresql" else sqlite
    keys = ["branch_id", "key", "layer"]
    new = dialect.insert(_rows)
    values = {c.name: new.excluded[c.name] for c in _rows.c if c.name not in keys}
    return new.on_conflict_do_update(index_elements=keys, set_=values)


def find(connection: Connection, branch: Branch, key: str) -> list[StagedRow]:
    """Return what is staged for a key, newest layer first."""
    statement = (
        select(_rows).where(_rows.c.branch_id == branch.id, _rows.c.key == key).order_by(_rows.c.layer.desc())
    )
    return [
        StagedRow(
            row.layer,
            None
            if row.tombstone
            else Entry(key, row.address, from_micros(row.created), row.size, row.checksum),
        )
        for row in connection.execute(statement)
    ]


def drop(writing: WriteTransaction, branch: Branch, key: str) -> None:
    """Remove a key's row from the current layer; sealed layers are not touched."""
    _queue_replaced(writing, branch, [key], DropReason.DELETED)
    writing.connection.execute(
        delete(_rows).where(_rows.c.branch_id == branch.id, _rows.c.key == key, _rows.c.layer == branch.layer)
    )


def drop_prefix(writing: WriteTransaction, branch: Branch, prefix: str) -> int:
    """Drop all rows of a prefix, sealed or not, and make commits under way start again."""
    table = schema.branches
    epoch = update(table).where(table.c.id == branch.id).values(epoch=table.c.epoch + 1)
    writing.connection.execute(epoch)
    _queue(writing, DropReason.RESET, _rows.c.branch_id == branch.id, _between(prefix))
    gone = delete(_rows).where(_rows.c.branch_id == branch.id, _between(prefix))
    return int(writing.connection.execute(gone).rowcount)


def drop_committed(writing: WriteTransaction, branch: Branch, layer: int) -> None:
    """
    Drop the sealed rows that a commit has taken in; what was staged on top of them stays.

    Rows of a lower layer under a higher one of the same key are not in the commit: they are queued.
    """
    above = _rows.alias()
    beaten = select(above.c.key).where(
        above.c.branch_id == _rows.c.branch_id,
        above.c.key == _rows.c.key,
        above.c.layer > _rows.c.layer,
        above.c.layer <= layer,
    )
    sealed = (_rows.c.branch_id == branch.id, _rows.c.layer <= layer)
    _queue(writing, DropReason.COMMITTED_OVER, *sealed, beaten.exists())
    writing.connection.execute(delete(_rows).where(*sealed))


def queue_branches(writing: WriteTransaction, reason: DropReason, branch_ids: Any) -> None:
    """Queue all that is staged on branches which are about to be deleted, with their rows."""
    _queue(writing, reason, _rows.c.branch_id.in_(branch_ids))


def _queue(writing: WriteTransaction, reason: DropReason, *where: Any) -> None:
    """Queue the addresses of some rows."""
    chosen = select(_rows.c.address).where(~_rows.c.tombstone, *where)
    reclaim_queue.queue_selected(
        writing, reason, reclaim_queue.queue_statement(writing.connection.dialect.name, chosen)
    )


def seal(connection: Connection, branch: Branch) -> int:
    """Seal the layers so far, so that their rows stay as they are, and return the highest of them."""
    table = schema.branches
    connection.execute(update(table).where(table.c.id == branch.id).values(layer=branch.layer + 1))
    return branch.layer


def is_empty(connection: Connection, branch: Branch) -> bool:
    """Return True if nothing at all is staged."""
    statement = select(_rows.c.key).where(_rows.c.branch_id == branch.id).limit(1)
    return connection.execute(statement).first() is None


def changes(
    connection: Connection, branch: Branch, *, prefix: str = "", layer: int | None = None
) -> Iterator[Table]:
    """Stream what is staged up to a layer, as changes in key order: the newest row of each key."""
    last: str | None = None
    for page in _pages(connection, branch.id, prefix, layer):
        keys = page.column("key").combine_chunks()
        first = pa.array([keys[0].as_py() != last])
        others = pc.not_equal(keys.slice(1), keys.slice(0, len(keys) - 1))
        last = keys[-1].as_py()
        yield page.filter(pa.concat_arrays([first, others]))


def references(connection: Connection, branch_id: str) -> Iterator[Table]:
    """Stream every entry that any layer holds: all that the branch's staging still needs."""
    for page in _pages(connection, branch_id, "", None):
        yield live(page)


def staged_branches(connection: Connection, repo_uid: str) -> list[tuple[str, str]]:
    """Return id and name of the branches that have anything staged."""
    table = schema.branches
    some = select(_rows.c.key).where(_rows.c.branch_id == table.c.id).exists()
    statement = select(table.c.id, table.c.name).where(table.c.repo_uid == repo_uid, some)
    return [(row.id, row.name) for row in connection.execute(statement.order_by(table.c.name))]


def count(connection: Connection, branch: Branch) -> int:
    """Count the staged rows of all layers."""
    statement = select(func.count()).select_from(_rows).where(_rows.c.branch_id == branch.id)
    return int(connection.execute(statement).scalar_one())


def count_all(connection: Connection, repo_uid: str) -> int:
    """Count the staged rows of all branches of a repository."""
    branches = select(schema.branches.c.id).where(schema.branches.c.repo_uid == repo_uid)
    statement = select(func.count()).select_from(_rows).where(_rows.c.branch_id.in_(branches))
    return int(connection.execute(statement).scalar_one())


def _pages(connection: Connection, branch_id: str, prefix: str, layer: int | None) -> Iterator[Table]:
    """Read rows page by page through a cursor of the caller's transaction, which fixes the moment."""
    columns = [_rows.c[name] for name in CHANGES.names]
    upto = true() if layer is None else _rows.c.layer <= layer
    statement = (
        select(*columns)
        .where(_rows.c.branch_id == branch_id, _between(prefix), upto)
        .order_by(_rows.c.key, _rows.c.layer.desc())
        .execution_options(yield_per=PAGE)
    )
    with connection.execute(statement) as result:
        for rows in result.partitions():
            values = zip(*rows, strict=True)
            yield pa.table(
                [pa.array(v, type=f.type) for v, f in zip(values, CHANGES, strict=True)],
                schema=CHANGES,
            )


def _between(prefix: str) -> Any:
    """Select the keys that start with a prefix, by their order, so that an index serves it."""
    if not prefix:
        return true()
    end = after_prefix(prefix)
    return and_(_rows.c.key >= prefix, true() if end is None else _rows.c.key < end)
