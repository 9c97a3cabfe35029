"""The fence that holds back new references while a batch is deleted."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, ForeignKey, Text

revision = "catalog_2"
down_revision = "catalog_1"


def upgrade() -> None:
    """Create the table."""
    repository = ForeignKey("catalog_repositories.uid", ondelete="CASCADE")
    op.create_table(
        "catalog_gates",
        Column("repo_uid", Text, repository, primary_key=True),
        Column("holder", Text, nullable=False),
        Column("since", BigInteger, nullable=False),
        if_not_exists=True,
    )
