"""The kind of a database, a rehearsal's or a real one: it never changes, and no root opens the other kind."""

from __future__ import annotations

import os

from sqlalchemy import Boolean, Column, Integer, MetaData, Table, inspect, select
from sqlalchemy.dialects.postgresql import insert as postgres_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.exc import ArgumentError

from ebbtide.core.errors import SafetyStop
from ebbtide.storage.network import check_loopback

_metadata = MetaData()
_kind = Table(
    "root_kind",
    _metadata,
    Column("id", Integer, primary_key=True),
    Column("rehearsal", Boolean, nullable=False),
)


def check_kind(connection: Connection, *, rehearsal: bool) -> None:
    """
    Stop if a database belongs to a root of the other kind; a new one of a rehearsal is marked as such.

    A database that has tables and says nothing of its kind is a real one.
    """
    found = _found(connection, rehearsal=rehearsal)
    if found is not rehearsal:
        names = {True: "a rehearsal", False: "a real root"}
        raise SafetyStop(
            f"the database belongs to {names[found]}, and this is {names[rehearsal]}",
            why="what is rehearsed must never be taken for real, nor be done to what is real",
            fix="use the root that the database was made for, or another database",
        )


def _found(connection: Connection, *, rehearsal: bool) -> bool:
    """Read the kind of a database; give a new one that of the root."""
    tables = inspect(connection).get_table_names()
    if _kind.name in tables:
        return bool(connection.execute(select(_kind.c.rehearsal)).scalar())
    if tables or not rehearsal:
        return False
    _metadata.create_all(connection)
    statement = (postgres_insert if connection.dialect.name == "postgresql" else sqlite_insert)(_kind)
    connection.execute(statement.values(id=1, rehearsal=True).on_conflict_do_nothing())
    return True


def check_local_database(url: str) -> None:
    """Stop unless a database is a file, or a server on this machine."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        return  # Whoever opens it says what is wrong with it.
    if parsed.get_backend_name() == "sqlite":
        return
    if _parameter(parsed, "service", "PGSERVICE"):
        raise SafetyStop(
            "the database is named by a PostgreSQL service",
            why="a service may stand for any host, and this is a rehearsal, which reaches only this machine",
            fix="unset PGSERVICE, and write a loopback address into the URL of the database",
        )
    # libpq connects to the address if there is one, and takes it from the environment by itself.
    named = [parsed.host] if parsed.host else _parameter(parsed, "host", "PGHOST")
    for text in (*named, *_parameter(parsed, "host", ""), *_parameter(parsed, "hostaddr", "PGHOSTADDR")):
        for host in text.split(","):
            if not host.startswith("/"):  # A socket is on this machine.
                check_loopback(host, f"the database at {host or 'an unnamed host'}")


def _parameter(parsed: URL, name: str, variable: str) -> list[str]:
    """Return the values of a connection parameter as libpq finds it: in the URL, else in the environment."""
    value = parsed.query.get(name, ())
    given = [value] if isinstance(value, str) else list(value)
    found = os.environ.get(variable)
    return given or ([found] if found else [])
