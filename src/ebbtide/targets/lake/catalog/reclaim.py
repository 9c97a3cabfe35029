"""
The reclaim queue: addresses that lost a reference, in the transaction that dropped it.

A row *waits* until the reaper looks at it. If something still needs its address the row is taken out:
whatever drops the last reference will queue it again. If nothing does, the same transaction *fences* it, and
from then on no reference to it can be made: an address is random and given out once, and what could still
name it (copy, move, link, import) looks here first, under the same lock. So a fenced address may be deleted
by anybody, at any time, any number of times, and what a crash leaves behind is simply deleted again. Then its
row says *gone* for some days, to whoever asks what became of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar

from sqlalchemy import (
    BigInteger,
    Connection,
    Row,
    Text,
    bindparam,
    cast,
    delete,
    func,
    literal,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite

from ebbtide.core.errors import ObjectGone
from ebbtide.core.instant import format_second, from_micros, to_micros
from ebbtide.targets.lake.catalog import schema
from ebbtide.targets.lake.catalog.partitions import BRANCHES, repository_path
from ebbtide.targets.lake.catalog.writing import Writing

_queue = schema.reclaim
_Item = TypeVar("_Item")
ABOUT = 500
"""How many addresses one statement asks about; both databases limit how many values it may have."""


class Reason(StrEnum):
    """What dropped the reference."""

    OVERWRITTEN = "overwritten"
    DELETED = "deleted"
    RESET = "reset"
    BRANCH = "branch deleted"
    REPOSITORY = "repository deleted"
    COMMITTED_OVER = "overwritten before the commit"
    NEVER_LINKED = "never linked"


class State(StrEnum):
    """How far a row has come."""

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
    """Not to be touched before; of a fenced row until then somebody is at work on it."""
    tries: int
    problem: str
    gone: datetime | None = None
    """When the object was noted to be no longer in the store."""


def own(repo_uid: str) -> str:
    """Say what all addresses begin with that the catalog itself gave out; no other is ever queued."""
    return f"{repository_path(repo_uid)}{BRANCHES}"


def add(writing: Writing, reason: Reason, statement: Any, **values: object) -> None:
    """Queue what a statement of :func:`adding` selects, with these values in it."""
    writing.connection.execute(statement, _common(writing, reason) | values)


def add_addresses(writing: Writing, reason: Reason, addresses: Iterable[str]) -> None:
    """Queue addresses; those that the catalog did not give out are left alone."""
    rows = [_common(writing, reason) | {"one": address} for address in sorted(set(addresses))]
    if rows:
        chosen = select(cast(bindparam("one"), Text).label("address"))
        writing.connection.execute(adding(writing.connection.dialect.name, chosen), rows)


def adding(dialect_name: str, dropped: Any) -> Any:
    """
    Build the statement that queues what a select of one column, `address`, gives.

    To build it costs more than to run it, so whoever runs it often keeps it.
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
    # The grace period counts from the last drop. What is fenced or gone stays so: it has no references.
    return new.on_conflict_do_update(
        index_elements=["repo_uid", "address"],
        set_={"queued": new.excluded.queued, "reason": new.excluded.reason},
        where=_queue.c.state == str(State.WAITING),
    )


def _common(writing: Writing, reason: Reason) -> dict[str, object]:
    """Give the values that every row of one drop has; only addresses that we gave out are queued."""
    uid = writing.repository.uid
    return {"uid": uid, "mine": own(uid) + "%", "now": to_micros(writing.at), "reason": str(reason)}


_FRESH: tuple[tuple[str, object, Any], ...] = (
    ("state", str(State.WAITING), Text()),
    ("fence", 0, BigInteger()),
    ("owner", "", Text()),
    ("again", 0, BigInteger()),
    ("tries", 0, BigInteger()),
    ("problem", "", Text()),
    ("gone", 0, BigInteger()),
)


def refuse_fenced(connection: Connection, repo_uid: str, address: str) -> None:
    """Answer ObjectGone for an address that is fenced or gone; the caller is about to refer to it."""
    found = find(connection, repo_uid, address)
    if found is not None and found.state != State.WAITING:
        raise gone(found)


def find(connection: Connection, repo_uid: str, address: str) -> Reclaimable | None:
    """Look one address up."""
    mine = (_queue.c.repo_uid == repo_uid, _queue.c.address == address)
    row = connection.execute(select(_queue).where(*mine)).first()
    return None if row is None else _to_reclaimable(row)


def gone(row: Reclaimable) -> ObjectGone:
    """Say that the reaper took an object, and why."""
    since = from_micros(to_micros(row.queued))
    return ObjectGone(
        row.address,
        since=since,
        run_id=0,
        rules=(row.reason,),
        restorable=False,
        by=f"the reaper took it: nothing referred to it any more ({row.reason}, {format_second(since)})",
    )


def counts(connection: Connection, repo_uid: str) -> dict[str, int]:
    """Count the rows of each state that there is."""
    mine = select(_queue.c.state, func.count().label("number")).where(_queue.c.repo_uid == repo_uid)
    return {row.state: row.number for row in connection.execute(mine.group_by(_queue.c.state))}


def stream(connection: Connection, repo_uid: str, *states: State) -> Iterator[Reclaimable]:
    """Stream rows in these states, the oldest first, through a cursor of the caller's transaction."""
    mine = (_queue.c.repo_uid == repo_uid, _queue.c.state.in_([str(state) for state in states]))
    statement = select(_queue).where(*mine).order_by(_queue.c.queued, _queue.c.address)
    with connection.execute(statement.execution_options(yield_per=10_000)) as result:
        for row in result:
            yield _to_reclaimable(row)


def waiting(connection: Connection, repo_uid: str, now: datetime, grace: timedelta, limit: int) -> list[str]:
    """Give addresses whose grace period is over, those that wait longest first."""
    statement = _due(repo_uid, State.WAITING, now).where(_queue.c.queued <= to_micros(now - grace))
    order = (_queue.c.queued, _queue.c.address)
    return list(connection.execute(statement.order_by(*order).limit(limit)).scalars())


def abandoned(connection: Connection, repo_uid: str, now: datetime, limit: int) -> list[str]:
    """Give fenced addresses that nobody is at work on: of a reaper that crashed, or to be tried again."""
    statement = _due(repo_uid, State.FENCED, now).order_by(_queue.c.again, _queue.c.address)
    return list(connection.execute(statement.limit(limit)).scalars())


def _due(repo_uid: str, state: State, now: datetime) -> Any:
    return select(_queue.c.address).where(
        _queue.c.repo_uid == repo_uid, _queue.c.state == str(state), _queue.c.again <= to_micros(now)
    )


def still(connection: Connection, repo_uid: str, addresses: Sequence[str], state: State) -> list[str]:
    """Give those that are in this state, in their order."""
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


def fence(
    connection: Connection, repo_uid: str, addresses: Sequence[str], owner: str, until: datetime
) -> None:
    """Fence addresses that the caller has proved to be free, in this very transaction; or take them over."""
    number = newest_fence(connection, repo_uid) + 1
    values = {"state": str(State.FENCED), "fence": number, "owner": owner, "again": to_micros(until)}
    _change(connection, repo_uid, addresses, values)


def newest_fence(connection: Connection, repo_uid: str) -> int:
    """Give the number of the last fence; it grows with each."""
    newest = select(func.coalesce(func.max(_queue.c.fence), 0)).where(_queue.c.repo_uid == repo_uid)
    return int(connection.execute(newest).scalar_one())


def fenced_among(
    connection: Connection, repo_uid: str, addresses: Sequence[str], after: int = 0
) -> list[str]:
    """Give those that were fenced after the fence of this number, gone or not."""
    return [
        address
        for part in chunks(addresses)
        for address in connection.execute(
            select(_queue.c.address).where(
                _queue.c.repo_uid == repo_uid, _queue.c.address.in_(part), _queue.c.fence > after
            )
        ).scalars()
    ]


def take_out(connection: Connection, repo_uid: str, addresses: Sequence[str]) -> None:
    """Take out of the queue what is needed; who drops the last reference to it will queue it again."""
    for part in chunks(addresses):
        connection.execute(delete(_queue).where(_queue.c.repo_uid == repo_uid, _queue.c.address.in_(part)))


def bury(connection: Connection, repo_uid: str, addresses: Sequence[str], now: datetime) -> None:
    """Note that fenced objects are no longer in the store."""
    values = {"state": str(State.GONE), "gone": to_micros(now), "owner": "", "problem": ""}
    _change(connection, repo_uid, addresses, values)


def postpone(
    connection: Connection, repo_uid: str, problems: Sequence[tuple[str, str]], until: datetime
) -> None:
    """Note that the store would not delete these now; they stay fenced, for nobody knows what it did."""
    statement = (
        _queue.update()
        .where(_queue.c.repo_uid == repo_uid, _queue.c.address == bindparam("one"))
        .values(problem=bindparam("said"), again=to_micros(until), tries=_queue.c.tries + 1)
    )
    if problems:
        connection.execute(statement, [{"one": address, "said": said[:500]} for address, said in problems])


def forget_gone(connection: Connection, repo_uid: str, before: datetime) -> None:
    """
    Forget what was deleted before a moment, but for the last that was fenced.

    It tells the number of the last fence. If the numbers began anew, an import that looked before would take
    a later fence for one that it has seen.
    """
    old = (_queue.c.state == str(State.GONE), _queue.c.gone < to_micros(before))
    known = _queue.c.fence < newest_fence(connection, repo_uid)
    connection.execute(delete(_queue).where(_queue.c.repo_uid == repo_uid, *old, known))


def forget_repository(connection: Connection, repo_uid: str) -> None:
    """Forget all that is known of the addresses of a repository that is gone, objects and all."""
    for table in (_queue, schema.shared, schema.imports):
        connection.execute(delete(table).where(table.c.repo_uid == repo_uid))


def chunks(items: Sequence[_Item], size: int = ABOUT) -> Iterator[Sequence[_Item]]:
    """Cut a sequence into parts that one statement can take."""
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
