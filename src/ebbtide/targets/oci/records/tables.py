"""The tables of what is kept of registries, which live in the ledger's database. Times are microseconds."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from ebbtide.state.database import NAME
from ebbtide.state.migration import Revision, Schema

metadata = MetaData()

_NUMBER = BigInteger().with_variant(Integer, "sqlite")
"""An autoincrement column of SQLite must have the type INTEGER, which has 64 bits there."""

about = Table("image_records_about", metadata, Column("version", Integer, nullable=False))

registries = Table(
    "image_registries",
    metadata,
    Column("uid", String(64), primary_key=True),
    Column("changes", BigInteger, nullable=False),
    Column("policies", Text),
    Column("hash", String(64)),
    Column("updated_at", BigInteger),
    Column("updated_by", Text),
)
"""One row per registry: its policies. Every change locks it first."""

marks = Table(
    "image_marks",
    metadata,
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
)
"""What users assigned. `manifest` is the digest if there is no tag, else empty, because tags move."""

log = Table(
    "image_log",
    metadata,
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
    Index("image_log_of_registry", "uid", "id"),
    Index("image_log_of_subject", "uid", "subject", "id"),
    sqlite_autoincrement=True,
)

roles = Table(
    "image_roles",
    metadata,
    Column("uid", String(64), primary_key=True),
    Column("member", NAME, primary_key=True),
    Column("role", String(32), primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("by", Text, nullable=False),
)

events = Table(
    "image_events",
    metadata,
    Column("id", _NUMBER, primary_key=True, autoincrement=True),
    Column("uid", String(64), nullable=False),
    Column("action", String(16), nullable=False),
    Column("repository", NAME, nullable=False),
    Column("tag", NAME, nullable=False),
    Column("digest", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    UniqueConstraint("uid", "repository", "tag", "digest", "action", "at"),
    Index("image_events_of_registry", "uid", "id"),
    # Ids are never reused: a reader that has seen up to an id must miss nothing after it.
    sqlite_autoincrement=True,
)

snapshots = Table(
    "image_snapshots",
    metadata,
    Column("uid", String(64), primary_key=True),
    Column("folder", Text, nullable=False),
    Column("scanned_at", BigInteger, nullable=False),
    Column("manifests", BigInteger, nullable=False),
    Column("tags", BigInteger, nullable=False),
    Column("last_event", BigInteger, nullable=False),
)

adoptions = Table(
    "image_adoptions",
    metadata,
    Column("uid", String(64), primary_key=True),
    Column("repository", NAME, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("by", Text, nullable=False),
)
"""Who confirmed what the policies do to a repository or, if that is empty, to the whole registry."""

running_sources = Table(
    "image_running_sources",
    metadata,
    Column("uid", String(64), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("name", Text),
    Column("at", BigInteger, nullable=False),
    Column("by", Text, nullable=False),
)
"""The source of running images of each registry (its kind, and a path or address), and who chose it."""

creation_dates = Table(
    "image_creation_dates",
    metadata,
    Column("uid", String(64), primary_key=True),
    Column("digest", NAME, primary_key=True),
    Column("created_at", BigInteger),
)
"""When images were built, null if unknown; the date of a digest never changes."""

registry_names = Table(
    "image_registry_names",
    metadata,
    Column("name", NAME, primary_key=True),
    Column("uid", String(64), nullable=False),
    Column("marker", String(64), nullable=False),
    Column("address", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("by", Text, nullable=False),
    Index("image_registry_names_of_uid", "uid"),
    Index("image_registry_names_of_marker", "marker"),
)
"""The canonical names of registries: whose records each uses, and the marker seen there, empty if none."""

SCHEMA = Schema(
    owner="image_records",
    name="the table of image records",
    database="the database of image records",
    why="without policies and pins it is unknown which images may go",
    setting="ledger.url",
    metadata=metadata,
    about=about,
    revisions=(
        Revision("records_1", 1, ("image_registries",)),
        Revision("records_2", 2, ("image_adoptions", "image_running_sources", "image_registry_names")),
    ),
    migrations=Path(__file__).parent / "migrations",
)
