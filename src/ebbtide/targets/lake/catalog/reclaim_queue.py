"""
The reclaim queue: addresses that lost a reference, queued by the transaction that dropped it.

A row *waits* until the reaper looks at it. If something still needs its address, the row is removed: the
operation that drops the last reference queues it again. If nothing does, the same transaction *fences* it,
and from then on no reference to it can be made: an address is random and given out once, and operations
that could still name it (copy, move, link, import) check the queue first, under the same lock. So a fenced
address may be deleted by any process, at any time, any number of times, and what a crash leaves behind is
deleted again. Then its row is *gone* for some days, as an answer to the question what became of it.

What still needs an address: every committed address came into a commit in one of two ways. Either a commit
took in a staged row: then the row left staging in the transaction that landed the commit. An address that
was never *shared* has one row in its whole life, so if another operation dropped that row, it was never
committed. A shared one (copy, move) has a record, written by the transaction that shared it, which says
`committed` as soon as it is. Or an import brought the address in without staging: then the import has a
record, and its ranges are read. Merges, reverts, resets to a ref, branches and tags refer to commits, and
bring in no address that was not committed before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import (
    BigInteger,
    Connection,
    Row,
    Text,
    bindparam,
    cast,
    delete,
    exists,
    func,
    literal,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from ebbtide.core.errors import ObjectGone
from ebbtide.core.instant import format_second, from_micros, to_micros
from ebbtide.targets.lake.catalog import schema
from ebbtide.targets.lake.catalog.partitions import BRANCHES, repository_path
from ebbtide.targets.lake.catalog.ranges import CommittedContent, read_range
from ebbtide.targets.lake.catalog.refs import Branch, WriteTransaction
from ebbtide.targets.repository.model import COMMITTED, RangeInfo

_queue = schema.reclaim
_Item = TypeVar("_Item")
ABOUT = 500
"""How many addresses one statement has; both databases limit the number of values."""

_staged, _tokens, _shared, _imports = schema.staging, schema.tokens, schema.shared, schema.imports


class DropReason(StrEnum):
    """The operation that dropped the reference."""

    OVERWRITTEN = "overwritten"
    DELETED = "deleted"
    RESET = "reset"
    BRANCH = "branch deleted"
    REPOSITORY = "repository deleted"
    COMMITTED_OVER = "overwritten before the commit"
    NEVER_LINKED = "never linked"


class QueueState(StrEnum):
    """The state of a row."""

    WAITING = "waiting"
    FENCED = "fenced"
    GONE = "gone"


@dataclass(frozen=True)
class Reclaimable:
    """A row of the queue."""

    address: str
    reason: str
    state: str
    queued: datetime
    again: datetime
    """Not to be processed before; until then a reaper may be at work on a fenced row."""
    tries: int
    problem: str
    gone: datetime | None = None
    """When it was recorded that the object is gone."""


def own_prefix(repo_uid: str) -> str:
    """Return the prefix of all addresses that the catalog gave out; no others are queued."""
    return f"{repository_path(repo_uid)}{BRANCHES}"


def queue_selected(writing: WriteTransaction, reason: DropReason, statement: Any, **values: object) -> None:
    """Queue what a statement of :func:`queue_statement` selects, with these values in it."""
    writing.connection.execute(statement, _common(writing, reason) | values)


def queue_addresses(writing: WriteTransaction, reason: DropReason, addresses: Iterable[str]) -> None:
    """Queue addresses; those that the catalog did not give out are ignored."""
    rows = [_common(writing, reason) | {"one": address} for address in sorted(set(addresses))]
    if rows:
        chosen = select(cast(bindparam("one"), Text).label("address"))
        writing.connection.execute(queue_statement(writing.connection.dialect.name, chosen), rows)


def queue_statement(dialect_name: str, dropped: Any) -> Any:
    """
    Build the statement that queues the result of a select with one column, `address`.

    Building costs more than running it, so callers that run it often keep it.
    """
    dialect: Any = postgresql if dialect_name == "postgresql" else sqlite
    found = dropped.subquery()
    rows = (
        select(
            cast(bindparam("uid"), Text),
            found.c.address,
            cast(bindparam("now"), BigInteger),
            cast(bindparam("reason"), Text),
            *(literal(value, kind) for _, value, kind in _FRESH),
        )
        .where(found.c.address.like(bindparam("mine")))
        .distinct()
    )
    names = ["repo_uid", "address", "queued", "reason", *(name for name, _, _ in _FRESH)]
    new = dialect.insert(_queue).from_select(names, rows)
    # The grace period counts from the last drop. Fenced and gone rows stay: they have no references.
    return new.on_conflict_do_update(
        index_elements=["repo_uid", "address"],
        set_={"queued": new.excluded.queued, "reason": new.excluded.reason},
        where=_queue.c.state == str(QueueState.WAITING),
    )


def _common(writing: WriteTransaction, reason: DropReason) -> dict[str, object]:
    """Return the values common to all rows of one drop; only our own addresses are queued."""
    uid = writing.repository.uid
    return {"uid": uid, "mine": own_prefix(uid) + "%", "now": to_micros(writing.at), "reason": str(reason)}


_FRESH: tuple[tuple[str, object, Any], ...] = (
    ("state", str(QueueState.WAITING), Text()),
    ("fence", 0, BigInteger()),
    ("owner", "", Text()),
    ("again", 0, BigInteger()),
    ("tries", 0, BigInteger()),
    ("problem", "", Text()),
    ("gone", 0, BigInteger()),
)


def refuse_fenced(connection: Connection, repo_uid: str, address: str) -> None:
    """Raise ObjectGone for an address that is fenced or gone; the caller is about to refer to it."""
    found = find_queued(connection, repo_uid, address)
    if found is not None and found.state != QueueState.WAITING:
        raise gone(found)


def find_queued(connection: Connection, repo_uid: str, address: str) -> Reclaimable | None:
    """Return the row of an address."""
    mine = (_queue.c.repo_uid == repo_uid, _queue.c.address == address)
    row = connection.execute(select(_queue).where(*mine)).first()
    return None if row is None else _to_reclaimable(row)


def gone(row: Reclaimable) -> ObjectGone:
    """Return the error for an object that the reaper took."""
    since = from_micros(to_micros(row.queued))
    return ObjectGone(
        row.address,
        since=since,
        run_id=0,
        rules=(row.reason,),
        restorable=False,
        by=f"the reaper took it: nothing referred to it any more ({row.reason}, {format_second(since)})",
    )


def count_states(connection: Connection, repo_uid: str) -> dict[str, int]:
    """Count the rows of each state."""
    mine = select(_queue.c.state, func.count().label("number")).where(_queue.c.repo_uid == repo_uid)
    return {row.state: row.number for row in connection.execute(mine.group_by(_queue.c.state))}


def stream_queue(connection: Connection, repo_uid: str, *states: QueueState) -> Iterator[Reclaimable]:
    """Yield rows in these states, oldest first, through a cursor of the caller's transaction."""
    mine = (_queue.c.repo_uid == repo_uid, _queue.c.state.in_([str(state) for state in states]))
    statement = select(_queue).where(*mine).order_by(_queue.c.queued, _queue.c.address)
    with connection.execute(statement.execution_options(yield_per=10_000)) as result:
        for row in result:
            yield _to_reclaimable(row)


def waiting_addresses(
    connection: Connection, repo_uid: str, now: datetime, grace: timedelta, limit: int
) -> list[str]:
    """Return addresses whose grace period is over, longest waiting first."""
    statement = _due(repo_uid, QueueState.WAITING, now).where(_queue.c.queued <= to_micros(now - grace))
    order = (_queue.c.queued, _queue.c.address)
    return list(connection.execute(statement.order_by(*order).limit(limit)).scalars())


def abandoned_addresses(connection: Connection, repo_uid: str, now: datetime, limit: int) -> list[str]:
    """Return fenced addresses without a reaper: it crashed, or they are to be tried again."""
    statement = _due(repo_uid, QueueState.FENCED, now).order_by(_queue.c.again, _queue.c.address)
    return list(connection.execute(statement.limit(limit)).scalars())


def _due(repo_uid: str, state: QueueState, now: datetime) -> Any:
    return select(_queue.c.address).where(
        _queue.c.repo_uid == repo_uid, _queue.c.state == str(state), _queue.c.again <= to_micros(now)
    )


def in_state(connection: Connection, repo_uid: str, addresses: Sequence[str], state: QueueState) -> list[str]:
    """Return the addresses that are in this state, in their order."""
    found = {
        address
        for part in chunks(addresses)
        for address in connection.execute(
            select(_queue.c.address).where(
                _queue.c.repo_uid == repo_uid, _queue.c.address.in_(part), _queue.c.state == str(state)
            )
        ).scalars()
    }
    return [address for address in addresses if address in found]


def fence_addresses(
    connection: Connection, repo_uid: str, addresses: Sequence[str], owner: str, until: datetime
) -> None:
    """Fence addresses that the caller has proved unreferenced in this transaction, or take them over."""
    number = newest_fence(connection, repo_uid) + 1
    values = {"state": str(QueueState.FENCED), "fence": number, "owner": owner, "again": to_micros(until)}
    _change(connection, repo_uid, addresses, values)


def newest_fence(connection: Connection, repo_uid: str) -> int:
    """Return the number of the last fence; it grows with every fence."""
    newest = select(func.coalesce(func.max(_queue.c.fence), 0)).where(_queue.c.repo_uid == repo_uid)
    return int(connection.execute(newest).scalar_one())


def fenced_among(
    connection: Connection, repo_uid: str, addresses: Sequence[str], after: int = 0
) -> list[str]:
    """Return the addresses that were fenced after this number, gone or not."""
    return [
        address
        for part in chunks(addresses)
        for address in connection.execute(
            select(_queue.c.address).where(
                _queue.c.repo_uid == repo_uid, _queue.c.address.in_(part), _queue.c.fence > after
            )
        ).scalars()
    ]


def dequeue(connection: Connection, repo_uid: str, addresses: Sequence[str]) -> None:
    """Remove addresses from the queue; dropping their last reference queues them again."""
    for part in chunks(addresses):
        connection.execute(delete(_queue).where(_queue.c.repo_uid == repo_uid, _queue.c.address.in_(part)))


def mark_gone(connection: Connection, repo_uid: str, addresses: Sequence[str], now: datetime) -> None:
    """Record that fenced objects are no longer in the store."""
    values = {"state": str(QueueState.GONE), "gone": to_micros(now), "owner": "", "problem": ""}
    _change(connection, repo_uid, addresses, values)


def postpone(
    connection: Connection, repo_uid: str, problems: Sequence[tuple[str, str]], until: datetime
) -> None:
    """Record that deletes failed; the rows stay fenced, because the objects may be gone all the same."""
    statement = (
        _queue.update()
        .where(_queue.c.repo_uid == repo_uid, _queue.c.address == bindparam("one"))
        .values(problem=bindparam("said"), again=to_micros(until), tries=_queue.c.tries + 1)
    )
    if problems:
        connection.execute(statement, [{"one": address, "said": said[:500]} for address, said in problems])


def forget_gone(connection: Connection, repo_uid: str, before: datetime) -> None:
    """
    Remove rows of objects that were deleted before a moment, except the last fenced one.

    That has the number of the last fence. If numbers started again, an import that checked before would take
    a later fence for one that it has seen.
    """
    old = (_queue.c.state == str(QueueState.GONE), _queue.c.gone < to_micros(before))
    known = _queue.c.fence < newest_fence(connection, repo_uid)
    connection.execute(delete(_queue).where(_queue.c.repo_uid == repo_uid, *old, known))


def forget_repository(connection: Connection, repo_uid: str) -> None:
    """Remove all records of the addresses of a repository that is collected."""
    for table in (_queue, schema.shared, schema.imports):
        connection.execute(delete(table).where(table.c.repo_uid == repo_uid))


def chunks(items: Sequence[_Item], size: int = ABOUT) -> Iterator[Sequence[_Item]]:
    """Split a sequence into parts that fit in one statement."""
    return (items[start : start + size] for start in range(0, len(items), size))


def _change(
    connection: Connection, repo_uid: str, addresses: Sequence[str], values: dict[str, object]
) -> None:
    for part in chunks(addresses):
        mine = (_queue.c.repo_uid == repo_uid, _queue.c.address.in_(part))
        connection.execute(_queue.update().where(*mine).values(**values))


def _to_reclaimable(row: Row[Any]) -> Reclaimable:
    return Reclaimable(
        row.address,
        row.reason,
        row.state,
        from_micros(row.queued),
        from_micros(row.again),
        row.tries,
        row.problem,
        from_micros(row.gone) if row.gone else None,
    )


class Imported(NamedTuple):
    """The metarange of an import, and the one it was applied to, if known."""

    metarange_id: str
    base_id: str


def still_needed(connection: Connection, repo_uid: str, addresses: Sequence[str], now: datetime) -> set[str]:
    """
    Return addresses that are staged in any layer of any branch, may still be linked, or were committed.

    The caller holds the repository's lock, and checks imports itself.
    """
    needed: set[str] = set()
    for part in chunks(addresses):
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


def note_sharing(writing: WriteTransaction, address: str, *, committed: bool) -> None:
    """Record that an address gets a second reference, and whether the first is in a commit."""
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


def note_commit(writing: WriteTransaction, branch: Branch, layer: int) -> None:
    """
    Record which shared addresses a commit of these layers has, in the transaction that lands it.

    Its addresses leave the queue. Staging an address keeps it from waiting there without a record of
    sharing; this is a second safeguard, because the rows of a commit are gone when the reaper looks.
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
    waits = (queue.c.repo_uid == writing.repository.uid, queue.c.state == str(QueueState.WAITING))
    held = exists().where(_staged.c.address == queue.c.address, *wins)
    writing.connection.execute(delete(queue).where(*waits, held))


def forget_sharing(connection: Connection, repo_uid: str) -> None:
    """
    Remove the records of addresses that are neither staged nor waiting.

    A committed one may be shared again, but only from a commit, and then that is recorded again.
    """
    staged = exists().where(_staged.c.address == _shared.c.address, ~_staged.c.tombstone)
    queue = schema.reclaim
    waits = exists().where(
        queue.c.repo_uid == _shared.c.repo_uid,
        queue.c.address == _shared.c.address,
        queue.c.state == str(QueueState.WAITING),
    )
    connection.execute(delete(_shared).where(_shared.c.repo_uid == repo_uid, ~staged, ~waits))


def note_import(writing: WriteTransaction, made: Imported) -> None:
    """Record an import, in the transaction that lands it."""
    dialect: Any = postgresql if writing.connection.dialect.name == "postgresql" else sqlite
    row = {"repo_uid": writing.repository.uid} | made._asdict()
    writing.connection.execute(dialect.insert(_imports).values(row).on_conflict_do_nothing())


def recorded_imports(connection: Connection, repo_uid: str) -> frozenset[Imported]:
    """Return all imports of a repository."""
    statement = select(_imports.c.metarange_id, _imports.c.base_id).where(_imports.c.repo_uid == repo_uid)
    return frozenset(Imported(row.metarange_id, row.base_id) for row in connection.execute(statement))


def refuse_reaped(
    connection: Connection, repo_uid: str, content: CommittedContent, made: Imported, after: int = 0
) -> int:
    """
    Refuse an import of addresses fenced after this number; return the number of the last fence.

    Called again with that number under the lock, it reads nothing unless something was fenced since.
    """
    newest = newest_fence(connection, repo_uid)
    if newest > after:
        for info in new_ranges(content, frozenset({made})):
            there = read_range(content.store, COMMITTED, info, ["address"]).column("address")
            own = there.filter(pc.starts_with(there, own_prefix(repo_uid))).to_pylist()
            for address in fenced_among(connection, repo_uid, own, after):
                refuse_fenced(connection, repo_uid, address)
    return newest


def imported_among(
    content: CommittedContent, found: frozenset[Imported], addresses: Iterable[str]
) -> set[str]:
    """Return the addresses that imports brought in; each new range is read once, one at a time."""
    wanted = pa.array(list(addresses), pa.string())
    needed: set[str] = set()
    if not len(wanted):
        return needed
    for info in new_ranges(content, found):
        there = read_range(content.store, COMMITTED, info, ["address"]).column("address")
        needed.update(there.filter(pc.is_in(there, wanted)).to_pylist())
    return needed


def new_ranges(content: CommittedContent, found: frozenset[Imported]) -> list[RangeInfo]:
    """Return the ranges that imports added, each once."""
    known: dict[str, RangeInfo] = {}
    for metarange_id, base_id in sorted(found):
        base = {info.id for info in content.ranges(base_id)} if base_id else set()
        known.update({info.id: info for info in content.ranges(metarange_id) if info.id not in base})
    return list(known.values())
