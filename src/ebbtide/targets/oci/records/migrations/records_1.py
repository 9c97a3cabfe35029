"""The first image records: policies, marks, log, roles, notifications, snapshots of scans."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, Integer, String, Text, UniqueConstraint

from ebbtide.state.database import NAME

revision = "records_1"
down_revision = None

_NUMBER = BigInteger().with_variant(Integer, "sqlite")


def upgrade() -> None:
    """Create the tables."""
    op.create_table("image_records_about", Column("version", Integer, nullable=False), if_not_exists=True)
    _registries()
    _log()
    _events()


def _registries() -> None:
    op.create_table(
        "image_registries",
        Column("uid", String(64), primary_key=True),
        Column("changes", BigInteger, nullable=False),
        Column("policies", Text),
        Column("hash", String(64)),
        Column("updated_at", BigInteger),
        Column("updated_by", Text),
        if_not_exists=True,
    )
    op.create_table(
        "image_marks",
        Column("uid", String(64), primary_key=True),
        Column("repository", NAME, primary_key=True),
        Column("tag", NAME, primary_key=True),
        Column("manifest", NAME, primary_key=True),
        Column("digest", Text, nullable=False),
        Column("policy", Text),
        Column("expires_at", BigInteger),
        Column("can_delete_prior", Boolean),
        Column("recycle", Boolean),
        Column("quarantine", String(16)),
        Column("quarantine_since", BigInteger),
        Column("at", BigInteger, nullable=False),
        Column("updated_by", Text, nullable=False),
        Column("earlier", Text),
        if_not_exists=True,
    )
    op.create_table(
        "image_roles",
        Column("uid", String(64), primary_key=True),
        Column("member", NAME, primary_key=True),
        Column("role", String(32), primary_key=True),
        Column("at", BigInteger, nullable=False),
        Column("by", Text, nullable=False),
        if_not_exists=True,
    )


def _log() -> None:
    op.create_table(
        "image_log",
        Column("id", _NUMBER, primary_key=True, autoincrement=True),
        Column("uid", String(64), nullable=False),
        Column("at", BigInteger, nullable=False),
        Column("by", Text, nullable=False),
        Column("kind", String(16), nullable=False),
        Column("subject", NAME, nullable=False),
        Column("what", Text, nullable=False),
        Column("before", Text),
        Column("after", Text),
        Column("refused", Text, nullable=False),
        sqlite_autoincrement=True,
        if_not_exists=True,
    )
    op.create_index("image_log_of_registry", "image_log", ["uid", "id"], if_not_exists=True)
    op.create_index("image_log_of_subject", "image_log", ["uid", "subject", "id"], if_not_exists=True)


def _events() -> None:
    op.create_table(
        "image_events",
        Column("id", _NUMBER, primary_key=True, autoincrement=True),
        Column("uid", String(64), nullable=False),
        Column("action", String(16), nullable=False),
        Column("repository", NAME, nullable=False),
        Column("tag", NAME, nullable=False),
        Column("digest", Text, nullable=False),
        Column("at", BigInteger, nullable=False),
        UniqueConstraint("uid", "repository", "tag", "digest", "action", "at"),
        sqlite_autoincrement=True,
        if_not_exists=True,
    )
    op.create_index("image_events_of_registry", "image_events", ["uid", "id"], if_not_exists=True)
    op.create_table(
        "image_snapshots",
        Column("uid", String(64), primary_key=True),
        Column("folder", Text, nullable=False),
        Column("scanned_at", BigInteger, nullable=False),
        Column("manifests", BigInteger, nullable=False),
        Column("tags", BigInteger, nullable=False),
        Column("last_event", BigInteger, nullable=False),
        if_not_exists=True,
    )
