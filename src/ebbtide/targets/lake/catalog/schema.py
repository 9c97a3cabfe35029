"""The catalog's tables. Times are microseconds since 1970, so that both databases hold the same integer."""

from __future__ import annotations

import uuid

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
    literal,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import TEXT as POSTGRES_TEXT

from ebbtide.core.errors import EnvironmentProblem

SCHEMA_VERSION = 3
"""1: the first. 2: the reclaim queue. 3: the catalog's own uid; metaranges apart from ranges, each noted."""

_RECLAIMING = 2

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
        ForeignKey("catalog_branch_heads.id", ondelete="CASCADE"),
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

identity = Table("catalog_identity", metadata, Column("uid", Text, primary_key=True))

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

# Called catalog_branches up to version 1: see rename_branches.
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


# Metaranges that were or are being written and that no commit names; see provenance.py.
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
)

# Repositories of which every metarange that is not known would lie apart from the ranges.
separated = Table("catalog_separated", metadata, _owner())


def create_all(connection: Connection) -> None:
    """Make what is missing, in the caller's write transaction, and refuse a schema newer than this code."""
    if connection.dialect.name == "postgresql":
        # CREATE TABLE IF NOT EXISTS can fail when two sessions run it at once; this lock ends with the
        # transaction.
        connection.execute(text("SELECT pg_advisory_xact_lock(hashtext('catalog_schema'))"))
    versions.create(connection, checkfirst=True)
    found = connection.execute(select(func.max(versions.c.version))).scalar()
    if found is not None and found > SCHEMA_VERSION:
        raise EnvironmentProblem(
            f"the catalog's schema is version {found}, this Ebbtide knows {SCHEMA_VERSION}",
            why="a newer Ebbtide may keep references where this one would not look",
            fix="upgrade Ebbtide, or open the catalog with the version that wrote it",
        )
    is_first = found is not None and found < _RECLAIMING
    if is_first:
        rename_branches(connection)
    metadata.create_all(connection)
    if is_first:
        begin_reclaiming(connection)
    if connection.execute(select(identity.c.uid)).first() is None:
        connection.execute(insert(identity).values(uid=uuid.uuid4().hex))
    if found != SCHEMA_VERSION:
        connection.execute(insert(versions).values(version=SCHEMA_VERSION))


def rename_branches(connection: Connection) -> None:
    """
    From version 1: give the table of branches another name, before anything else.

    A process of the older Ebbtide that has the catalog open would go on to share addresses without a record
    of it, and import them past the fence. Nothing can be staged or landed without a look at this table, so
    whatever it tries next fails, loudly. On PostgreSQL this waits for what such a process has begun.
    """
    connection.execute(text("ALTER TABLE catalog_branches RENAME TO catalog_branch_heads"))


def begin_reclaiming(connection: Connection) -> None:
    """
    From version 1: write down what is shared already.

    All that is committed counts as imported, so that the reaper looks into these ranges: nobody recorded
    which of their addresses are staged a second time.
    """
    for table in (staging, tokens):
        for index in table.indexes:
            index.create(connection, checkfirst=True)
    theirs = select(commits.c.repo_uid, commits.c.metarange_id, literal("")).distinct()
    connection.execute(insert(imports).from_select(["repo_uid", "metarange_id", "base_id"], theirs))
    twice = (
        select(branches.c.repo_uid, staging.c.address, literal(False))
        .join(branches, branches.c.id == staging.c.branch_id)
        .where(~staging.c.tombstone)
        .group_by(branches.c.repo_uid, staging.c.address)
        .having(func.count() > 1)
    )
    connection.execute(insert(shared).from_select(["repo_uid", "address", "committed"], twice))
