"""
Databases in SQLite or PostgreSQL: opening, transactions and errors, with the same promises on both.

A *reader* sees one moment of the whole database for as long as its transaction lasts, and never waits for a
writer. A *writer* on SQLite is alone from its first statement on (``BEGIN IMMEDIATE``). On PostgreSQL writers
run at the same time; one that must be alone at work on something locks its row first.

A database belongs to a rehearsal or to a real root. That never changes, and no root opens the other kind.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    Table,
    Text,
    create_engine,
    event,
    inspect,
    select,
)
from sqlalchemy.dialects.postgresql import TEXT as POSTGRES_TEXT
from sqlalchemy.dialects.postgresql import Insert as PostgresInsert
from sqlalchemy.dialects.postgresql import insert as postgres_insert
from sqlalchemy.dialects.sqlite import Insert as SQLiteInsert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from ebbtide.core.errors import BadInput, EnvironmentProblem, SafetyStop
from ebbtide.state.migration import Schema, create_or_upgrade, is_current, lock_schemas, report_upgrade
from ebbtide.storage.network import check_loopback

_metadata = MetaData()
_kind = Table(
    "root_kind",
    _metadata,
    Column("id", Integer, primary_key=True),
    Column("rehearsal", Boolean, nullable=False),
)

NAME = Text().with_variant(POSTGRES_TEXT(collation="C"), "postgresql")
"""Text ordered by its bytes, as SQLite, Arrow and Python order it; a locale would order it differently."""
_BUSY_SECONDS = 60
"""How long a SQLite writer waits for another one."""
_CONNECT_SECONDS = 5
_WAL_ATTEMPTS_A_SECOND = 20
_CONFLICTS = {"40001", "40P01"}
"""PostgreSQL's states for a serialization failure and a deadlock."""
_ATTEMPTS = 5
_PAUSE_SECONDS = 0.05
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class Conflict(EnvironmentProblem):
    """PostgreSQL undid a transaction because of another one; nothing happened, so it can be repeated."""


class Database:
    """A database with the tables of one owner, opened from a URL and upgraded to the current schema."""

    def __init__(self, url: str, schema: Schema, *, rehearsal: bool | None = None) -> None:
        """Open it from a root of this kind; None if another owner of the same database has checked that."""
        self.schema = schema
        parsed = _parsed(url, schema)
        if rehearsal:
            check_local_database(url)
        self._engine = _engine(parsed, schema)
        self._prepare(rehearsal=rehearsal)

    @property
    def is_postgres(self) -> bool:
        """Return True for PostgreSQL, False for SQLite."""
        return self._engine.dialect.name == "postgresql"

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

    def _prepare(self, *, rehearsal: bool | None) -> None:
        """Check the kind of the database, then create or upgrade its tables if that is needed."""
        with self.reading() as connection:
            if is_current(connection, self.schema):
                if rehearsal is not None:
                    check_kind(connection, rehearsal=rehearsal)
                return
        with self.writing() as connection:
            lock_schemas(connection, self.schema)
            if rehearsal is not None:
                check_kind(connection, rehearsal=rehearsal)
            upgraded = create_or_upgrade(connection, self.schema)
        if upgraded:
            report_upgrade(upgraded, self._engine.url.render_as_string())

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        """Turn the errors of SQLAlchemy and the driver into ours, without the password."""
        try:
            yield
        except SQLAlchemyError as failed:
            cause = getattr(failed, "orig", None) or failed
            state = getattr(cause, "sqlstate", None)
            kind = Conflict if isinstance(failed, DBAPIError) and state in _CONFLICTS else EnvironmentProblem
            raise _failure(self.schema, cause, self._engine.url, kind) from failed


def repeated(method: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Run a method again if PostgreSQL undid its only transaction because of another one."""

    @wraps(method)
    def attempts(*args: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
        for left in range(_ATTEMPTS - 1, -1, -1):
            try:
                return method(*args, **options)
            except Conflict:
                if not left:
                    raise
                time.sleep(_PAUSE_SECONDS)
        raise AssertionError

    return attempts


def new_rows(connection: Connection, table: Table) -> PostgresInsert | SQLiteInsert:
    """Return an insert statement of the database's dialect, for use with ON CONFLICT."""
    return (postgres_insert if connection.dialect.name == "postgresql" else sqlite_insert)(table)


def upsert(
    connection: Connection,
    table: Table,
    rows: Sequence[dict[str, Any]],
    key: Sequence[str],
    change: dict[str, Any] | None = None,
) -> None:
    """Insert rows; where a key is already there, make this change, or replace the whole row."""
    if not rows:
        return
    statement = new_rows(connection, table)
    whole = {name: statement.excluded[name] for name in rows[0] if name not in key}
    connection.execute(
        statement.on_conflict_do_update(index_elements=list(key), set_=change or whole), list(rows)
    )


def connect_options(url: URL) -> dict[str, int]:
    """Return the options that give a server a few seconds to answer, unless the URL has a timeout."""
    waits = url.get_backend_name() == "postgresql" and "connect_timeout" not in url.query
    return {"connect_timeout": _CONNECT_SECONDS} if waits else {}


def _failure(
    schema: Schema, cause: BaseException, url: URL, kind: type[EnvironmentProblem] = EnvironmentProblem
) -> EnvironmentProblem:
    first = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
    return kind(
        f"{schema.database} failed: {first}",
        why=schema.why,
        fix=f"check '{schema.setting}' in ebbtide.toml ({url.render_as_string()}), and that the database is"
        " up, writable and not locked",
    )


def _parsed(url: str, schema: Schema) -> URL:
    """Read the URL; anything but a SQLite file or PostgreSQL is refused."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        parsed = None
    if parsed is None or parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise BadInput(
            f"{url.partition('://')[0]!r} is not a database for {schema.name}",
            why="only SQLite and PostgreSQL are supported",
            fix="use sqlite:////path/to/file.db or postgresql+psycopg://host/database",
        )
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise BadInput(
            f"{schema.name} cannot be kept in memory",
            why="a database in memory is not shared by threads and does not survive a crash",
            fix="name a file, as in sqlite:////path/to/file.db",
        )
    return parsed


def _engine(url: URL, schema: Schema) -> Engine:
    """Make the engine; no connection is opened yet."""
    pool: dict[str, Any] = {"pool_size": 8, "max_overflow": 32}
    try:
        if url.get_backend_name() == "postgresql":
            return create_engine(url, pool_pre_ping=True, connect_args=connect_options(url), **pool)
        engine = create_engine(url, **pool)
    except (ImportError, NoSuchModuleError) as missing:
        raise BadInput(
            f"{url.drivername!r} is not installed", fix="use postgresql+psycopg:// or sqlite:///"
        ) from missing
    try:
        Path(url.database or "").parent.mkdir(parents=True, exist_ok=True)
    except OSError as failed:
        raise _failure(schema, failed, url) from failed
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: object) -> None:
    """Set up a new SQLite connection, so that writers wait for each other and committed rows stay."""
    # The driver's own idea of when to begin would let a reader's snapshot start late; we send BEGIN.
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout = {_BUSY_SECONDS * 1000}")
    _use_wal(connection)
    # FULL: a power cut must not bring back a removed rule or reference, nor hide that a batch has begun.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA cache_size = -65536")


def _use_wal(connection: Any) -> None:
    """Switch to the write-ahead log; if several open a new file at once, SQLite lets only one wait."""
    for left in range(_BUSY_SECONDS * _WAL_ATTEMPTS_A_SECOND, -1, -1):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if not left:
                raise
            time.sleep(1 / _WAL_ATTEMPTS_A_SECOND)
        else:
            return


def _begin_sqlite(connection: Connection) -> None:
    """Begin a transaction of the kind that was asked for."""
    writes = connection.get_execution_options().get("ebbtide_writes", False)
    # IMMEDIATE takes the write lock now: a deferred writer could read first, then find that another
    # one wrote in between, and fail half-way.
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def check_kind(connection: Connection, *, rehearsal: bool) -> None:
    """
    Stop if a database belongs to a root of the other kind; mark a new database of a rehearsal.

    A database with tables and without a kind is a real one.
    """
    found = _found(connection, rehearsal=rehearsal)
    if found is not rehearsal:
        names = {True: "a rehearsal", False: "a real root"}
        raise SafetyStop(
            f"the database belongs to {names[found]}, and this is {names[rehearsal]}",
            why="a rehearsal must never change real data, and its results must not be taken for real ones",
            fix="use the root that the database was made for, or another database",
        )


def _found(connection: Connection, *, rehearsal: bool) -> bool:
    """Return the kind of a database; record the kind of a new one."""
    tables = inspect(connection).get_table_names()
    if _kind.name in tables:
        return bool(connection.execute(select(_kind.c.rehearsal)).scalar())
    if tables or not rehearsal:
        return False
    _metadata.create_all(connection)
    row = new_rows(connection, _kind).values(id=1, rehearsal=True)
    connection.execute(row.on_conflict_do_nothing())
    return True


def check_local_database(url: str) -> None:
    """Stop unless a database is a file, or a server on this machine."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        return  # Opening it raises an error that says what is wrong.
    if parsed.get_backend_name() == "sqlite":
        return
    if _parameter(parsed, "service", "PGSERVICE"):
        raise SafetyStop(
            "the database is named by a PostgreSQL service",
            why="a service may stand for any host, and this is a rehearsal, which reaches only this machine",
            fix="unset PGSERVICE, and write a loopback address into the URL of the database",
        )
    # libpq connects to the address if there is one, and reads it from the environment by itself.
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
