"""The first table of bucket rules."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, Integer, String, Text

from ebbtide.state.database import NAME

revision = "rules_1"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table("bucket_rules_about", Column("version", Integer, nullable=False), if_not_exists=True)
    op.create_table(
        "bucket_rules",
        Column("bucket", NAME, primary_key=True),
        Column("text", Text, nullable=False),
        Column("hash", String(64), nullable=False),
        Column("enabled", Boolean, nullable=False),
        Column("updated", BigInteger, nullable=False),
        if_not_exists=True,
    )
