"""Explaining one key of a bucket: what the rules say of each of its versions and uploads, as it is now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from ebbtide.bucket.inventory.scope import needs_tags
from ebbtide.bucket.model import Upload, Verdict, Version
from ebbtide.bucket.oracle import evaluate
from ebbtide.bucket.sources import Sourced
from ebbtide.rules.instant import from_micros
from ebbtide.rules.s3.storage_classes import STANDARD
from ebbtide.store.s3_version_pages import VersionRow
from ebbtide.store.s3_versions import VersionedBucket


@dataclass(frozen=True)
class Explained:
    """One version or upload of a key, and what the rules say of it."""

    item: Version | Upload
    verdict: Verdict


def explain_key(bucket: VersionedBucket, key: str, rules: Sourced, now: datetime) -> list[Explained]:
    """
    Ask the bucket about one key, and the oracle what the rules make of it.

    A single key needs no Spark: the oracle says the same, for that is how the evaluation is tested.
    """
    versions = [row for rows in bucket.version_rows(key, up_to=key) for row in rows if row.key == key]
    items: list[Version | Upload] = [_version(bucket, row, rules) for row in versions]
    items += _uploads(bucket, key)
    verdicts = evaluate(rules.configuration, items, now, rules.versioning)
    return [Explained(*pair) for pair in zip(items, verdicts, strict=True)]


def _version(bucket: VersionedBucket, row: VersionRow, rules: Sourced) -> Version:
    lock = None if row.is_delete_marker else bucket.lock(row.key, row.version_id)
    asks = needs_tags(rules.configuration) and not row.is_delete_marker
    return Version(
        row.key,
        row.version_id,
        from_micros(row.micros),
        row.is_latest,
        row.is_delete_marker,
        row.size,
        row.storage_class or STANDARD,
        bucket.tags(row.key, row.version_id) if asks else None,
        row.etag,
        legal_hold=lock is not None and lock.legal_hold,
        retain_until=lock.retain_until if lock else None,
        replication_status=lock.replication_status if lock else None,
        restoring=lock is not None and lock.restoring,
    )


def _uploads(bucket: VersionedBucket, key: str) -> Sequence[Upload]:
    return [
        Upload(row["key"], row["upload_id"], row["initiated"])
        for batch in bucket.uploads(key)
        for row in batch.to_pylist()
        if row["key"] == key
    ]
