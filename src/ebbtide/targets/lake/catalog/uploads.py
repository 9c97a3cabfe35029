"""Uploads: new objects, staged addresses outside the namespace, and tokens for physical addresses."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, Row, delete, exists, insert, select, update

from ebbtide.core.errors import NotFound, Refused
from ebbtide.core.instant import format_second, from_micros, to_micros
from ebbtide.storage.address import canonical, is_inside
from ebbtide.storage.namespace import encloses
from ebbtide.targets.lake.catalog import reclaim_queue, refs, schema, staging
from ebbtide.targets.lake.catalog.fence import FencedCatalog
from ebbtide.targets.lake.catalog.imports import Neighbour, check_foreign
from ebbtide.targets.lake.catalog.model import Entry, PhysicalAddress, Repository
from ebbtide.targets.lake.catalog.names import check_entry, check_key
from ebbtide.targets.lake.catalog.ranges import Table
from ebbtide.targets.lake.catalog.reclaim_queue import DropReason
from ebbtide.targets.lake.catalog.refs import Branch, WriteTransaction

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

_BATCH_OBJECTS = 2_000
_BATCH_BYTES = 64 * 2**20
_WRITERS = 16


def issue_token(
    writing: WriteTransaction, branch: Branch, key: str, address: str, now: datetime, life: timedelta
) -> PhysicalAddress:
    """Issue a token for a new address."""
    token = secrets.token_urlsafe(24)
    connection = writing.connection
    old = (_tokens.c.branch_id == branch.id, _tokens.c.expires < to_micros(now - _REMEMBERED))
    _queue_unlinked(writing, DropReason.NEVER_LINKED, *old)
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


def check_token(connection: Connection, branch: Branch, key: str, token: str, now: datetime) -> str:
    """Return the address of a token, or raise an error that says why it is not valid."""
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
    """Return why a token is not valid, or ""."""
    if row is None:
        return "it was never issued, or expired long ago"
    if (row.branch_id, row.key) != (branch.id, key):
        return "it was issued for another repository, branch or key"
    if row.used:
        return "it was used before"
    expires = from_micros(row.expires)
    return f"it expired at {format_second(expires)}" if now >= expires else ""


def use_token(connection: Connection, token: str) -> None:
    """Mark a token as used; the caller checked it in the same transaction, under the repository's lock."""
    connection.execute(update(_tokens).where(_tokens.c.token == token).values(used=True))


def queue_branch_tokens(writing: WriteTransaction, reason: DropReason, branch_ids: Any) -> None:
    """Queue unlinked addresses of branches that are about to be deleted."""
    _queue_unlinked(writing, reason, _tokens.c.branch_id.in_(branch_ids))


def queue_expired_tokens(writing: WriteTransaction, now: datetime) -> None:
    """Queue addresses with expired tokens; the tokens stay, so that a late link gets a precise error."""
    mine = select(schema.branches.c.id).where(schema.branches.c.repo_uid == writing.repository.uid)
    queued = exists().where(
        schema.reclaim.c.repo_uid == writing.repository.uid,
        schema.reclaim.c.address == _tokens.c.address,
    )
    expired = _tokens.c.expires <= to_micros(now)
    _queue_unlinked(writing, DropReason.NEVER_LINKED, _tokens.c.branch_id.in_(mine), expired, ~queued)


def forget_expired_tokens(connection: Connection, addresses: Sequence[str], now: datetime) -> None:
    """Remove expired tokens of addresses, so that these are not queued again."""
    expired = (_tokens.c.used.is_(False), _tokens.c.expires <= to_micros(now))
    for part in reclaim_queue.chunks(addresses):
        connection.execute(delete(_tokens).where(_tokens.c.address.in_(part), *expired))


def _queue_unlinked(writing: WriteTransaction, reason: DropReason, *where: Any) -> None:
    """Queue the addresses of unused tokens; those of used tokens are or were staged."""
    chosen = select(_tokens.c.address).where(_tokens.c.used.is_(False), *where)
    reclaim_queue.queue_selected(
        writing, reason, reclaim_queue.queue_statement(writing.connection.dialect.name, chosen)
    )


def read_open_uploads(connection: Connection, repo_uid: str, now: datetime) -> Iterator[Table]:
    """
    Yield the addresses that may still be linked, and until when: they must not be collected.

    Reads page by page through a cursor of the caller's transaction, so all are of one moment.
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


class Uploads(FencedCatalog):
    """
    New entries. The object is always in the store before its entry is in the database.

    Between the two steps it is unreferenced; it is not collected because it is younger than the grace
    period. If the second step never comes, it is garbage and is collected later.
    """

    def upload(self, repo: str, branch: str, key: str, data: bytes) -> Entry:
        """Store an object and stage its entry."""
        found, to = self._target(repo, branch)
        entry = self._store_object(found, to, key, data)
        with self._writing(repo) as writing:
            staging.put(writing, refs.same_branch(writing.connection, writing.repository, to), [entry])
        return entry

    def upload_many(self, repo: str, branch: str, items: Iterable[tuple[str, bytes]]) -> int:
        """Store and stage a stream of (key, data), one transaction per batch; return their number."""
        found, to = self._target(repo, branch)
        count = 0
        with ThreadPoolExecutor(_WRITERS) as pool:
            # On a local disk one thread is fastest.
            run = map if found.namespace.startswith("file:") else pool.map
            for batch in _batches(items):
                entries = list(run(lambda item: self._store_object(found, to, *item), batch))
                with self._writing(repo) as writing:
                    target = refs.same_branch(writing.connection, writing.repository, to)
                    staging.put(writing, target, entries)
                count += len(entries)
        return count

    def stage(
        self,
        repo: str,
        branch: str,
        key: str,
        address: str,
        size: int,
        checksum: str = "",
        created: datetime | None = None,
    ) -> Entry:
        """Stage an object that lies outside the namespace, so that no run ever deletes it."""
        entry = Entry(key, address, created or self._clock(), size, checksum)
        self.stage_many(repo, branch, [entry])
        return replace(entry, address=canonical(address, None))

    def stage_many(self, repo: str, branch: str, entries: Iterable[Entry]) -> int:
        """Stage many such objects in one transaction, all or none; return their number."""
        with self._reading(repo) as (connection, found):
            to = refs.branch(connection, found, branch)
            others = refs.neighbours(connection, found)
        staged = [_outside(found, others, entry) for entry in entries]
        with self._writing(repo) as writing:
            # The same branch is one of the same repository: what was checked above holds for it.
            to = refs.same_branch(writing.connection, writing.repository, to)
            staging.put(writing, to, staged)
        return len(staged)

    def get_physical_address(self, repo: str, branch: str, key: str) -> PhysicalAddress:
        """Return an address to upload to, and a single-use token to link it to this key."""
        check_key(key)
        with self._writing(repo) as writing:
            to = refs.branch(writing.connection, writing.repository, branch)
            address = self._partitions.address(writing.repository.uid, to.id)
            now = self._clock()
            return issue_token(writing, to, key, address, now, self._token_life)

    def link_physical_address(
        self, repo: str, branch: str, key: str, token: str, *, size: int, checksum: str = ""
    ) -> Entry:
        """Stage an object that was uploaded to a physical address; it must be in the store, complete."""
        found, to = self._target(repo, branch)
        with self._database.reading() as connection:
            address = check_token(connection, to, key, token, self._clock())
        self._check_uploaded(found, key, address, size)
        with self._referring(repo) as writing:
            # Checked again under the lock: of two that link at once, one finds the token used.
            to, now = refs.same_branch(writing.connection, writing.repository, to), self._clock()
            address = check_token(writing.connection, to, key, token, now)
            # The reaper's clock may be ahead of ours: what it took for never linked may be fenced.
            reclaim_queue.refuse_fenced(writing.connection, writing.repository.uid, address)
            # Or it waits; a commit that takes it in leaves no other trace, so it must not wait on.
            reclaim_queue.dequeue(writing.connection, writing.repository.uid, [address])
            # Checked again with the fence open: a run whose clock is ahead of ours may have taken the object
            # for an expired upload, and deleted it in between.
            self._check_uploaded(found, key, address, size)
            entry = check_entry(Entry(key, address, now, size, checksum))
            use_token(writing.connection, token)
            staging.put(writing, to, [entry])
        return entry

    def open_uploads(self, repo: str) -> Iterator[Table]:
        """
        Yield the physical addresses that may still be linked, with the expiry of their tokens.

        All are of one moment, in no order. A collector reads this *before* the snapshot: an address that is
        linked in between is then in both; the other way round it would be in neither.
        """
        with self._reading(repo) as (connection, found):
            yield from read_open_uploads(connection, found.uid, self._clock())

    def _target(self, repo: str, branch: str) -> tuple[Repository, Branch]:
        """Find the branch to upload to."""
        with self._reading(repo) as (connection, found):
            return found, refs.branch(connection, found, branch)

    def _store_object(self, repo: Repository, branch: Branch, key: str, data: bytes) -> Entry:
        """Write an object under a new address and describe it."""
        check_key(key)
        address = self._partitions.address(repo.uid, branch.id)
        self._content(repo.namespace).store.write(address, data, unknown=True)
        checksum = hashlib.md5(data, usedforsecurity=False).hexdigest()
        return Entry(key, address, self._clock(), len(data), checksum)

    def _check_uploaded(self, repo: Repository, key: str, address: str, size: int) -> None:
        """Refuse to link an object that is not in the store with the announced size."""
        try:
            stored = self._content(repo.namespace).store.stat(address).size
        except NotFound:
            stored = None
        if stored != size:
            raise Refused(
                f"{key!r} cannot be linked",
                why=f"there is no object at {address}"
                if stored is None
                else f"the object at {address} has {stored} bytes, not {size}",
                fix="upload the whole object to that address first, then link it with the same token",
            )


def _outside(repo: Repository, others: Sequence[Neighbour], entry: Entry) -> Entry:
    """Return an entry with a canonical address; refuse one inside any repository's namespace."""
    check_entry(entry)
    check_foreign(entry.address, others)
    address = canonical(entry.address, repo.namespace)
    if is_inside(address) or encloses(repo.namespace, address):
        raise Refused(
            f"{entry.address!r} lies inside the namespace of repository {repo.name!r}",
            why="only addresses outside it may be staged, so that no run can delete them",
            fix="upload the object, or ask for a physical address and link it",
        )
    return replace(entry, address=address)


def _batches(items: Iterable[tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes]]]:
    """Split a stream into batches that fit in memory."""
    batch: list[tuple[str, bytes]] = []
    weight = 0
    for key, data in items:
        batch.append((key, data))
        weight += len(data)
        if len(batch) >= _BATCH_OBJECTS or weight >= _BATCH_BYTES:
            yield batch
            batch, weight = [], 0
    if batch:
        yield batch
