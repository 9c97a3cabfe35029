"""The table of buckets' configurations, which lives in the ledger's database."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Integer, MetaData, String, Table, Text
from sqlalchemy.dialects.postgresql import TEXT as POSTGRES_TEXT

from ebbtide.state.database import Contents

VERSION = 1

metadata = MetaData()

about = Table("bucket_rules_about", metadata, Column("version", Integer, nullable=False))

rules = Table(
    "bucket_rules",
    metadata,
    # Ordered by its bytes on both databases.
    Column("bucket", Text().with_variant(POSTGRES_TEXT(collation="C"), "postgresql"), primary_key=True),
    Column("text", Text, nullable=False),
    Column("hash", String(64), nullable=False),
    Column("enabled", Boolean, nullable=False),
    Column("updated", BigInteger, nullable=False),
)

CONTENTS = Contents(
    name="the table of bucket rules",
    database="the database of bucket rules",
    why="without its rules nobody can say what a bucket may lose",
    metadata=metadata,
    about=about,
    version=VERSION,
)
