"""Outcomes written by hand, as runs and restores leave them, without plans and without Spark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from ebbtide.core.decision import RESTORE, Outcome
from ebbtide.engine.removed_table import RemovedTable
from ebbtide.engine.run_folder import run_folder
from ebbtide.engine.tables.contracts import OUTCOMES
from ebbtide.engine.tables.digest import hash_addresses
from ebbtide.engine.tables.row_counts import record_counts
from ebbtide.state.runs import Ledger

UID = "uid"
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = to_arrow_schema(OUTCOMES.schema, timezone="UTC")


@dataclass(frozen=True)
class Happened:
    """What happened to one address."""

    address: str
    outcome: Outcome
    until: datetime | None = None
    version: str | None = None
    action: str | None = None


class Killed(BaseException):
    """The process is no more."""


@dataclass(frozen=True)
class Desk:
    """A ledger and a state root, into which runs can be written."""

    root: Path
    ledger: Ledger
    uid: str = UID

    @property
    def table(self) -> RemovedTable:
        """The table of removed items."""
        return RemovedTable(self.root, self.ledger, self.uid)

    def begin(self, collector: str = "lifecycle") -> int:
        """Begin a run."""
        return self.ledger.begin("lake:x", self.uid, collector, "", FIRST)

    def attempt(
        self,
        run_id: int,
        rows: Iterable[Happened],
        *,
        batch: int = 0,
        at: datetime = FIRST,
        finish: bool = True,
    ) -> None:
        """Write the outcomes of an attempt at a batch; one that is killed does not finish."""
        attempt = self.ledger.start_batch(run_id, batch)
        folder = run_folder(self.root, run_id).outcomes(batch, attempt)
        folder.mkdir(parents=True)
        plain = [
            {
                "hash": int(hash_addresses([row.address])[0]),
                "address": row.address,
                "version": row.version,
                "outcome": str(row.outcome),
                "reason": "",
                "rules": [f"rule of {run_id}"],
                "size": 1,
                "at": at,
                "batch": batch,
                "attempt": attempt,
                "action": row.action,
                "until": row.until,
            }
            for row in rows
        ]
        pq.write_table(pa.Table.from_pylist(plain, SCHEMA), folder / "part-0.parquet")
        record_counts(folder, len(plain))
        if finish:
            self.ledger.finish_batch(run_id, batch, attempt)

    def run(self, *rows: Happened, collector: str = "lifecycle") -> int:
        """Write a run of one batch."""
        run_id = self.begin(collector)
        self.attempt(run_id, rows)
        return run_id

    def restore(self, *addresses: str, until: datetime | None = None) -> int:
        """Write a restore."""
        return self.run(*(Happened(one, Outcome.RESTORED, until) for one in addresses), collector=RESTORE)


def make_desk(folder: Path, uid: str = UID) -> Desk:
    """Make an empty ledger and state root."""
    return Desk(folder / "state", Ledger(f"sqlite:///{folder}/ledger.db", clock=lambda: FIRST), uid)
