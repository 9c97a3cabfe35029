"""Upload tokens: single use, expiring, good for one key on one branch."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, Row, delete, exists, insert, select, update

from ebbtide.core.errors import Refused
from ebbtide.core.instant import format_second, from_micros, to_micros
from ebbtide.targets.lake.catalog import reclaim, schema
from ebbtide.targets.lake.catalog.model import PhysicalAddress
from ebbtide.targets.lake.catalog.ranges import Table
from ebbtide.targets.lake.catalog.reclaim import Reason
from ebbtide.targets.lake.catalog.refs import Branch
from ebbtide.targets.lake.catalog.writing import Writing

TOKEN_LIFE = timedelta(hours=24)
_REMEMBERED = timedelta(days=7)
"""How long after expiry a token still gets the precise answer, before it is forgotten."""

PAGE = 50_000
OPEN_UPLOADS = pa.schema(
    [
        pa.field("address", pa.string(), nullable=False),
        pa.field("expires", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)

_tokens = schema.tokens


def issue(
    writing: Writing, branch: Branch, key: str, address: str, now: datetime, life: timedelta
) -> PhysicalAddress:
    """Hand out a token for an address that nobody else was given."""
    token = secrets.token_urlsafe(24)
    connection = writing.connection
    old = (_tokens.c.branch_id == branch.id, _tokens.c.expires < to_micros(now - _REMEMBERED))
    _queue_unlinked(writing, Reason.NEVER_LINKED, *old)
    connection.execute(delete(_tokens).where(*old))
    connection.execute(
        insert(_tokens).values(
            token=token,
            branch_id=branch.id,
            key=key,
            address=address,
            expires=to_micros(now + life),
            used=False,
        )
    )
    return PhysicalAddress(address, token, now + life)


def check(connection: Connection, branch: Branch, key: str, token: str, now: datetime) -> str:
    """Give the address that the token was issued for, or say why it is not good here and now."""
    row = connection.execute(select(_tokens).where(_tokens.c.token == token)).first()
    problem = _problem(row, branch, key, now)
    if problem or row is None:
        raise Refused(
            f"the token does not allow linking {key!r} on branch {branch.name!r}",
            why=problem,
            fix="ask for a new physical address, upload the object there, and link that",
        )
    return str(row.address)


def _problem(row: Row[Any] | None, branch: Branch, key: str, now: datetime) -> str:
    """Say why a token is not good here and now, or nothing."""
    if row is None:
        return "it was never issued, or expired long ago"
    if (row.branch_id, row.key) != (branch.id, key):
        return "it was issued for another repository, branch or key"
    if row.used:
        return "it was used before"
    expires = from_micros(row.expires)
    return f"it expired at {format_second(expires)}" if now >= expires else ""


def use(connection: Connection, token: str) -> None:
    """Mark a token as used; the caller checked it in the same transaction, under the repository's lock."""
    connection.execute(update(_tokens).where(_tokens.c.token == token).values(used=True))


def queue_branches(writing: Writing, reason: Reason, branch_ids: Any) -> None:
    """Queue what was never linked on branches that are about to be deleted, with their tokens."""
    _queue_unlinked(writing, reason, _tokens.c.branch_id.in_(branch_ids))


def queue_expired(writing: Writing, now: datetime) -> None:
    """Queue what can be linked no more and is not in the queue yet; the token stays, to give its answer."""
    mine = select(schema.branches.c.id).where(schema.branches.c.repo_uid == writing.repository.uid)
    queued = exists().where(
        schema.reclaim.c.repo_uid == writing.repository.uid,
        schema.reclaim.c.address == _tokens.c.address,
    )
    expired = _tokens.c.expires <= to_micros(now)
    _queue_unlinked(writing, Reason.NEVER_LINKED, _tokens.c.branch_id.in_(mine), expired, ~queued)


def forget_expired(connection: Connection, addresses: Sequence[str], now: datetime) -> None:
    """Forget expired tokens of addresses, so that they are not taken for never linked again."""
    expired = (_tokens.c.used.is_(False), _tokens.c.expires <= to_micros(now))
    for part in reclaim.chunks(addresses):
        connection.execute(delete(_tokens).where(_tokens.c.address.in_(part), *expired))


def _queue_unlinked(writing: Writing, reason: Reason, *where: Any) -> None:
    """Queue the addresses of some tokens, but for those that were used: these are staged, or were."""
    chosen = select(_tokens.c.address).where(_tokens.c.used.is_(False), *where)
    reclaim.add(writing, reason, reclaim.adding(writing.connection.dialect.name, chosen))


def open_uploads(connection: Connection, repo_uid: str, now: datetime) -> Iterator[Table]:
    """
    Stream the addresses that may still be linked, and until when: garbage collection must spare them.

    Reads page by page through a cursor of the caller's transaction, which fixes the moment.
    """
    # The tokens of a branch go with it. That hides no upload that must be spared: a token links on its own
    # branch alone, and a branch made anew under the same name is another one.
    table = schema.branches
    statement = (
        select(_tokens.c.address, _tokens.c.expires)
        .join(table, table.c.id == _tokens.c.branch_id)
        .where(table.c.repo_uid == repo_uid, _tokens.c.expires > to_micros(now))
        .where(_tokens.c.used.is_(False))
        .execution_options(yield_per=PAGE)
    )
    with connection.execute(statement) as result:
        for rows in result.partitions():
            columns = zip(zip(*rows, strict=True), OPEN_UPLOADS, strict=True)
            yield pa.table([pa.array(v, type=f.type) for v, f in columns], schema=OPEN_UPLOADS)
