"""Recycle bins: for how many days the runs on a target set items aside."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, String

revision = "ledger_2"
down_revision = "ledger_1"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "recycling",
        Column("target_uid", String(128), primary_key=True),
        Column("target", String(512), nullable=False),
        Column("days", Integer, nullable=False),
        Column("set_at", BigInteger, nullable=False),
        Column("actor", String(256), nullable=False),
        if_not_exists=True,
    )
