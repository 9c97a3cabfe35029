"""List commits, deleted repositories and marks of plans in their order without sorting."""

from __future__ import annotations

from alembic import op

revision = "catalog_6"
down_revision = "catalog_5"


def upgrade() -> None:
    """Create the indexes."""
    op.create_index(
        "catalog_commits_by_generation",
        "catalog_commits",
        ["repo_uid", "generation", "id"],
        if_not_exists=True,
    )
    op.create_index("catalog_retired_by_age", "catalog_retired", ["deleted", "uid"], if_not_exists=True)
    op.create_index("catalog_retired_by_name", "catalog_retired", ["name", "deleted"], if_not_exists=True)
    op.create_index("catalog_readings_by_age", "catalog_readings", ["repo_uid", "made"], if_not_exists=True)
