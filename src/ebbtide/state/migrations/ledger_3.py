"""Find runs by target, state and end, and attempts by state; attempts can be `counted` and `folded`."""

from __future__ import annotations

from alembic import op

revision = "ledger_3"
down_revision = "ledger_2"


def upgrade() -> None:
    """Create the indexes; the states of earlier attempts stay as they are, because they mean the same."""
    op.create_index("runs_by_uid_and_state", "runs", ["target_uid", "state"], if_not_exists=True)
    op.create_index("runs_by_uid_and_end", "runs", ["target_uid", "finished_at"], if_not_exists=True)
    op.create_index("waves_by_state", "waves", ["state"], if_not_exists=True)
