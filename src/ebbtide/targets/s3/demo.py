"""The bucket of `ebb demo`: filled with a small history, and checked afterwards without the pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ebbtide.targets.s3.model import Action, Version, Versioning
from ebbtide.targets.s3.oracle import evaluate
from ebbtide.targets.s3.rules.configuration import Configuration

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

BUCKET = "demo"
RULES = """\
{"Rules": [
  {"ID": "logs", "Status": "Enabled", "Filter": {"Prefix": "logs/"}, "Expiration": {"Days": 30}},
  {"ID": "old versions", "Status": "Enabled", "Filter": {},
   "NoncurrentVersionExpiration": {"NoncurrentDays": 7, "NewerNoncurrentVersions": 1}},
  {"ID": "lone markers", "Status": "Enabled", "Filter": {},
   "Expiration": {"ExpiredObjectDeleteMarker": true}},
  {"ID": "lost uploads", "Status": "Enabled", "Filter": {},
   "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 2}}
]}
"""
_THREADS = 8

Listed = dict[tuple[str, str], Version]
"""Versions and delete markers by key and version id."""


@dataclass(frozen=True)
class BucketCheck:
    """The comparison of a listing after the run with what the oracle expects."""

    kept: int
    gone: int
    marked: int
    wrong: tuple[str, ...]


def fill_bucket(client: S3Client, keys: int) -> Iterator[str]:
    """Write logs, data with old versions, deleted objects and an incomplete upload."""
    client.create_bucket(Bucket=BUCKET)
    client.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
    logs = [f"logs/2026/{number:05d}.log" for number in range(keys // 2)]
    data = [f"data/table-{number % 7}/{number:05d}.parquet" for number in range(keys // 2)]
    _put(client, [*logs, *data])
    yield f"{len(logs)} logs and {len(data)} tables"
    for _ in range(2):
        _put(client, data)
    yield f"all tables overwritten twice: {2 * len(data)} old versions"
    gone = data[::10]
    with ThreadPoolExecutor(_THREADS) as threads:
        list(threads.map(lambda key: client.delete_object(Bucket=BUCKET, Key=key), gone))
    client.create_multipart_upload(Bucket=BUCKET, Key="backup.tar")
    yield f"{len(gone)} tables deleted, an upload begun and left"


def _put(client: S3Client, keys: Iterable[str]) -> None:
    with ThreadPoolExecutor(_THREADS) as threads:
        list(threads.map(lambda key: client.put_object(Bucket=BUCKET, Key=key, Body=key.encode()), keys))


def list_versions(client: S3Client, bucket: str) -> Listed:
    """List all versions and delete markers with the client only."""
    found: Listed = {}
    for page in client.get_paginator("list_object_versions").paginate(Bucket=bucket):
        for kind in ("Versions", "DeleteMarkers"):
            rows: Any = page.get(kind, [])
            for row in rows:
                name = row["Key"], row["VersionId"]
                marker, size = kind == "DeleteMarkers", row.get("Size")
                found[name] = Version(*name, row["LastModified"], row["IsLatest"], marker, size)
    return found


def check_bucket(before: Listed, after: Listed, rules: Configuration, now: datetime) -> BucketCheck:
    """Compare two listings with what the oracle says must have happened between them."""
    verdicts = evaluate(rules, list(before.values()), now, Versioning.ENABLED)
    actions = dict(zip(before, (verdict.action for verdict in verdicts), strict=True))
    kept = {name for name, action in actions.items() if action in (Action.NONE, Action.EXPIRE)}
    marked = {key for (key, _), action in actions.items() if action is Action.EXPIRE}
    new = {name: version for name, version in after.items() if name not in before}
    wrong = [f"{key} {version} is gone" for key, version in sorted(kept - set(after))]
    wrong += [f"{key} {version} is still there" for key, version in sorted(set(before) & set(after) - kept)]
    wrong += [f"{key} has no marker" for key in sorted(marked - {key for key, _ in new})]
    wrong += [f"{key} {version} was not planned" for key, version in sorted(new) if key not in marked]
    return BucketCheck(len(kept), len(before) - len(kept), len(marked), tuple(wrong))
