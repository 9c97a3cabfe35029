"""Adoptions, sources of running images, creation dates, and names of registries."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, Connection, String, Text, inspect, text

from ebbtide.core.instant import system_clock, to_micros
from ebbtide.state.database import NAME
from ebbtide.state.users import SYSTEM

revision = "records_2"
down_revision = "records_1"


def upgrade() -> None:
    """Create the tables, and adopt the registries that are purged already."""
    _adoptions()
    op.create_table(
        "image_running_sources",
        Column("uid", String(64), primary_key=True),
        Column("kind", String(16), nullable=False),
        Column("name", Text),
        Column("at", BigInteger, nullable=False),
        Column("by", Text, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "image_creation_dates",
        Column("uid", String(64), primary_key=True),
        Column("digest", NAME, primary_key=True),
        Column("created_at", BigInteger),
        if_not_exists=True,
    )
    op.create_table(
        "image_registry_names",
        Column("name", NAME, primary_key=True),
        Column("uid", String(64), nullable=False),
        Column("marker", String(64), nullable=False),
        Column("address", Text, nullable=False),
        Column("at", BigInteger, nullable=False),
        Column("by", Text, nullable=False),
        if_not_exists=True,
    )
    for column in ("uid", "marker"):
        name = f"image_registry_names_of_{column}"
        op.create_index(name, "image_registry_names", [column], if_not_exists=True)


def _adoptions() -> None:
    connection = op.get_bind()
    is_new = not inspect(connection).has_table("image_adoptions")
    op.create_table(
        "image_adoptions",
        Column("uid", String(64), primary_key=True),
        Column("repository", NAME, primary_key=True),
        Column("at", BigInteger, nullable=False),
        Column("by", Text, nullable=False),
        if_not_exists=True,
    )
    if is_new:
        _adopt_known(connection)


def _adopt_known(connection: Connection) -> None:
    """Adopt the registries that have policies, marks or runs that succeeded: people purge them."""
    queries = [
        "SELECT uid FROM image_registries WHERE policies IS NOT NULL",
        "SELECT DISTINCT uid FROM image_marks",
    ]
    if inspect(connection).has_table("runs"):
        queries.append(
            "SELECT DISTINCT target_uid FROM runs WHERE state = 'succeeded' AND collector = 'registry'"
        )
    known = {uid for query in queries for uid in connection.execute(text(query)).scalars()}
    add = text('INSERT INTO image_adoptions (uid, repository, at, "by") VALUES (:uid, :repository, :at, :by)')
    at = to_micros(system_clock())
    for uid in sorted(known):
        connection.execute(add, {"uid": uid, "repository": "", "at": at, "by": SYSTEM})
