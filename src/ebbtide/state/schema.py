"""The ledger's tables: small rows about runs; the rows about items are Parquet beside them."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from ebbtide.state.migration import Revision, Schema

metadata = MetaData()

about = Table("ledger_about", metadata, Column("version", Integer, nullable=False))

runs = Table(
    "runs",
    metadata,
    Column("run_id", Integer, primary_key=True, autoincrement=True),
    Column("target", String(512), nullable=False),
    Column("target_uid", String(128), nullable=False),
    Column("collector", String(64), nullable=False),
    Column("state", String(16), nullable=False),
    Column("now", BigInteger, nullable=False),
    Column("made_at", BigInteger, nullable=False),
    Column("finished_at", BigInteger),
    Column("policy", Text, nullable=False),
    Column("plan_hash", String(64)),
    Column("due_objects", BigInteger, nullable=False, default=0),
    Column("due_bytes", BigInteger, nullable=False, default=0),
    Column("error", Text, nullable=False, default=""),
    Index("runs_by_uid", "target_uid", "run_id"),
    Index("runs_by_target", "target", "run_id"),
    Index("runs_by_uid_and_state", "target_uid", "state"),
    Index("runs_by_uid_and_end", "target_uid", "finished_at"),
)

batch_attempts = Table(
    "batch_attempts",
    metadata,
    Column("run_id", ForeignKey("runs.run_id"), nullable=False),
    Column("batch", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("state", String(16), nullable=False),
    UniqueConstraint("run_id", "batch", "attempt"),
    Index("batch_attempts_by_state", "state"),
)
"""
An attempt at a batch: `started` before its first delete, `counted` when its outcomes are durable, and
`folded` when the table of removed items contains them.

Earlier versions of Ebbtide wrote `finished`: the tables of such outcomes have no record of their rows.
"""

events = Table(
    "events",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("run_id", ForeignKey("runs.run_id"), nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("actor", String(256), nullable=False),
    Column("what", Text, nullable=False),
    Index("events_by_run", "run_id", "id"),
)
"""Who did what to a run, and when: the audit trail."""

recycling = Table(
    "recycling",
    metadata,
    Column("target_uid", String(128), primary_key=True),
    Column("target", String(512), nullable=False),
    Column("days", Integer, nullable=False),
    Column("set_at", BigInteger, nullable=False),
    Column("actor", String(256), nullable=False),
)
"""Which targets have a recycle bin, and for how many days it keeps what their runs set aside."""

SCHEMA = Schema(
    owner="ledger",
    name="the ledger",
    database="the ledger database",
    why="a run that cannot be recorded must not delete",
    setting="ledger.url",
    metadata=metadata,
    about=about,
    revisions=(
        Revision("ledger_1", 1, ("runs",)),
        Revision("ledger_2", 1, ("recycling",)),
        Revision("ledger_3", 2, ("runs.runs_by_uid_and_state",)),
        Revision("ledger_4", 2, ("runs.runs_by_uid",)),
        Revision("ledger_5", 3, ("batch_attempts",)),
    ),
    migrations=Path(__file__).parent / "migrations",
)
