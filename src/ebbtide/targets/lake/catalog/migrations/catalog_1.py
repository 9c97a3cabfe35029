"""The first catalog: repositories, branches, tags, commits, staging, upload tokens, policies."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Integer, Text, UniqueConstraint

from ebbtide.state.database import NAME

revision = "catalog_1"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table("catalog_schema", Column("version", Integer, nullable=False), if_not_exists=True)
    _repositories()
    _refs()
    _staging()


def _owner() -> Column[str]:
    repository = ForeignKey("catalog_repositories.uid", ondelete="CASCADE")
    return Column("repo_uid", Text, repository, primary_key=True)


def _repositories() -> None:
    op.create_table(
        "catalog_repositories",
        Column("uid", Text, primary_key=True),
        Column("name", NAME, nullable=False, unique=True),
        Column("namespace", Text, nullable=False, unique=True),
        Column("default_branch", Text, nullable=False),
        Column("created", BigInteger, nullable=False),
        Column("range_keys", BigInteger, nullable=False),
        Column("sequence", BigInteger, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "catalog_policies",
        _owner(),
        Column("version", BigInteger, primary_key=True),
        Column("text", Text, nullable=False),
        Column("format", Text, nullable=False),
        Column("created", BigInteger, nullable=False),
        if_not_exists=True,
    )


def _refs() -> None:
    repository = ForeignKey("catalog_repositories.uid", ondelete="CASCADE")
    op.create_table(
        "catalog_branches",
        Column("id", Text, primary_key=True),
        Column("repo_uid", Text, repository, nullable=False),
        Column("name", NAME, nullable=False),
        Column("head", Text, nullable=False),
        Column("layer", BigInteger, nullable=False),
        Column("epoch", BigInteger, nullable=False),
        UniqueConstraint("repo_uid", "name"),
        if_not_exists=True,
    )
    op.create_table(
        "catalog_tags",
        _owner(),
        Column("name", NAME, primary_key=True),
        Column("commit_id", Text, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "catalog_commits",
        _owner(),
        Column("id", NAME, primary_key=True),
        Column("metarange_id", Text, nullable=False),
        Column("parents", Text, nullable=False),
        Column("created", BigInteger, nullable=False),
        Column("generation", BigInteger, nullable=False),
        Column("message", Text, nullable=False),
        Column("committer", Text, nullable=False),
        Column("metadata", Text, nullable=False),
        if_not_exists=True,
    )


def _staging() -> None:
    branch = ForeignKey("catalog_branches.id", ondelete="CASCADE")
    op.create_table(
        "catalog_staging",
        Column("branch_id", Text, branch, primary_key=True),
        Column("key", NAME, primary_key=True),
        Column("layer", BigInteger, primary_key=True),
        Column("seq", BigInteger, nullable=False),
        Column("tombstone", Boolean, nullable=False),
        Column("address", Text, nullable=False),
        Column("created", BigInteger, nullable=False),
        Column("size", BigInteger, nullable=False),
        Column("checksum", Text, nullable=False),
        sqlite_with_rowid=False,
        if_not_exists=True,
    )
    token_branch = ForeignKey("catalog_branches.id", ondelete="CASCADE")
    op.create_table(
        "catalog_tokens",
        Column("token", Text, primary_key=True),
        Column("branch_id", Text, token_branch, nullable=False),
        Column("key", Text, nullable=False),
        Column("address", Text, nullable=False),
        Column("expires", BigInteger, nullable=False),
        Column("used", Boolean, nullable=False),
        if_not_exists=True,
    )
    op.create_index(
        "catalog_tokens_by_branch", "catalog_tokens", ["branch_id", "expires"], if_not_exists=True
    )
