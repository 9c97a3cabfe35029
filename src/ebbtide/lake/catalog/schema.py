"""The catalog's tables. Times are microseconds since 1970, so that both databases hold the same integer."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    func,
    insert,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import TEXT as POSTGRES_TEXT

from ebbtide.errors import EnvironmentProblem

SCHEMA_VERSION = 1

metadata = MetaData()

_NAME = Text().with_variant(POSTGRES_TEXT(collation="C"), "postgresql")
"""Text ordered by its bytes, as SQLite, Arrow and Python order it; a locale would break range order."""


def _owner() -> Column[str]:
    """Make the column that ties a row to its repository."""
    return Column(
        "repo_uid",
        Text,
        ForeignKey("catalog_repositories.uid", ondelete="CASCADE"),
        primary_key=True,
    )


def _branch() -> Column[str]:
    """Make the column that ties a row to its branch."""
    return Column(
        "branch_id",
        Text,
        ForeignKey("catalog_branches.id", ondelete="CASCADE"),
        primary_key=True,
    )


def _texts(name: str) -> Table:
    """Make a table that keeps every version of a repository's text of one kind."""
    return Table(
        name,
        metadata,
        _owner(),
        Column("version", BigInteger, primary_key=True),
        Column("text", Text, nullable=False),
        Column("format", Text, nullable=False),
        Column("created", BigInteger, nullable=False),
    )


versions = Table("catalog_schema", metadata, Column("version", Integer, nullable=False))

repositories = Table(
    "catalog_repositories",
    metadata,
    Column("uid", Text, primary_key=True),
    Column("name", _NAME, nullable=False, unique=True),
    Column("namespace", Text, nullable=False, unique=True),
    Column("default_branch", Text, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("range_keys", BigInteger, nullable=False),
    Column("sequence", BigInteger, nullable=False),
)

# No foreign key: these rows are what stays of repositories that are gone.
retired = Table(
    "catalog_retired",
    metadata,
    Column("uid", Text, primary_key=True),
    Column("name", _NAME, nullable=False),
    Column("namespace", Text, nullable=False),
    Column("deleted", BigInteger, nullable=False),
)

branches = Table(
    "catalog_branches",
    metadata,
    Column("id", Text, primary_key=True),
    Column(
        "repo_uid",
        Text,
        ForeignKey("catalog_repositories.uid", ondelete="CASCADE"),
        nullable=False,
    ),
    Column("name", _NAME, nullable=False),
    Column("head", Text, nullable=False),
    Column("layer", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    UniqueConstraint("repo_uid", "name"),
)

tags = Table(
    "catalog_tags",
    metadata,
    _owner(),
    Column("name", _NAME, primary_key=True),
    Column("commit_id", Text, nullable=False),
)

commits = Table(
    "catalog_commits",
    metadata,
    _owner(),
    Column("id", _NAME, primary_key=True),
    Column("metarange_id", Text, nullable=False),
    Column("parents", Text, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("message", Text, nullable=False),
    Column("committer", Text, nullable=False),
    Column("metadata", Text, nullable=False),
)

staging = Table(
    "catalog_staging",
    metadata,
    _branch(),
    Column("key", _NAME, primary_key=True),
    Column("layer", BigInteger, primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("tombstone", Boolean, nullable=False),
    Column("address", Text, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("checksum", Text, nullable=False),
    sqlite_with_rowid=False,
)

tokens = Table(
    "catalog_tokens",
    metadata,
    Column("token", Text, primary_key=True),
    Column("branch_id", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("expires", BigInteger, nullable=False),
    Column("used", Boolean, nullable=False),
    ForeignKeyConstraint(["branch_id"], ["catalog_branches.id"], ondelete="CASCADE"),
    Index("catalog_tokens_by_branch", "branch_id", "expires"),
)

policies = _texts("catalog_policies")
retentions = _texts("catalog_retentions")

gates = Table(
    "catalog_gates",
    metadata,
    _owner(),
    Column("holder", Text, nullable=False),
    Column("since", BigInteger, nullable=False),
)


def create_all(connection: Connection) -> None:
    """Make what is missing, in the caller's write transaction, and refuse a schema newer than this code."""
    if connection.dialect.name == "postgresql":
        # CREATE TABLE IF NOT EXISTS can fail when two sessions run it at once; this lock ends with the
        # transaction.
        connection.execute(text("SELECT pg_advisory_xact_lock(hashtext('catalog_schema'))"))
    metadata.create_all(connection)
    found = connection.execute(select(func.max(versions.c.version))).scalar()
    if found is None:
        connection.execute(insert(versions).values(version=SCHEMA_VERSION))
    elif found > SCHEMA_VERSION:
        raise EnvironmentProblem(
            f"the catalog's schema is version {found}, this Ebbtide knows {SCHEMA_VERSION}",
            why="a newer Ebbtide may keep references where this one would not look",
            fix="upgrade Ebbtide, or open the catalog with the version that wrote it",
        )
