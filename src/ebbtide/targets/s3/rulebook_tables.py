"""The table of buckets' configurations, which lives in the ledger's database."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import BigInteger, Boolean, Column, Integer, MetaData, String, Table, Text

from ebbtide.state.database import NAME
from ebbtide.state.migration import Revision, Schema

metadata = MetaData()

about = Table("bucket_rules_about", metadata, Column("version", Integer, nullable=False))

rules = Table(
    "bucket_rules",
    metadata,
    # Ordered by its bytes on both databases.
    Column("bucket", NAME, primary_key=True),
    Column("text", Text, nullable=False),
    Column("hash", String(64), nullable=False),
    Column("enabled", Boolean, nullable=False),
    Column("updated", BigInteger, nullable=False),
)

SCHEMA = Schema(
    owner="bucket_rules",
    name="the table of bucket rules",
    database="the database of bucket rules",
    why="without its rules nobody can say what a bucket may lose",
    setting="ledger.url",
    metadata=metadata,
    about=about,
    revisions=(Revision("rules_1", 1, ("bucket_rules",)),),
    migrations=Path(__file__).parent / "migrations",
)
