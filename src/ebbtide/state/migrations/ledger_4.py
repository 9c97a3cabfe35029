"""List the runs on a target in the order of their numbers without sorting."""

from __future__ import annotations

from alembic import op

revision = "ledger_4"
down_revision = "ledger_3"


def upgrade() -> None:
    """Create the indexes."""
    op.create_index("runs_by_uid", "runs", ["target_uid", "run_id"], if_not_exists=True)
    op.create_index("runs_by_target", "runs", ["target", "run_id"], if_not_exists=True)
    op.drop_index("ix_runs_target", "runs", if_exists=True)
    op.create_index("events_by_run", "events", ["run_id", "id"], if_not_exists=True)
    op.drop_index("ix_events_run_id", "events", if_exists=True)
