"""Tags and locks, which a listing does not contain: requested for each version that a rule can match."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.storage.s3_bucket import LockState, VersionedBucket
from ebbtide.targets.s3.rules.configuration import Match

T = TypeVar("T")

UTC_TIME = pa.timestamp("us", tz="UTC")
TAGS = pa.map_(pa.string(), pa.string())
ARCHIVES = ("GLACIER", "DEEP_ARCHIVE")
"""The storage classes whose objects must be restored before they can be read."""

VERSIONS_TABLE = pa.schema(
    [
        ("key", pa.string()),
        ("version_id", pa.string()),
        ("kind", pa.string()),
        ("is_latest", pa.bool_()),
        ("size", pa.int64()),
        ("last_modified", UTC_TIME),
        ("etag", pa.string()),
        ("storage_class", pa.string()),
        ("position", pa.int64()),
        ("tags", TAGS),
        ("legal_hold", pa.bool_()),
        ("retain_until", UTC_TIME),
        ("replication_status", pa.string()),
        ("restoring", pa.bool_()),
    ]
)
"""The Arrow schema of the table VERSIONS."""


@dataclass(frozen=True)
class Details:
    """Which versions need requests for tags or locks."""

    tags: tuple[Match, ...] = ()
    """The versions that a rule with tags can match."""
    locks: tuple[Match, ...] = ()
    """The versions that any rule can match."""
    all_locks: bool = False
    """The bucket locks or replicates objects. If not, only archived versions are requested: for restores."""


def described(bucket: VersionedBucket, listed: Any, details: Details, threads: Executor) -> Any:
    """Convert a batch of listed versions to VERSIONS, with tags and locks where they matter."""
    marker = listed.column("is_delete_marker")
    wants_tags = pc.and_not(_matched(listed, details.tags), marker)
    wants_lock = pc.and_not(_matched(listed, details.locks), marker)
    if not details.all_locks:
        archived = pc.is_in(listed.column("storage_class"), value_set=pa.array(ARCHIVES))
        wants_lock = pc.and_(wants_lock, archived)
    tags = _asked(bucket.tags, listed, wants_tags, threads)
    locks = _asked(bucket.lock, listed, wants_lock, threads)
    columns = {
        **{name: listed.column(name) for name in VERSIONS_TABLE.names if name in listed.schema.names},
        "kind": pc.if_else(marker, "marker", "version"),
        **_locks(locks, listed.num_rows),
    }
    if tags:
        columns["tags"] = [None if one is None else list(one.items()) for one in tags]
    return _table_batch(columns, listed.num_rows)


def described_uploads(listed: Any) -> Any:
    """Convert a batch of listed uploads to VERSIONS."""
    rows = listed.num_rows
    columns = {
        "key": listed.column("key"),
        "version_id": listed.column("upload_id"),
        "kind": ["upload"] * rows,
        "last_modified": listed.column("initiated"),
        "legal_hold": [False] * rows,
        "restoring": [False] * rows,
    }
    return _table_batch(columns, rows)


def _matched(listed: Any, matches: Sequence[Match]) -> Any:
    """Mark the rows that a rule can match; an unknown size matches."""
    found = pa.array([False] * listed.num_rows, pa.bool_())
    size = listed.column("size")
    for match in matches:
        one = pc.starts_with(listed.column("key"), match.prefix)
        if match.larger_than is not None:
            one = pc.and_(one, pc.fill_null(pc.greater(size, match.larger_than), True))
        if match.smaller_than is not None:
            one = pc.and_(one, pc.fill_null(pc.less(size, match.smaller_than), True))
        found = pc.or_(found, one)
    return found


def _locks(locks: Sequence[LockState | None], rows: int) -> dict[str, Any]:
    """Return the columns of locks; versions without an answer have no lock."""
    if not locks:
        return {"legal_hold": [False] * rows, "restoring": [False] * rows}
    known = [lock or LockState() for lock in locks]
    return {
        "legal_hold": [lock.legal_hold for lock in known],
        "retain_until": [lock.retain_until for lock in known],
        "replication_status": [lock.replication_status for lock in known],
        "restoring": [lock.restoring for lock in known],
    }


def _asked(ask: Callable[[str, str], T], listed: Any, wanted: Any, threads: Executor) -> list[T | None]:
    """Send a request for each marked row on threads; return an answer per row, or [] if none is marked."""
    rows = pc.indices_nonzero(wanted).to_pylist()
    if not rows:
        return []
    answers: list[T | None] = [None] * listed.num_rows
    keys = listed.column("key").take(pa.array(rows)).to_pylist()
    versions = listed.column("version_id").take(pa.array(rows)).to_pylist()
    # A failed request raises here: a version with unknown tags must not look like one without tags.
    for row, answer in zip(rows, threads.map(ask, keys, versions), strict=True):
        answers[row] = answer
    return answers


def _table_batch(columns: dict[str, Any], rows: int) -> Any:
    arrays = [
        _array(columns[kind.name], kind.type) if kind.name in columns else pa.nulls(rows, kind.type)
        for kind in VERSIONS_TABLE
    ]
    return pa.record_batch(arrays, schema=VERSIONS_TABLE)


def _array(column: Any, kind: Any) -> Any:
    return pa.array(column, kind) if isinstance(column, list) else column.cast(kind)
