"""Buckets with versions for tests: made on a real S3 server, and looked at with a plain client."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_THREADS = 8


def put_all(client: S3Client, bucket: str, keys: list[str]) -> None:
    """Write each key, with itself as its content, many at a time."""
    with ThreadPoolExecutor(_THREADS) as threads:
        list(threads.map(lambda key: client.put_object(Bucket=bucket, Key=key, Body=key.encode()), keys))


def everything(client: S3Client, bucket: str) -> set[tuple[Any, ...]]:
    """List all versions and markers: key, version id, whether latest, and whether it is a marker."""
    return set(_versions(client, bucket))


def _versions(client: S3Client, bucket: str) -> Iterator[tuple[Any, ...]]:
    for page in client.get_paginator("list_object_versions").paginate(Bucket=bucket):
        for kind in ("Versions", "DeleteMarkers"):
            for one in page.get(kind, []):
                yield one["Key"], one["VersionId"], one["IsLatest"], kind == "DeleteMarkers"
