"""The rows that deleted repositories leave behind, until what lies in their namespaces is collected."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select

from ebbtide.core.errors import NotFound
from ebbtide.core.instant import from_micros, to_micros
from ebbtide.targets.lake.catalog import schema
from ebbtide.targets.lake.catalog.model import Repository, RetiredRepository

_table = schema.retired


def add(connection: Connection, repo: Repository, now: datetime) -> RetiredRepository:
    """Remember a repository, in the transaction that deletes it."""
    gone = RetiredRepository(repo.name, repo.uid, repo.namespace, now)
    row = {"uid": gone.uid, "name": gone.name, "namespace": gone.namespace, "deleted": to_micros(now)}
    connection.execute(insert(_table).values(row))
    return gone


def everyone(connection: Connection) -> list[RetiredRepository]:
    """Give all, by the time of their deletion."""
    rows = connection.execute(select(_table).order_by(_table.c.deleted, _table.c.uid))
    return [_to_retired(row) for row in rows]


def latest(connection: Connection, name: str) -> RetiredRepository | None:
    """Find the one that had this name last, if there is any."""
    named = select(_table).where(_table.c.name == name)
    row = connection.execute(named.order_by(_table.c.deleted.desc(), _table.c.uid.desc()).limit(1)).first()
    return None if row is None else _to_retired(row)


def find(connection: Connection, uid: str) -> RetiredRepository:
    """Find one by its uid."""
    row = connection.execute(select(_table).where(_table.c.uid == uid)).first()
    if row is None:
        raise unknown(uid)
    return _to_retired(row)


def forget(connection: Connection, uid: str) -> None:
    """Remove one."""
    if connection.execute(delete(_table).where(_table.c.uid == uid)).rowcount == 0:
        raise unknown(uid)


def unknown(name_or_uid: str) -> NotFound:
    """Say that there is no such deleted repository."""
    return NotFound(
        f"there is no deleted repository {name_or_uid!r}",
        why="it was never deleted, or its objects are collected already",
        fix="see 'ebb lake list --deleted'",
    )


def how_to_collect(name: str) -> str:
    """Say how the objects of a deleted repository are collected."""
    return f"'ebb plan lake:{name} --deleted' and 'ebb apply'"


def _to_retired(row: Row[Any]) -> RetiredRepository:
    """Turn a row into a RetiredRepository."""
    return RetiredRepository(row.name, row.uid, row.namespace, from_micros(row.deleted))
