"""
What still needs an address: the reaper's proof, and the records that make it possible.

Every committed address came into a commit in one of two ways. Either a commit took in a staged row: then the
row left staging in the transaction that landed the commit. An address that was never *shared* has one row in
its whole life, so if some other operation dropped that row it was never committed. A shared one (copy, move)
has a record, of the transaction that shared it, which says `committed` as soon as it is. Or an import brought
the address in, past staging: then the import has a record, and its ranges are read. Merges, reverts, resets
to a ref, branches and tags refer to commits, and bring no address in that was not committed before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection, delete, exists, select, update
from sqlalchemy.dialects import postgresql, sqlite

from ebbtide.core.instant import to_micros
from ebbtide.targets.lake.catalog import reclaim, schema
from ebbtide.targets.lake.catalog.committed import Committed
from ebbtide.targets.lake.catalog.model import RangeInfo
from ebbtide.targets.lake.catalog.ranges import COMMITTED, read_range
from ebbtide.targets.lake.catalog.reclaim import State
from ebbtide.targets.lake.catalog.refs import Branch
from ebbtide.targets.lake.catalog.writing import Writing

_staged, _tokens, _shared, _imports = schema.staging, schema.tokens, schema.shared, schema.imports


class Imported(NamedTuple):
    """The metarange that an import made, and the one it was laid over, if that is known."""

    metarange_id: str
    base_id: str


def still_needed(connection: Connection, repo_uid: str, addresses: Sequence[str], now: datetime) -> set[str]:
    """
    Give those that are staged, in any layer of any branch, may still be linked, or were shared and committed.

    The caller holds the repository's lock, and knows of imports by itself.
    """
    needed: set[str] = set()
    for part in reclaim.chunks(addresses):
        for statement in (
            select(_staged.c.address).where(_staged.c.address.in_(part), ~_staged.c.tombstone),
            select(_tokens.c.address).where(
                _tokens.c.address.in_(part), _tokens.c.used.is_(False), _tokens.c.expires > to_micros(now)
            ),
            select(_shared.c.address).where(
                _shared.c.repo_uid == repo_uid, _shared.c.address.in_(part), _shared.c.committed
            ),
        ):
            needed.update(connection.execute(statement).scalars())
    return needed


def note_sharing(writing: Writing, address: str, *, committed: bool) -> None:
    """Record that an address is about to have a second reference, and whether the first is a commit's."""
    dialect: Any = postgresql if writing.connection.dialect.name == "postgresql" else sqlite
    new = dialect.insert(_shared).values(
        repo_uid=writing.repository.uid, address=address, committed=committed
    )
    # Once committed, always committed.
    kept = new.on_conflict_do_update(
        index_elements=["repo_uid", "address"],
        set_={"committed": _shared.c.committed | new.excluded.committed},
    )
    writing.connection.execute(kept)


def note_commit(writing: Writing, branch: Branch, layer: int) -> None:
    """
    Record which shared addresses a commit of these layers holds, in the transaction that lands it.

    What it holds leaves the queue. Whoever stages an address keeps it from waiting there without a record of
    sharing; this is a second lock on that door, for a commit's rows are gone when the reaper looks.
    """
    above = _staged.alias()
    loses = exists().where(
        above.c.branch_id == _staged.c.branch_id,
        above.c.key == _staged.c.key,
        above.c.layer > _staged.c.layer,
        above.c.layer <= layer,
    )
    wins = (
        ~_staged.c.tombstone,
        _staged.c.branch_id == branch.id,
        _staged.c.layer <= layer,
        ~loses,
    )
    mine = (_shared.c.repo_uid == writing.repository.uid, ~_shared.c.committed)
    shared = exists().where(_staged.c.address == _shared.c.address, *wins)
    writing.connection.execute(update(_shared).where(*mine, shared).values(committed=True))
    queue = schema.reclaim
    waits = (queue.c.repo_uid == writing.repository.uid, queue.c.state == str(State.WAITING))
    held = exists().where(_staged.c.address == queue.c.address, *wins)
    writing.connection.execute(delete(queue).where(*waits, held))


def forget_sharing(connection: Connection, repo_uid: str) -> None:
    """
    Forget the records of addresses that are no longer staged nor waiting.

    A committed one may be shared again, but only from a commit, and then that is recorded again.
    """
    staged = exists().where(_staged.c.address == _shared.c.address, ~_staged.c.tombstone)
    queue = schema.reclaim
    waits = exists().where(
        queue.c.repo_uid == _shared.c.repo_uid,
        queue.c.address == _shared.c.address,
        queue.c.state == str(State.WAITING),
    )
    connection.execute(delete(_shared).where(_shared.c.repo_uid == repo_uid, ~staged, ~waits))


def note_import(writing: Writing, made: Imported) -> None:
    """Record an import, in the transaction that lands it."""
    dialect: Any = postgresql if writing.connection.dialect.name == "postgresql" else sqlite
    row = {"repo_uid": writing.repository.uid} | made._asdict()
    writing.connection.execute(dialect.insert(_imports).values(row).on_conflict_do_nothing())


def imports(connection: Connection, repo_uid: str) -> frozenset[Imported]:
    """Give all imports of a repository."""
    statement = select(_imports.c.metarange_id, _imports.c.base_id).where(_imports.c.repo_uid == repo_uid)
    return frozenset(Imported(row.metarange_id, row.base_id) for row in connection.execute(statement))


def refuse_reaped(
    connection: Connection, repo_uid: str, content: Committed, made: Imported, after: int = 0
) -> int:
    """
    Refuse an import of what was fenced after the fence of this number; give the number of the last fence.

    Called again with that number under the lock it has nothing to read, unless something was fenced since.
    """
    newest = reclaim.newest_fence(connection, repo_uid)
    if newest > after:
        for info in new_ranges(content, frozenset({made})):
            there = read_range(content.store, COMMITTED, info, ["address"]).column("address")
            own = there.filter(pc.starts_with(there, reclaim.own(repo_uid))).to_pylist()
            for address in reclaim.fenced_among(connection, repo_uid, own, after):
                reclaim.refuse_fenced(connection, repo_uid, address)
    return newest


def imported_among(content: Committed, found: frozenset[Imported], addresses: Iterable[str]) -> set[str]:
    """Give the addresses that imports brought in; each of their ranges is read once, one at a time."""
    wanted = pa.array(list(addresses), pa.string())
    needed: set[str] = set()
    if not len(wanted):
        return needed
    for info in new_ranges(content, found):
        there = read_range(content.store, COMMITTED, info, ["address"]).column("address")
        needed.update(there.filter(pc.is_in(there, wanted)).to_pylist())
    return needed


def new_ranges(content: Committed, found: frozenset[Imported]) -> list[RangeInfo]:
    """Give the ranges that these metaranges have and those they were laid over have not, each once."""
    known: dict[str, RangeInfo] = {}
    for metarange_id, base_id in sorted(found):
        base = {info.id for info in content.ranges(base_id)} if base_id else set()
        known.update({info.id: info for info in content.ranges(metarange_id) if info.id not in base})
    return list(known.values())
