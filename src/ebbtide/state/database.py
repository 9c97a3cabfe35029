"""Small tables in SQLite or PostgreSQL: how their database is opened, and what is said when it fails."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Connection,
    Engine,
    MetaData,
    Table,
    create_engine,
    event,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.schema import CreateIndex, CreateTable

from ebbtide.core.errors import EnvironmentProblem
from ebbtide.state.root_kind import check_kind, check_local_database

_BUSY_SECONDS = 30
_CONNECT_SECONDS = 5
_WAL_ATTEMPTS_A_SECOND = 20


def _nothing_to_migrate(_connection: Connection, _version: int) -> None:
    """Leave the rows as they are."""


@dataclass(frozen=True)
class Contents:
    """What is kept in a database: its tables, their version, and the words for trouble with them."""

    name: str
    """As in "the ledger has version 2"."""
    database: str
    """As in "the ledger database failed"."""
    why: str
    """What must not be done while it fails."""
    metadata: MetaData
    about: Table
    """The table with the version."""
    version: int
    migrate: Callable[[Connection, int], None] = _nothing_to_migrate
    """Changes the rows of an older version, whose number it is given; tables that are new are there then."""


class Database:
    """The database of some contents, with their tables made. Every change is one transaction."""

    def __init__(self, url: str, contents: Contents, *, rehearsal: bool | None = None) -> None:
        """Open it, from a root of this kind; None if that was looked at before."""
        self._contents = contents
        if rehearsal:
            check_local_database(url)
        try:
            self._engine = _engine(url)
            with self._engine.begin() as connection:
                if rehearsal is not None:
                    check_kind(connection, rehearsal=rehearsal)
                version = _create(connection, contents)
        except (SQLAlchemyError, OSError) as broken:
            raise self._unusable(broken) from broken
        if version > contents.version:
            raise EnvironmentProblem(
                f"{contents.name} has version {version}, this Ebbtide knows {contents.version}",
                fix="use the newer Ebbtide that wrote it",
            )

    @property
    def is_postgres(self) -> bool:
        """Tell which of the two it is."""
        return self._engine.dialect.name == "postgresql"

    @contextmanager
    def changing(self) -> Iterator[Connection]:
        """Open a transaction; it is committed at the end of the block, or not at all."""
        with self._plain_errors(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a connection to read."""
        with self._plain_errors(), self._engine.connect() as connection:
            yield connection

    def close(self) -> None:
        """Close all idle connections."""
        self._engine.dispose()

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        """Say in words that the database failed."""
        try:
            yield
        except SQLAlchemyError as broken:
            raise self._unusable(broken) from broken

    def _unusable(self, broken: Exception) -> EnvironmentProblem:
        cause = getattr(broken, "orig", None) or broken
        first = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
        return EnvironmentProblem(
            f"{self._contents.database} failed: {first}",
            why=self._contents.why,
            fix="check 'ledger.url' in ebbtide.toml and that the database is up",
        )


def _engine(url: str) -> Engine:
    parsed = make_url(url)
    is_sqlite = parsed.get_backend_name() == "sqlite"
    if is_sqlite and parsed.database:
        Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(parsed, pool_pre_ping=True, connect_args=connect_options(parsed))
    if is_sqlite:
        event.listen(engine, "connect", lambda connection, _record: prepare_sqlite(connection, _BUSY_SECONDS))
    return engine


def connect_options(url: URL) -> dict[str, int]:
    """Give a server a few seconds to answer, unless the URL says how long."""
    waits = url.get_backend_name() == "postgresql" and "connect_timeout" not in url.query
    return {"connect_timeout": _CONNECT_SECONDS} if waits else {}


def _create(connection: Connection, contents: Contents) -> int:
    """Make what is missing and give the version; several processes may do this at once."""
    if connection.dialect.name == "postgresql":
        # CREATE TABLE IF NOT EXISTS can fail when two sessions run it at once; this lock ends with the
        # transaction.
        lock = text("SELECT pg_advisory_xact_lock(hashtext(:name))")
        connection.execute(lock, {"name": contents.about.name})
    for table in contents.metadata.sorted_tables:
        connection.execute(CreateTable(table, if_not_exists=True))
        for index in table.indexes:
            connection.execute(CreateIndex(index, if_not_exists=True))
    version = connection.execute(select(func.max(contents.about.c.version))).scalar()
    if version is None:
        connection.execute(insert(contents.about).values(version=contents.version))
    elif version < contents.version:
        contents.migrate(connection, int(version))
        connection.execute(update(contents.about).values(version=contents.version))
    return max(contents.version, int(version or 0))


def prepare_sqlite(connection: Any, busy_seconds: int) -> None:
    """Set up a new SQLite connection, so that writers wait for each other and what is committed stays."""
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {busy_seconds * 1000}")
    _use_wal(cursor, busy_seconds)
    # FULL: a power cut must not bring back a rule or reference that was removed, nor hide that a wave began.
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _use_wal(cursor: Any, busy_seconds: int) -> None:
    """Switch to the write-ahead log; of several that open a new file at once, SQLite lets only one wait."""
    for left in range(busy_seconds * _WAL_ATTEMPTS_A_SECOND, -1, -1):
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if not left:
                raise
            time.sleep(1 / _WAL_ATTEMPTS_A_SECOND)
        else:
            return
