"""The reclaim queue, and the record of addresses that are used more than once."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, Connection, Integer, Text, inspect, text

revision = "catalog_4"
down_revision = "catalog_3"


def upgrade() -> None:
    """Rename the table of branches, create the queue, and record addresses that are used twice already."""
    connection = op.get_bind()
    tables = inspect(connection).get_table_names()
    if "catalog_branches" in tables:
        # First of all. A process of the older Ebbtide that has the catalog open would go on to share
        # addresses without a record of it, and import them past the fence. Nothing can be staged or landed
        # without reading this table, so whatever it tries next fails. On PostgreSQL this waits for
        # transactions that such a process has begun.
        op.rename_table("catalog_branches", "catalog_branch_heads")
    _create_queue()
    _create_indexes()
    if "catalog_imports" not in tables:
        _record_imports(connection)
    if "catalog_shared" not in tables:
        _record_shared(connection)


def _create_queue() -> None:
    op.create_table(
        "catalog_reclaim",
        Column("repo_uid", Text, primary_key=True),
        Column("address", Text, primary_key=True),
        Column("queued", BigInteger, nullable=False),
        Column("reason", Text, nullable=False),
        Column("state", Text, nullable=False),
        Column("fence", BigInteger, nullable=False),
        Column("owner", Text, nullable=False),
        Column("again", BigInteger, nullable=False),
        Column("tries", Integer, nullable=False),
        Column("problem", Text, nullable=False),
        Column("gone", BigInteger, nullable=False),
        sqlite_with_rowid=False,
        if_not_exists=True,
    )
    op.create_table(
        "catalog_shared",
        Column("repo_uid", Text, primary_key=True),
        Column("address", Text, primary_key=True),
        Column("committed", Boolean, nullable=False),
        sqlite_with_rowid=False,
        if_not_exists=True,
    )
    op.create_table(
        "catalog_imports",
        Column("repo_uid", Text, primary_key=True),
        Column("metarange_id", Text, primary_key=True),
        Column("base_id", Text, primary_key=True),
        if_not_exists=True,
    )


def _create_indexes() -> None:
    queue = "catalog_reclaim"
    op.create_index("catalog_reclaim_by_age", queue, ["repo_uid", "state", "queued"], if_not_exists=True)
    op.create_index("catalog_reclaim_by_fence", queue, ["repo_uid", "fence"], if_not_exists=True)
    op.create_index("catalog_tokens_by_address", "catalog_tokens", ["address"], if_not_exists=True)
    op.create_index(
        "catalog_staging_by_address",
        "catalog_staging",
        ["address"],
        postgresql_using="hash",
        postgresql_where=text("NOT tombstone"),
        if_not_exists=True,
    )


def _record_imports(connection: Connection) -> None:
    """
    Record all committed metaranges as imports, so that the reaper looks into them.

    It is not recorded which of their addresses are staged a second time.
    """
    connection.execute(
        text(
            "INSERT INTO catalog_imports (repo_uid, metarange_id, base_id)"
            " SELECT DISTINCT repo_uid, metarange_id, '' FROM catalog_commits"
        )
    )


def _record_shared(connection: Connection) -> None:
    """Record the addresses that more than one staged entry has."""
    connection.execute(
        text(
            "INSERT INTO catalog_shared (repo_uid, address, committed)"
            " SELECT b.repo_uid, s.address, :committed FROM catalog_staging s"
            " JOIN catalog_branch_heads b ON b.id = s.branch_id WHERE NOT s.tombstone"
            " GROUP BY b.repo_uid, s.address HAVING count(*) > 1"
        ),
        {"committed": False},
    )
