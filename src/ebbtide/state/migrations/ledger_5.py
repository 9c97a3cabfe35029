"""Attempts at batches are in `batch_attempts`; earlier versions called a batch a wave."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, ForeignKey, Integer, String, UniqueConstraint

revision = "ledger_5"
down_revision = "ledger_4"


def upgrade() -> None:
    """Move the rows of `waves` to a new table, so that keys and indexes are named after it as well."""
    op.create_table(
        "batch_attempts",
        Column("run_id", Integer, ForeignKey("runs.run_id"), nullable=False),
        Column("batch", Integer, nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("state", String(16), nullable=False),
        UniqueConstraint("run_id", "batch", "attempt"),
    )
    op.execute(
        "INSERT INTO batch_attempts (run_id, batch, attempt, state)"
        " SELECT run_id, wave, attempt, state FROM waves"
    )
    op.create_index("batch_attempts_by_state", "batch_attempts", ["state"])
    op.drop_table("waves")
