"""The first ledger: runs, attempts at batches, events."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, ForeignKey, Integer, String, Text, UniqueConstraint

revision = "ledger_1"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table("ledger_about", Column("version", Integer, nullable=False), if_not_exists=True)
    op.create_table(
        "runs",
        Column("run_id", Integer, primary_key=True, autoincrement=True),
        Column("target", String(512), nullable=False),
        Column("target_uid", String(128), nullable=False),
        Column("collector", String(64), nullable=False),
        Column("state", String(16), nullable=False),
        Column("now", BigInteger, nullable=False),
        Column("made_at", BigInteger, nullable=False),
        Column("finished_at", BigInteger),
        Column("policy", Text, nullable=False),
        Column("plan_hash", String(64)),
        Column("due_objects", BigInteger, nullable=False),
        Column("due_bytes", BigInteger, nullable=False),
        Column("error", Text, nullable=False),
        if_not_exists=True,
    )
    op.create_index("ix_runs_target", "runs", ["target"], if_not_exists=True)
    op.create_table(
        "waves",
        Column("run_id", Integer, ForeignKey("runs.run_id"), nullable=False),
        Column("wave", Integer, nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("state", String(16), nullable=False),
        UniqueConstraint("run_id", "wave", "attempt"),
        if_not_exists=True,
    )
    op.create_table(
        "events",
        Column("id", Integer, primary_key=True, autoincrement=True),
        Column("run_id", Integer, ForeignKey("runs.run_id"), nullable=False),
        Column("at", BigInteger, nullable=False),
        Column("actor", String(256), nullable=False),
        Column("what", Text, nullable=False),
        if_not_exists=True,
    )
    op.create_index("ix_events_run_id", "events", ["run_id"], if_not_exists=True)
