"""The catalog's tables. Times are microseconds since 1970, so that both databases hold the same integer."""

from __future__ import annotations

import uuid
from pathlib import Path

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
    insert,
    text,
)

from ebbtide.state.database import NAME
from ebbtide.state.migration import Revision, Schema

metadata = MetaData()


def _owner() -> Column[str]:
    """Return the column with the repository of a row."""
    return Column(
        "repo_uid",
        Text,
        ForeignKey("catalog_repositories.uid", ondelete="CASCADE"),
        primary_key=True,
    )


def _branch() -> Column[str]:
    """Return the column with the branch of a row."""
    return Column(
        "branch_id",
        Text,
        ForeignKey("catalog_branch_heads.id", ondelete="CASCADE"),
        primary_key=True,
    )


def _texts(name: str) -> Table:
    """Return a table with every version of a repository's texts of one kind."""
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

identity = Table("catalog_identity", metadata, Column("uid", Text, primary_key=True))

repositories = Table(
    "catalog_repositories",
    metadata,
    Column("uid", Text, primary_key=True),
    Column("name", NAME, nullable=False, unique=True),
    Column("namespace", Text, nullable=False, unique=True),
    Column("default_branch", Text, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("range_keys", BigInteger, nullable=False),
    Column("sequence", BigInteger, nullable=False),
)

# No foreign key: these rows outlive their repositories.
retired = Table(
    "catalog_retired",
    metadata,
    Column("uid", Text, primary_key=True),
    Column("name", NAME, nullable=False),
    Column("namespace", Text, nullable=False),
    Column("deleted", BigInteger, nullable=False),
    Index("catalog_retired_by_age", "deleted", "uid"),
    Index("catalog_retired_by_name", "name", "deleted"),
)

# Called catalog_branches up to version 1: see the migration catalog_4.
branches = Table(
    "catalog_branch_heads",
    metadata,
    Column("id", Text, primary_key=True),
    Column(
        "repo_uid",
        Text,
        ForeignKey("catalog_repositories.uid", ondelete="CASCADE"),
        nullable=False,
    ),
    Column("name", NAME, nullable=False),
    Column("head", Text, nullable=False),
    Column("layer", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    UniqueConstraint("repo_uid", "name"),
)

tags = Table(
    "catalog_tags",
    metadata,
    _owner(),
    Column("name", NAME, primary_key=True),
    Column("commit_id", Text, nullable=False),
)

commits = Table(
    "catalog_commits",
    metadata,
    _owner(),
    Column("id", NAME, primary_key=True),
    Column("metarange_id", Text, nullable=False),
    Column("parents", Text, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("message", Text, nullable=False),
    Column("committer", Text, nullable=False),
    Column("metadata", Text, nullable=False),
    Index("catalog_commits_by_generation", "repo_uid", "generation", "id"),
)

staging = Table(
    "catalog_staging",
    metadata,
    _branch(),
    Column("key", NAME, primary_key=True),
    Column("layer", BigInteger, primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("tombstone", Boolean, nullable=False),
    Column("address", Text, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("checksum", Text, nullable=False),
    # The reaper asks by address. A hash index takes addresses of any length; deletions have none.
    Index(
        "catalog_staging_by_address",
        "address",
        postgresql_using="hash",
        postgresql_where=text("NOT tombstone"),
    ),
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
    ForeignKeyConstraint(["branch_id"], ["catalog_branch_heads.id"], ondelete="CASCADE"),
    Index("catalog_tokens_by_branch", "branch_id", "expires"),
    Index("catalog_tokens_by_address", "address"),
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


# The next three have no foreign key: they outlive their repository, until its namespace is collected.
reclaim = Table(
    "catalog_reclaim",
    metadata,
    Column("repo_uid", Text, primary_key=True),
    Column("address", Text, primary_key=True),
    Column("queued", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("owner", Text, nullable=False),
    Column("again", BigInteger, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("problem", Text, nullable=False),
    Column("gone", BigInteger, nullable=False),
    Index("catalog_reclaim_by_age", "repo_uid", "state", "queued"),
    Index("catalog_reclaim_by_fence", "repo_uid", "fence"),
    sqlite_with_rowid=False,
)

shared = Table(
    "catalog_shared",
    metadata,
    Column("repo_uid", Text, primary_key=True),
    Column("address", Text, primary_key=True),
    Column("committed", Boolean, nullable=False),
    sqlite_with_rowid=False,
)

imports = Table(
    "catalog_imports",
    metadata,
    Column("repo_uid", Text, primary_key=True),
    Column("metarange_id", Text, primary_key=True),
    Column("base_id", Text, primary_key=True),
)


# Metaranges that were or are being written and that no commit names; see lost_history.py.
metaranges = Table(
    "catalog_metaranges",
    metadata,
    _owner(),
    Column("metarange_id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("noted", BigInteger, nullable=False),
    Column("noted_by", Text, nullable=False),
)

# The last plans that have read a repository, each by a random mark that it also left in the namespace: a
# catalog that was restored from a copy made before the last plan does not have its mark.
readings = Table(
    "catalog_readings",
    metadata,
    _owner(),
    Column("mark", Text, primary_key=True),
    Column("made", BigInteger, nullable=False),
    Index("catalog_readings_by_age", "repo_uid", "made"),
)

# Repositories without unknown metaranges among the ranges.
separated = Table("catalog_separated", metadata, _owner())


def _fill(connection: Connection) -> None:
    """Insert the identity of a new catalog."""
    connection.execute(insert(identity).values(uid=uuid.uuid4().hex))


SCHEMA = Schema(
    owner="catalog",
    name="the catalog",
    database="the catalog's database",
    why="without the catalog it is unknown which objects are referenced",
    setting="catalog.url",
    metadata=metadata,
    about=versions,
    revisions=(
        Revision("catalog_1", 1, ("catalog_repositories",)),
        Revision("catalog_2", 1, ("catalog_gates",)),
        Revision("catalog_3", 1, ("catalog_retired", "catalog_retentions")),
        Revision(
            "catalog_4", 2, ("catalog_branch_heads", "catalog_reclaim", "catalog_shared", "catalog_imports")
        ),
        Revision(
            "catalog_5",
            3,
            ("catalog_identity", "catalog_metaranges", "catalog_readings", "catalog_separated"),
        ),
        Revision("catalog_6", 3, ("catalog_commits.catalog_commits_by_generation",)),
    ),
    migrations=Path(__file__).parent / "migrations",
    fill=_fill,
)
