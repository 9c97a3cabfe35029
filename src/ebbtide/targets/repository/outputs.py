"""The outputs that seed 000 names under ``_lakefs/retention/lc/``: policy, addresses by date, statistics."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame

from ebbtide.core.errors import NotFound
from ebbtide.core.instant import format_instant
from ebbtide.core.manifest import Manifest, Tally
from ebbtide.storage.store import Store, StoreSpec, open_store
from ebbtide.targets.repository.lifecycle import PolicyRow

FOLDER = "_lakefs/retention/lc"
_STATS = ("run_id", "finished_at", "plan_hash", "outcome", "objects", "bytes")
_ADDRESSES = pa.schema(
    [
        ("run_id", pa.int64()),
        ("address", pa.string()),
        ("paths", pa.list_(pa.string())),
        ("matched_rules", pa.list_(pa.string())),
    ]
)


def write_policy(store: Store, run_id: int, table: Iterable[PolicyRow], *, rehearsal: bool = False) -> None:
    """Write the rows of the policy table for a run; the files of all runs together are the whole table."""
    rows = [vars(row) for row in table]
    schema = pa.schema(
        [
            ("run_id", pa.int64()),
            ("rule_id", pa.string()),
            ("prefix", pa.string()),
            ("branch", pa.string()),
            ("date_to_be_deleted", pa.date32()),
        ]
    )
    store.write(_policy_key(run_id), _parquet(pa.Table.from_pylist(rows, schema), rehearsal=rehearsal))


def has_policy(store: Store, run_id: int) -> bool:
    """Return True if the rows of the policy table for a run are written."""
    try:
        store.stat(_policy_key(run_id))
    except NotFound:
        return False
    return True


def write_addresses(
    plan: DataFrame, store: StoreSpec, run_id: int, made_at: datetime, *, rehearsal: bool = False
) -> None:
    """Write the planned addresses from the executors, partitioned by the day of the plan."""
    writer = _AddressWriter(store, run_id, f"{FOLDER}/addresses/date={made_at:%Y-%m-%d}", rehearsal)
    plan.select("address", "names", "rules").mapInArrow(writer, "written long").toArrow()


def write_stats(store: Store, manifest: Manifest, outcomes: Iterable[Tally], finished_at: datetime) -> None:
    """Add what a run did to the statistics of its day, next to the other runs of that day."""
    key = f"{FOLDER}/stats/{finished_at:%Y-%m-%d}.csv"
    try:
        known = list(csv.DictReader(io.StringIO(store.read(key).decode())))
    except NotFound:
        known = []
    rows = [row for row in known if row["run_id"] != str(manifest.run_id)]
    for tally in sorted(outcomes, key=lambda tally: tally.label):
        values = (
            manifest.run_id,
            format_instant(finished_at),
            manifest.plan_hash,
            tally.label,
            tally.objects,
            tally.bytes,
        )
        marked = {"rehearsal": "true"} if manifest.rehearsal else {}
        rows.append(dict(zip(_STATS, map(str, values), strict=True)) | marked)
    columns = (*_STATS, "rehearsal") if any("rehearsal" in row for row in rows) else _STATS
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    store.write(key, text.getvalue().encode())


@dataclass(frozen=True)
class _AddressWriter:
    """Writes the addresses of one partition as one object; a repeated task writes the same object."""

    store: StoreSpec
    run_id: int
    folder: str
    rehearsal: bool

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        part = context.partitionId() if context else 0
        tables = [pa.Table.from_batches([batch]) for batch in batches]
        rows = pa.concat_tables(tables) if tables else None
        if rows is None or not rows.num_rows:
            return
        run_ids = pa.repeat(pa.scalar(self.run_id, pa.int64()), rows.num_rows)
        columns = [run_ids, rows.column("address"), rows.column("names"), rows.column("rules")]
        data = _parquet(pa.table(columns, names=_ADDRESSES.names).cast(_ADDRESSES), rehearsal=self.rehearsal)
        open_store(self.store).write(f"{self.folder}/run-{self.run_id:06d}-{part:05d}.parquet", data)
        yield pa.RecordBatch.from_pydict({"written": [rows.num_rows]})


def _policy_key(run_id: int) -> str:
    return f"{FOLDER}/policy/run-{run_id:06d}.parquet"


def _parquet(table: Any, *, rehearsal: bool) -> bytes:
    if rehearsal:
        table = table.replace_schema_metadata({"rehearsal": "true"})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue().to_pybytes())
