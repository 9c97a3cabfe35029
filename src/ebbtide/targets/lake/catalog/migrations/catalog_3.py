"""Deleted repositories, and retention rules."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, ForeignKey, Text

from ebbtide.state.database import NAME

revision = "catalog_3"
down_revision = "catalog_2"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "catalog_retired",
        Column("uid", Text, primary_key=True),
        Column("name", NAME, nullable=False),
        Column("namespace", Text, nullable=False),
        Column("deleted", BigInteger, nullable=False),
        if_not_exists=True,
    )
    repository = ForeignKey("catalog_repositories.uid", ondelete="CASCADE")
    op.create_table(
        "catalog_retentions",
        Column("repo_uid", Text, repository, primary_key=True),
        Column("version", BigInteger, primary_key=True),
        Column("text", Text, nullable=False),
        Column("format", Text, nullable=False),
        Column("created", BigInteger, nullable=False),
        if_not_exists=True,
    )
