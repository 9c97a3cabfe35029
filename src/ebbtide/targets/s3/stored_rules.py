"""The lifecycle configurations of buckets, kept as S3 keeps them: one each, replaced as a whole."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sqlalchemy import BigInteger, Boolean, Column, Integer, MetaData, String, Table, Text, delete, select

from ebbtide.core.errors import NotFound
from ebbtide.core.instant import Clock, from_micros, system_clock, to_micros
from ebbtide.state.database import NAME, Database, repeated, upsert
from ebbtide.state.migration import Revision, Schema
from ebbtide.targets.s3.model import bucket_url
from ebbtide.targets.s3.rules.configuration import Configuration
from ebbtide.targets.s3.rules.document import configuration_hash, configuration_text, read_checked

_metadata = MetaData()

_about = Table("bucket_rules_about", _metadata, Column("version", Integer, nullable=False))

_rules = Table(
    "bucket_rules",
    _metadata,
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
    why="without its rules it is unknown what a bucket may lose",
    setting="ledger.url",
    metadata=_metadata,
    about=_about,
    revisions=(Revision("rules_1", 1, ("bucket_rules",)),),
    migrations=Path(__file__).parent / "migrations",
)


@dataclass(frozen=True)
class StoredRules:
    """A bucket's configuration without its rules."""

    bucket: str
    hash: str
    enabled: bool
    """Whether any rule is enabled, so that a run has something to do."""
    updated: datetime


class BucketRules:
    """The configurations of all buckets, in SQLite or PostgreSQL. Every change is one transaction."""

    def __init__(self, url: str, *, clock: Clock = system_clock) -> None:
        self._clock = clock
        self._database = Database(url, SCHEMA)

    @repeated
    def put(self, bucket: str, configuration: Configuration) -> None:
        """Replace the bucket's configuration."""
        row = {
            "bucket": bucket_url(bucket),
            "text": configuration_text(configuration),
            "hash": configuration_hash(configuration),
            "enabled": bool(configuration.enabled),
            "updated": to_micros(self._clock()),
        }
        with self._database.writing() as connection:
            upsert(connection, _rules, [row], ("bucket",))

    def get(self, bucket: str) -> Configuration:
        """Return the bucket's configuration; raise NotFound (S3's 404) if there is none."""
        url = bucket_url(bucket)
        with self._database.reading() as connection:
            text = connection.execute(
                select(_rules.c.text).where(_rules.c.bucket == url)
            ).scalar_one_or_none()
        if text is None:
            raise NotFound(
                f"{url} has no lifecycle configuration (NoSuchLifecycleConfiguration)",
                fix=f"set one with 'ebb bucket rules set {url} FILE'",
            )
        return read_checked(json.loads(text))

    @repeated
    def delete(self, bucket: str) -> None:
        """Delete the bucket's configuration, if there is one."""
        with self._database.writing() as connection:
            connection.execute(delete(_rules).where(_rules.c.bucket == bucket_url(bucket)))

    def stored(self) -> list[StoredRules]:
        """List the buckets that have a configuration, without reading the configurations."""
        c = _rules.c
        query = select(c.bucket, c.hash, c.enabled, c.updated).order_by(c.bucket)
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
        return [StoredRules(row.bucket, row.hash, row.enabled, from_micros(row.updated)) for row in rows]

    def with_enabled_rules(self) -> list[str]:
        """List the buckets with an enabled rule."""
        query = select(_rules.c.bucket).where(_rules.c.enabled).order_by(_rules.c.bucket)
        with self._database.reading() as connection:
            return list(connection.execute(query).scalars())

    def close(self) -> None:
        """Close all idle connections."""
        self._database.close()
