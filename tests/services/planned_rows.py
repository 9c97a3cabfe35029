"""Rows of a plan as an executor gets them."""

from __future__ import annotations

import pyarrow as pa


def planned_row(address: str, kept_because: str | None = None) -> pa.RecordBatch:
    """Return a batch with one planned row."""
    columns = {
        "hash": pa.array([1], pa.int64()),
        "address": pa.array([address]),
        "rules": pa.array([["r1"]]),
        "size": pa.array([1], pa.int64()),
        "version": pa.array([None], pa.string()),
        "action": pa.array(["delete"]),
        "batch": pa.array([0], pa.int32()),
        "kept_because": pa.array([kept_because], pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns)
