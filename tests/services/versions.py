"""Buckets with versions for tests: made on a real S3 server, and looked at with a plain client."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ebbtide.targets.s3.demo import list_versions

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_THREADS = 8


def put_all(client: S3Client, bucket: str, keys: list[str]) -> None:
    """Write each key, with itself as its content, many at a time."""
    with ThreadPoolExecutor(_THREADS) as threads:
        list(threads.map(lambda key: client.put_object(Bucket=bucket, Key=key, Body=key.encode()), keys))


def next_second(client: S3Client, bucket: str) -> None:
    """Wait until what is written has another time than all that is there: a server counts in seconds."""
    newest = max(one.last_modified for one in list_versions(client, bucket).values())
    while datetime.now(UTC) < newest + timedelta(seconds=1):
        time.sleep(0.02)


def everything(client: S3Client, bucket: str) -> set[tuple[Any, ...]]:
    """List all versions and markers: key, version id, whether latest, and whether it is a marker."""
    found = list_versions(client, bucket)
    return {(*name, one.is_latest, one.is_delete_marker) for name, one in found.items()}
