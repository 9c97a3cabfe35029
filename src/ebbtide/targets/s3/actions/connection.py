"""The connection to a bucket that looking and acting share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ebbtide.storage.rate_limit import Backoff
from ebbtide.storage.s3_bucket import VersionedBucket, open_bucket
from ebbtide.storage.store import StoreSpec

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


@dataclass(frozen=True)
class Connection:
    """What it takes to send a request to one bucket."""

    client: S3Client
    bucket: str
    backoff: Backoff
    ordered: bool


def connection_to(spec: StoreSpec) -> Connection:
    """Give this process's connection to a bucket."""
    return connection_of(open_bucket(spec))


def connection_of(bucket: VersionedBucket) -> Connection:
    """Give the connection of an open bucket."""
    return Connection(bucket.client, bucket.name, bucket.backoff, bucket.ordered)
