"""Buckets with versions for tests: made on a real S3 server, and looked at with a plain client."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ebbtide.bucket.demonstration import list_versions

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_THREADS = 8


def put_all(client: S3Client, bucket: str, keys: list[str]) -> None:
    """Write each key, with itself as its content, many at a time."""
    with ThreadPoolExecutor(_THREADS) as threads:
        list(threads.map(lambda key: client.put_object(Bucket=bucket, Key=key, Body=key.encode()), keys))


def everything(client: S3Client, bucket: str) -> set[tuple[Any, ...]]:
    """List all versions and markers: key, version id, whether latest, and whether it is a marker."""
    found = list_versions(client, bucket)
    return {(*name, one.is_latest, one.is_delete_marker) for name, one in found.items()}
