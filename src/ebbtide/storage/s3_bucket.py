"""
A whole S3 bucket: its versions, delete markers, uploads, tags and locks, and its configuration.

Unlike a store it has no root: lifecycle rules use full keys, so keys are full here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock
from typing import Any, TypeVar

import pyarrow as pa
from botocore.exceptions import ClientError

from ebbtide.core.errors import AddressError
from ebbtide.storage.address import locate
from ebbtide.storage.executor_proof import check_fitness
from ebbtide.storage.rate_limit import Backoff
from ebbtide.storage.s3_client import ABSENT, FAILURES, S3Options, call, code_of, connect, fail
from ebbtide.storage.s3_listing import speed_up, untrusted_listing, upload_rows, watch_uploads
from ebbtide.storage.s3_versions import (
    MOST,
    Question,
    VersionRow,
    grouped,
    numbered,
    one_page,
    speed_up_versions,
    unordered_versions,
    version_pages,
)
from ebbtide.storage.store import RecordBatch, StoreSpec

T = TypeVar("T")

VERSIONS_SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("version_id", pa.string(), nullable=False),
        pa.field("is_latest", pa.bool_(), nullable=False),
        pa.field("is_delete_marker", pa.bool_(), nullable=False),
        pa.field("size", pa.int64()),
        pa.field("last_modified", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("etag", pa.string()),
        pa.field("storage_class", pa.string()),
        pa.field("position", pa.int64(), nullable=False),
    ]
)
"""`position` counts the versions of a key from 0, the newest first."""

UPLOADS_SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("upload_id", pa.string(), nullable=False),
        pa.field("initiated", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)

_UNKNOWN_HERE = frozenset({"NotImplemented", "MethodNotAllowed", "501", "405"})
_NO_LIFECYCLE = frozenset({"NoSuchLifecycleConfiguration"})
_NO_LOCK = _UNKNOWN_HERE | {"ObjectLockConfigurationNotFoundError"}
_NO_REPLICATION = _UNKNOWN_HERE | {"ReplicationConfigurationNotFoundError"}


@dataclass(frozen=True)
class LockState:
    """Locks, replication and restores that protect one version from being changed."""

    legal_hold: bool = False
    retain_until: datetime | None = None
    replication_status: str | None = None
    restoring: bool = False


class VersionedBucket:
    """One bucket; the options are those of :class:`ebbtide.storage.s3_client.S3Options`."""

    def __init__(self, spec: StoreSpec, backoff: Backoff | None = None, *, page: int = MOST) -> None:
        place = locate(spec.url)
        if place.scheme != "s3" or place.parts:
            raise AddressError(f"{place.url} is not a bucket", fix="write s3://BUCKET, without a prefix")
        options = S3Options.parse(spec.options)
        self.spec = StoreSpec(place.url, dict(spec.options))
        self.name = place.host
        self.ordered = options.ordered
        self._page = page
        self.backoff = backoff or Backoff(tries=options.retries)
        self.client = connect(options)
        speed_up(self.client)
        speed_up_versions(self.client)
        watch_uploads(self.client)

    def versioning(self) -> str:
        """Return Enabled or Suspended, or Disabled for a bucket that never kept versions."""
        return str(self._versioning().get("Status") or "Disabled")

    def mfa_delete(self) -> bool:
        """Return True if deleting versions needs a second factor; S3 allows no lifecycle then."""
        return bool(self._versioning().get("MFADelete") == "Enabled")

    def object_lock_enabled(self) -> bool:
        """Return True if versions of this bucket can be locked."""
        return bool(self._object_lock().get("ObjectLockEnabled") == "Enabled")

    def replicated(self) -> bool:
        """Return True if the bucket replicates its objects, so that some replications may be pending."""
        return bool(self._setup(self.client.get_bucket_replication, "replication", _NO_REPLICATION))

    def lifecycle(self) -> dict[str, Any] | None:
        """Return the lifecycle configuration as boto3 reads it; None if the bucket has none."""
        ask = self.client.get_bucket_lifecycle_configuration
        found = self._setup(ask, "lifecycle configuration", _NO_LIFECYCLE)
        return {name: value for name, value in found.items() if name != "ResponseMetadata"} or None

    def versions(self, prefix: str = "", *, after: str = "", up_to: str = "") -> Iterator[RecordBatch]:
        """
        Stream versions and delete markers of keys behind `after` and up to `up_to`, all of a key together.

        A listing that fails half-way, or is not what was asked for, raises. A server that keeps no key order
        (ordered=no) is listed whole and sorted here, whatever part of it is wanted.
        """
        for rows in self.version_rows(prefix, after=after, up_to=up_to):
            yield version_batch(rows)

    def version_rows(
        self, prefix: str = "", *, after: str = "", up_to: str = ""
    ) -> Iterator[list[VersionRow]]:
        """Stream the same as `versions` in lists of rows; each list ends with the last row of a key."""
        asked = Question(self.name, prefix, most=self._page)
        if self.ordered:
            pages = version_pages(self.client, asked, self.backoff, after=after)
            yield from grouped((page.rows for page in pages), after=after, up_to=up_to)
            return
        for rows in unordered_versions(self.client, asked, self.backoff):
            kept = [row for row in rows if row.key > after and (not up_to or row.key <= up_to)]
            if kept:
                yield kept

    def small_size(self) -> int | None:
        """Return how many versions and markers the bucket has if they fit on one page; one request."""
        page = one_page(self.client, Question(self.name, most=self._page), self.backoff)
        return None if page.truncated else len(page.rows)

    def next_key(self, prefix: str, after: str) -> str | None:
        """Return the first key after a place, if it has the prefix; one small request."""
        page = one_page(self.client, Question(self.name, prefix, most=1), self.backoff, after=after)
        if not page.rows and page.truncated:
            raise untrusted_listing(self.name, "a page without a row")
        return page.rows[0].key if page.rows else None

    def folders(self, prefix: str, after: str) -> list[str]:
        """Return the folders of one page, one level below a prefix and after a place, in key order."""
        asked = Question(self.name, prefix, delimiter="/", most=self._page)
        return sorted(one_page(self.client, asked, self.backoff, after=after).folders)

    def uploads(self, prefix: str = "") -> Iterator[RecordBatch]:
        """Stream the multipart uploads that were begun and not completed."""
        for rows in upload_rows(self.client, self.name, prefix, self.backoff):
            yield _batch(list(zip(*rows, strict=True)) or [(), (), ()], UPLOADS_SCHEMA)

    def tags(self, key: str, version_id: str) -> dict[str, str] | None:
        """Return the tags of one version; None if it no longer exists."""
        found = self._of_version(self.client.get_object_tagging, key, version_id)
        return None if found is None else {one["Key"]: one["Value"] for one in found["TagSet"]}

    def lock(self, key: str, version_id: str) -> LockState | None:
        """Return the locks of one version; None if it no longer exists."""
        found = self._of_version(self.client.head_object, key, version_id)
        if found is None:
            return None
        until = found.get("ObjectLockRetainUntilDate")
        return LockState(
            legal_hold=found.get("ObjectLockLegalHoldStatus") == "ON",
            retain_until=until.astimezone(UTC) if until else None,
            replication_status=found.get("ReplicationStatus") or None,
            restoring='ongoing-request="true"' in found.get("Restore", ""),
        )

    def _versioning(self) -> dict[str, Any]:
        return self._setup(self.client.get_bucket_versioning, "versioning", frozenset())

    def _object_lock(self) -> dict[str, Any]:
        found = self._setup(self.client.get_object_lock_configuration, "object lock", _NO_LOCK)
        return dict(found.get("ObjectLockConfiguration", {}))

    def _setup(self, ask: Callable[..., Any], what: str, none: frozenset[str]) -> dict[str, Any]:
        """Read one configuration of the bucket; codes that mean "it has none" return an empty one."""
        try:
            return dict(call(self.backoff, lambda: ask(Bucket=self.name)))
        except FAILURES as error:
            if code_of(error) in none:
                return {}
            fail(error, f"the {what} of {self.name}")

    def _of_version(self, ask: Callable[..., T], key: str, version_id: str) -> T | None:
        """Make a request about one version; return None if it no longer exists."""
        try:
            return call(self.backoff, lambda: ask(Bucket=self.name, Key=key, VersionId=version_id))
        except ClientError as error:
            if code_of(error) in ABSENT:
                return None
            fail(error, repr(key))
        except FAILURES as error:
            fail(error, repr(key))


def version_batch(rows: Sequence[VersionRow]) -> RecordBatch:
    """Make one batch of rows that are all versions of their keys, with their positions."""
    columns = list(zip(*rows, strict=True)) or [()] * len(VersionRow._fields)
    return _batch([*columns, numbered(rows)], VERSIONS_SCHEMA)


_opened: dict[tuple[int, int, str, tuple[tuple[str, str], ...]], VersionedBucket] = {}
_lock = Lock()


def open_bucket(spec: StoreSpec, *, page: int = MOST) -> VersionedBucket:
    """Open a bucket, or return the one that this process already has open."""
    # The process is part of the key: Spark forks its workers, and a forked child must not share sockets.
    key = (os.getpid(), page, spec.url, tuple(sorted(spec.options.items())))
    with _lock:
        if key not in _opened:
            check_fitness()
            _opened[key] = VersionedBucket(spec, page=page)
        return _opened[key]


def _batch(columns: Sequence[Any], schema: Any) -> RecordBatch:
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)
