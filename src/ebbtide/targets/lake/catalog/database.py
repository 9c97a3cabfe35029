"""
Connections and transactions, the same promises on SQLite and PostgreSQL.

A *reader* sees one moment of the whole catalog for as long as its transaction lasts, and never waits for a
writer. A *writer* is the only one at work on its repository: on SQLite because ``BEGIN IMMEDIATE`` lets one
writer in, on PostgreSQL because every writer first updates the repository's row and so waits for its lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from ebbtide.core.errors import BadInput, EnvironmentProblem
from ebbtide.state.database import connect_options, prepare_sqlite
from ebbtide.state.root_kind import check_kind, check_local_database
from ebbtide.targets.lake.catalog import schema

BUSY_SECONDS = 60
"""How long a SQLite writer waits for another one."""


class Database:
    """The catalog's database, opened from a URL and brought to the current schema."""

    def __init__(self, url: str, *, rehearsal: bool = False) -> None:
        if rehearsal:
            check_local_database(url)
        self._engine = _open(_parsed(url))
        with self.writing() as connection:
            check_kind(connection, rehearsal=rehearsal)
            schema.create_all(connection)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a read transaction: every statement in it sees the same moment."""
        with self._plain_errors(), self._engine.connect() as connection:
            if connection.dialect.name == "postgresql":
                connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            with connection.begin():
                yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open a write transaction; it is committed at the end of the block, or not at all."""
        with self._plain_errors(), self._engine.connect() as connection:
            connection.execution_options(ebbtide_writes=True)
            with connection.begin():
                yield connection

    def close(self) -> None:
        """Close all idle connections."""
        self._engine.dispose()

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        """Turn the driver's errors into ours, without the password."""
        try:
            yield
        except (DBAPIError, PoolTimeout) as failed:
            reason = failed.orig if isinstance(failed, DBAPIError) else failed
            raise EnvironmentProblem(
                f"the catalog's database {self._engine.url.render_as_string()} failed",
                why=str(reason).strip().replace("\n", " "),
                fix="see that it is reachable, writable and not locked, then try again",
            ) from failed


def _parsed(url: str) -> URL:
    """Read the URL; anything but a SQLite file or PostgreSQL is refused."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        parsed = None
    if parsed is None or parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise BadInput(
            f"{url.partition('://')[0]!r} opens no catalog",
            why="the catalog lives in SQLite or PostgreSQL",
            fix="use sqlite:////path/to/file.db or postgresql+psycopg://host/database",
        )
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise BadInput(
            "a catalog in memory cannot be shared by threads, nor survive a crash",
            fix="name a file, as in sqlite:////path/to/file.db",
        )
    return parsed


def _open(url: URL) -> Engine:
    """Make the engine; no connection is opened yet."""
    try:
        if url.get_backend_name() == "postgresql":
            return create_engine(
                url, pool_size=8, max_overflow=32, pool_pre_ping=True, connect_args=connect_options(url)
            )
        engine = create_engine(url, pool_size=8, max_overflow=32)
    except (ImportError, NoSuchModuleError) as missing:
        raise BadInput(
            f"{url.drivername!r} is not installed", fix="use postgresql+psycopg:// or sqlite:///"
        ) from missing
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: object) -> None:
    """Set up a new SQLite connection."""
    # The driver's own idea of when to begin would let a reader's snapshot start late; we send BEGIN.
    connection.isolation_level = None
    prepare_sqlite(connection, BUSY_SECONDS)
    connection.execute("PRAGMA cache_size = -65536")


def _begin_sqlite(connection: Connection) -> None:
    """Begin a transaction of the kind that was asked for."""
    writes = connection.get_execution_options().get("ebbtide_writes", False)
    # IMMEDIATE takes the write lock now: a deferred writer could read first, then find that another
    # one wrote in between, and fail half-way.
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
