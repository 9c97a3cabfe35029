"""Rows of a bucket's plan for tests, and what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from tests.services.seaweed import S3Server

from ebbtide.engine.actor import Attempt, DeleteOptions
from ebbtide.storage.store import StoreSpec
from ebbtide.targets.s3.actions.deleter import BucketDeleter
from ebbtide.targets.s3.model import Versioning

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_CONDITION = pa.struct(
    [
        ("etag", pa.string()),
        ("is_latest", pa.bool_()),
        ("newer_versions", pa.int32()),
        ("siblings", pa.list_(pa.string())),
    ]
)
ROWS = pa.schema(
    [
        ("hash", pa.int64()),
        ("address", pa.string()),
        ("version", pa.string()),
        ("action", pa.string()),
        ("destination", pa.string()),
        ("condition", _CONDITION),
        ("rules", pa.list_(pa.string())),
        ("size", pa.int64()),
        ("created", pa.timestamp("us", tz="UTC")),
        ("batch", pa.int32()),
        ("kept_because", pa.string()),
    ]
)


class Listed(NamedTuple):
    """One version or delete marker as boto3 lists it; a marker has no etag."""

    key: str
    version: str
    latest: bool
    etag: str | None
    written: datetime

    def row(self, action: str, *, newer: int = 0, kept: str | None = None) -> dict[str, Any]:
        """Plan something for it."""
        required = {"etag": self.etag, "is_latest": self.latest, "newer_versions": newer}
        what = {"action": action, "version": self.version, "condition": required}
        return plan_row(self.key, what, self.written, kept)


def plan_row(key: str, what: dict[str, Any], created: datetime | None, kept: str | None) -> dict[str, Any]:
    """Make one row of a plan; `what` is its action, version and condition."""
    row = {"address": key, "created": created, "kept_because": kept, **what}
    return {"hash": hash(key) % 2**40, "rules": ["r1"], "size": 1, "batch": 0, **row}


@dataclass(frozen=True)
class PlannedBucket:
    """A bucket that is looked at and changed past Ebbtide, and in which rows of plans are done."""

    client: S3Client
    name: str
    spec: StoreSpec
    versioning: Versioning

    def put(self, key: str, *bodies: str) -> list[Listed]:
        """Write contents one after the other, and give all versions of the key, the newest first."""
        for body in bodies:
            self.put_only(key, body)
        return self.listed(key)

    def put_only(self, key: str, body: str) -> None:
        """Write one content."""
        self.client.put_object(Bucket=self.name, Key=key, Body=body.encode())

    def listed(self, key: str) -> list[Listed]:
        """List the versions of one key, the newest first."""
        return [one for one in self.everything(key) if one.key == key]

    def everything(self, prefix: str = "") -> list[Listed]:
        """List all versions below a prefix; of a key the current one first, and then by their ids."""
        pages = self.client.get_paginator("list_object_versions").paginate(Bucket=self.name, Prefix=prefix)
        found = [
            Listed(
                one["Key"],
                one["VersionId"],
                one["IsLatest"],
                one["ETag"].strip('"') if "ETag" in one else None,
                one["LastModified"],
            )
            for page in pages
            for kind in ("Versions", "DeleteMarkers")
            for one in page.get(kind, [])
        ]
        # SeaweedFS counts ids down, so the smallest is the newest.
        return sorted(found, key=lambda one: (one.key, not one.latest, one.version))

    def do(
        self,
        rows: Sequence[dict[str, Any]],
        *,
        resumed: bool = False,
        spec: StoreSpec | None = None,
        options: DeleteOptions | None = None,
    ) -> list[tuple[str, str]]:
        """Do rows of a plan, and give the outcome and the reason of each."""
        attempt = Attempt(options or DeleteOptions(), 1, 0, resumed)
        half = (len(rows) + 1) // 2
        batches = [pa.RecordBatch.from_pylist(part, schema=ROWS) for part in (rows[:half], rows[half:])]
        done = list(BucketDeleter(spec or self.spec, attempt, self.versioning)(batches))
        found = [row for batch in done for row in batch.to_pylist()]
        asked = [(row["address"], row["version"]) for row in rows]
        if asked != [(row["address"], row["version"]) for row in found]:
            raise AssertionError("the outcomes are not those of the rows")
        return [(row["outcome"], row["reason"]) for row in found]

    def empty(self) -> None:
        """Delete everything, so that the bucket can be removed."""
        for one in reversed(self.everything()):
            self.client.delete_object(Bucket=self.name, Key=one.key, VersionId=one.version)


def planned_bucket(server: S3Server, name: str, versioning: Versioning) -> PlannedBucket:
    """Set a fresh bucket up."""
    client = server.client()
    if versioning is not Versioning.DISABLED:
        client.put_bucket_versioning(
            Bucket=name,
            VersioningConfiguration={"Status": "Enabled"},
        )
    if versioning is Versioning.SUSPENDED:
        client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Suspended"})
    return PlannedBucket(client, name, StoreSpec(f"s3://{name}", server.options), versioning)
