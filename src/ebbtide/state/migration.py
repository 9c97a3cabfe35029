"""
Schemas of databases: who owns which tables, and how a database of an earlier Ebbtide is upgraded.

Several packages keep tables, often in one database: the run ledger, bucket rules, image records, the catalog.
Each describes its tables as a `Schema` and hands it to `Database`; this package imports none of them. A
schema has its own folder of Alembic migrations and its own version table: owners upgrade independently.

A new database gets the tables of `Schema.metadata` and the newest revision. An older one is upgraded step by
step, in one transaction: a process that is killed leaves the old schema. Databases from before Alembic have
only a number in `Schema.about`; their revision is recognised from it and from the tables that are there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    MetaData,
    String,
    Table,
    func,
    insert,
    inspect,
    select,
    text,
    update,
)

from ebbtide.core.errors import EnvironmentProblem

_LOCK = "ebbtide_schema"


@dataclass(frozen=True)
class Revision:
    """One state of a schema that some Ebbtide has written."""

    id: str
    """The name of the Alembic migration that leads to it."""
    number: int
    """The number in the table `about`. A revision that earlier programs must not write to raises it."""
    evidence: tuple[str, ...]
    """The tables that came with this revision, or an index as TABLE.INDEX."""


def _nothing_to_fill(_connection: Connection) -> None:
    """Leave new tables empty."""


@dataclass(frozen=True)
class Schema:
    """The tables of one owner in a database, their revisions, and the words for trouble with them."""

    owner: str
    """A short name, which the version table begins with."""
    name: str
    """As in "the ledger has version 2"."""
    database: str
    """As in "the ledger database failed"."""
    why: str
    """What is unsafe while the database fails."""
    setting: str
    """The configuration key with the URL of the database."""
    metadata: MetaData
    about: Table
    """The table with the number that programs from before Alembic compare with their own."""
    revisions: tuple[Revision, ...]
    """All revisions, oldest first."""
    migrations: Path
    """The folder with the Alembic migrations."""
    fill: Callable[[Connection], None] = _nothing_to_fill
    """Writes the rows that a new database needs."""

    @property
    def head(self) -> Revision:
        """The newest revision."""
        return self.revisions[-1]

    @property
    def version_table(self) -> str:
        """The name of Alembic's version table for this owner."""
        return f"{self.owner}_alembic_version"


@dataclass(frozen=True)
class _Found:
    """What a database says of its schema."""

    revision: str | None
    """As Alembic recorded it; None before Alembic."""
    number: int | None
    """The number in the table `about`; None in a new database."""


def is_current(connection: Connection, schema: Schema) -> bool:
    """Return True if a database needs no upgrade; refuse one that a newer Ebbtide has written."""
    found = _found(connection, schema)
    _check_not_newer(schema, found)
    return found.revision == schema.head.id


def lock_schemas(connection: Connection, schema: Schema) -> None:
    """Let one process at a time create or upgrade tables; a write transaction of SQLite is alone anyway."""
    if connection.dialect.name == "postgresql":
        # CREATE TABLE IF NOT EXISTS can fail if two sessions run it at once. The second lock is the one that
        # programs from before Alembic take. Both end with the transaction.
        for name in (_LOCK, schema.about.name):
            connection.execute(text("SELECT pg_advisory_xact_lock(hashtext(:name))"), {"name": name})


def create_or_upgrade(connection: Connection, schema: Schema) -> str:
    """
    Create the tables, or upgrade them, in the caller's write transaction; return what was upgraded, or "".

    The caller has called `lock_schemas`, so whatever this reads stays true until the end of the transaction.
    """
    found = _found(connection, schema)
    _check_not_newer(schema, found)
    if found.revision == schema.head.id:
        return ""
    if found.revision is None and found.number is None:
        _create(connection, schema)
        return ""
    before = found.revision or _recognise(connection, schema, found.number or 0)
    if before == schema.head.id:
        return ""  # a database from before Alembic that has all tables
    _upgrade(connection, schema)
    connection.execute(update(schema.about).values(version=schema.head.number))
    return f"{schema.name} was upgraded from schema {before} to {schema.head.id}"


def report_upgrade(message: str, url: str) -> None:
    """Print an upgrade to standard error, because results may be read from standard output."""
    sys.stderr.write(f"note: {message} ({url}); earlier versions of Ebbtide may not open it any more\n")


def _create(connection: Connection, schema: Schema) -> None:
    """Create all tables of a new database."""
    schema.metadata.create_all(connection)
    connection.execute(insert(schema.about).values(version=schema.head.number))
    schema.fill(connection)
    _stamp(connection, schema, schema.head.id)


def _stamp(connection: Connection, schema: Schema, revision: str) -> None:
    """Record a revision as Alembic does, without importing Alembic, which takes longer than all the rest."""
    table = _version_table(schema)
    table.create(connection, checkfirst=True)
    connection.execute(insert(table).values(version_num=revision))


def _version_table(schema: Schema) -> Table:
    return Table(schema.version_table, MetaData(), Column("version_num", String(32), primary_key=True))


def _found(connection: Connection, schema: Schema) -> _Found:
    tables = inspect(connection)
    revision = number = None
    if tables.has_table(schema.version_table):
        revision = connection.execute(select(_version_table(schema).c.version_num)).scalar_one_or_none()
    if tables.has_table(schema.about.name):
        number = connection.execute(select(func.max(schema.about.c.version))).scalar()
    return _Found(revision, number)


def _check_not_newer(schema: Schema, found: _Found) -> None:
    known = {revision.id for revision in schema.revisions}
    is_unknown = found.revision is not None and found.revision not in known
    if is_unknown or (found.number or 0) > schema.head.number:
        theirs, ours = (found.revision, schema.head.id) if is_unknown else (found.number, schema.head.number)
        raise EnvironmentProblem(
            f"{schema.name} has version {theirs}, this Ebbtide knows {ours}",
            why="a newer Ebbtide may keep references or rules where this one would not look",
            fix="upgrade Ebbtide, or use the version that wrote it",
        )


def _recognise(connection: Connection, schema: Schema, number: int) -> str:
    """
    Return the revision of a database from before Alembic, and stamp it.

    Such an Ebbtide created missing tables whenever it opened a database, so the tables may be newer than the
    number. Migrations therefore create what is missing, and change rows only together with that.
    """
    tables, last = inspect(connection), schema.revisions[0]
    for revision in schema.revisions:
        if revision.number > number or not all(_has(tables, one) for one in revision.evidence):
            break
        last = revision
    _stamp(connection, schema, last.id)
    return last.id


def _has(tables: Any, evidence: str) -> bool:
    table, _, index = evidence.partition(".")
    if not tables.has_table(table):
        return False
    return not index or index in {one["name"] for one in tables.get_indexes(table)}


def _upgrade(connection: Connection, schema: Schema) -> None:
    """Run the migrations from the recorded revision to the newest one."""
    from alembic.config import Config  # noqa: PLC0415 - most commands find a current database
    from alembic.runtime.environment import EnvironmentContext  # noqa: PLC0415
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(schema.migrations).replace("%", "%%"))
    config.set_main_option("version_locations", str(schema.migrations).replace("%", "%%"))
    config.set_main_option("path_separator", "newline")
    scripts = ScriptDirectory.from_config(config)

    def steps(revision: Any, _context: Any) -> Any:
        return scripts._upgrade_revs(schema.head.id, revision)  # noqa: SLF001 - as Alembic's own command does

    with EnvironmentContext(config, scripts, fn=steps) as environment:
        environment.configure(connection=connection, version_table=schema.version_table)
        environment.run_migrations()
