"""The table of buckets' configurations, and how its database is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    event,
    func,
    insert,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import TEXT as POSTGRES_TEXT
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.schema import CreateTable

from ebbtide.errors import EnvironmentProblem

VERSION = 1

metadata = MetaData()

about = Table("bucket_rules_about", metadata, Column("version", Integer, nullable=False))

rules = Table(
    "bucket_rules",
    metadata,
    # Ordered by its bytes on both databases.
    Column("bucket", Text().with_variant(POSTGRES_TEXT(collation="C"), "postgresql"), primary_key=True),
    Column("text", Text, nullable=False),
    Column("hash", String(64), nullable=False),
    Column("enabled", Boolean, nullable=False),
    Column("updated", BigInteger, nullable=False),
)


def open_database(url: str) -> Engine:
    """Open the database and make the table if it is missing; one that a newer Ebbtide made is refused."""
    try:
        parsed = make_url(url)
        is_sqlite = parsed.get_backend_name() == "sqlite"
        if is_sqlite and parsed.database:
            Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
        engine = create_engine(parsed, pool_pre_ping=True)
        if is_sqlite:
            event.listen(engine, "connect", _prepare_sqlite)
        with engine.begin() as connection:
            version = _create(connection)
    except (SQLAlchemyError, OSError) as broken:
        raise unusable(broken) from broken
    if version > VERSION:
        raise EnvironmentProblem(
            f"the table of bucket rules has version {version}, this Ebbtide knows {VERSION}",
            fix="use the newer Ebbtide that wrote it",
        )
    return engine


def unusable(broken: Exception) -> EnvironmentProblem:
    """Say in words that the database failed."""
    cause = getattr(broken, "orig", None) or broken
    first = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
    return EnvironmentProblem(
        f"the database of bucket rules failed: {first}",
        why="without its rules nobody can say what a bucket may lose",
        fix="check 'ledger.url' in ebbtide.toml and that the database is up",
    )


def _create(connection: Connection) -> int:
    if connection.dialect.name == "postgresql":
        # CREATE TABLE IF NOT EXISTS can fail when two sessions run it at once; this lock ends with the
        # transaction.
        connection.execute(text("SELECT pg_advisory_xact_lock(hashtext('bucket_rules'))"))
    for table in metadata.sorted_tables:
        connection.execute(CreateTable(table, if_not_exists=True))
    version = connection.execute(select(func.max(about.c.version))).scalar()
    if version is None:
        connection.execute(insert(about).values(version=VERSION))
    return VERSION if version is None else int(version)


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    # FULL: a power cut must not bring back a rule that was removed.
    for pragma in ("busy_timeout=30000", "journal_mode=WAL", "synchronous=FULL"):
        connection.execute(f"PRAGMA {pragma}")
