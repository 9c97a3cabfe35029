"""The tables of what is kept of registries, which live in the ledger's database. Times are microseconds."""

from __future__ import annotations

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
from sqlalchemy.dialects.postgresql import TEXT as POSTGRES_TEXT

from ebbtide.ledger.database import Contents

VERSION = 1

metadata = MetaData()

_NAME = Text().with_variant(POSTGRES_TEXT(collation="C"), "postgresql")
"""Text ordered by its bytes on both databases."""
_NUMBER = BigInteger().with_variant(Integer, "sqlite")
"""What SQLite counts up by itself must be called INTEGER there; it has 64 bits all the same."""

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
"""One row for each registry: its policies, and what every change locks before it looks at anything."""

marks = Table(
    "image_marks",
    metadata,
    Column("uid", String(64), primary_key=True),
    Column("repository", _NAME, primary_key=True),
    Column("tag", _NAME, primary_key=True),
    Column("manifest", _NAME, primary_key=True),
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
"""What people assigned. `manifest` is the digest where there is no tag, else empty, as tags move."""

log = Table(
    "image_log",
    metadata,
    Column("id", _NUMBER, primary_key=True, autoincrement=True),
    Column("uid", String(64), nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("by", Text, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("subject", _NAME, nullable=False),
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
    Column("member", _NAME, primary_key=True),
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
    Column("repository", _NAME, nullable=False),
    Column("tag", _NAME, nullable=False),
    Column("digest", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    UniqueConstraint("uid", "repository", "tag", "digest", "action", "at"),
    Index("image_events_of_registry", "uid", "id"),
    # Ids of what was forgotten never come again: who has seen up to an id must miss nothing after it.
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

CONTENTS = Contents(
    name="the table of image records",
    database="the database of image records",
    why="without policies and pins nobody can say which images may go",
    metadata=metadata,
    about=about,
    version=VERSION,
)
