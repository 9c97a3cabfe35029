"""The identity of the catalog, notes on metaranges, and marks of the plans that have read a repository."""

from __future__ import annotations

import uuid

from alembic import op
from sqlalchemy import BigInteger, Column, ForeignKey, Text, text

revision = "catalog_5"
down_revision = "catalog_4"


def upgrade() -> None:
    """Create the tables, and give the catalog an identity."""
    op.create_table("catalog_identity", Column("uid", Text, primary_key=True), if_not_exists=True)
    op.create_table(
        "catalog_metaranges",
        _owner(),
        Column("metarange_id", Text, primary_key=True),
        Column("kind", Text, nullable=False),
        Column("noted", BigInteger, nullable=False),
        Column("noted_by", Text, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "catalog_readings",
        _owner(),
        Column("mark", Text, primary_key=True),
        Column("made", BigInteger, nullable=False),
        if_not_exists=True,
    )
    op.create_table("catalog_separated", _owner(), if_not_exists=True)
    connection = op.get_bind()
    if connection.execute(text("SELECT uid FROM catalog_identity")).first() is None:
        values = {"uid": uuid.uuid4().hex}
        connection.execute(text("INSERT INTO catalog_identity (uid) VALUES (:uid)"), values)


def _owner() -> Column[str]:
    repository = ForeignKey("catalog_repositories.uid", ondelete="CASCADE")
    return Column("repo_uid", Text, repository, primary_key=True)
