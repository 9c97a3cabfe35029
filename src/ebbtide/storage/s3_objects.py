"""Single objects and versions of an S3 bucket: describe, read in pieces, write on condition, remove."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import md5, sha256
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

from botocore.exceptions import ClientError

from ebbtide.core.decision import Outcome
from ebbtide.core.errors import StoreError
from ebbtide.storage.address import locate
from ebbtide.storage.backoff import Backoff
from ebbtide.storage.base import DeleteRequest, DeleteResult, StoreSpec
from ebbtide.storage.s3_client import ABSENT, CHANGED, DENIED, FAILURES, S3Options, call, code_of, connect
from ebbtide.storage.s3_delete import Deleter

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

T = TypeVar("T")

NULL = "null"
"""The id of a version that was written while versions were not kept."""

_HEADERS = (
    "CacheControl",
    "ContentDisposition",
    "ContentEncoding",
    "ContentLanguage",
    "ContentType",
    "Expires",
    "WebsiteRedirectLocation",
)
ENCRYPTION = "ServerSideEncryption"
_ENCRYPTION = (ENCRYPTION, "SSEKMSKeyId", "BucketKeyEnabled")
_NEVER_WILL = DENIED | {
    "InvalidArgument",
    "InvalidObjectState",
    "InvalidRequest",
    "InvalidStorageClass",
    "MetadataTooLarge",
    "MethodNotAllowed",
    "NotImplemented",
    "405",
    "501",
}
"""Answers that stay the same however often one asks."""


class Refusal(StoreError):
    """The server's answer to one request was no; the code tells what that means for the object."""

    def __init__(self, error: Exception, what: str) -> None:
        self.code = code_of(error)
        said = error.response.get("Error", {}).get("Message", "") if isinstance(error, ClientError) else ""
        super().__init__(f"{what}: {self.code}", why=said)

    @property
    def changed(self) -> bool:
        """Tell whether a condition of the request did not hold."""
        return self.code in CHANGED

    @property
    def outcome(self) -> Outcome:
        """Say what became of an item whose request was answered so."""
        if self.code in _NEVER_WILL:
            return Outcome.DENIED
        return Outcome.CHANGED if self.changed else Outcome.FAILED


@dataclass(frozen=True)
class S3Object:
    """What S3 says of one object or version."""

    key: str
    asked: str | None
    """The version that was asked for; None is whatever is current."""
    version: str | None
    """The version that it is, if the server says so."""
    etag: str
    size: int
    modified: datetime
    storage_class: str
    headers: Mapping[str, Any]
    """Content type and the like, by the names in which boto3 takes them."""
    metadata: Mapping[str, str]
    legal_hold: bool = False
    retain_until: datetime | None = None
    kept_as: Mapping[str, Any] = field(default_factory=dict)
    """Class and key by which the store keeps it, where they are not the usual ones, as boto3 takes them."""
    restored: bool = False
    """It is archived, and the store has made it readable for a while."""


@dataclass(frozen=True)
class About:
    """What is written beside an object's bytes."""

    headers: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)

    def fields(self) -> dict[str, Any]:
        """Give it as boto3 takes it."""
        tagging = {"Tagging": urlencode(self.tags)} if self.tags else {}
        return {**self.headers, "Metadata": dict(self.metadata), **tagging}


class S3Objects:
    """The objects of one bucket, by whole keys; an answer that is no raises :class:`Refusal`."""

    def __init__(
        self, spec: StoreSpec, backoff: Backoff | None = None, client: S3Client | None = None
    ) -> None:
        place = locate(spec.url)
        options = S3Options.parse(spec.options)
        self.bucket = place.host
        self.root = f"{place.path}/" if place.parts else ""
        self.server = (options.endpoint.rstrip("/"), options.profile)
        """Who answers and to whom: what is equal in both can copy on the server."""
        self.client = client or connect(options)
        self._backoff = backoff or Backoff(tries=options.retries)
        self._deleter = Deleter(self.client, self.bucket, "", options.delete_page, self._backoff)

    def ask(self, what: str, operation: Callable[[], T]) -> T:
        """Make one request, again while the server is busy."""
        try:
            return call(self._backoff, operation)
        except FAILURES as error:
            raise Refusal(error, what) from None

    def check_bucket(self) -> None:
        """Make sure that there is a bucket: a server says the same of an object that is in none."""
        self.ask(f"find the bucket {self.bucket}", lambda: self.client.head_bucket(Bucket=self.bucket))

    def describe(self, key: str, version: str | None = None) -> S3Object | None:
        """Describe one version, or the current one; None if there is none, or a delete marker hides it."""
        try:
            answer = self.ask("describe", lambda: self.client.head_object(**self._named(key, version)))
        except Refusal as no:
            if no.code in ABSENT:
                return None
            raise
        return _described(key, version, answer)

    def read(self, found: S3Object, start: int, length: int) -> bytes:
        """Read a piece of exactly this content; the same object with another content is refused."""
        if not length:
            return b""
        named = self._named(found.key, found.asked)
        asked = {**named, "IfMatch": f'"{found.etag}"', "Range": f"bytes={start}-{start + length - 1}"}

        def piece() -> bytes:
            return self.client.get_object(**asked)["Body"].read()

        data = self.ask("read", piece)
        if len(data) != length:
            raise StoreError(f"the store gave {len(data)} of {length} bytes", fix="try again later")
        return data

    def pieces(self, found: S3Object, size: int) -> Iterator[bytes]:
        """Stream an object in pieces; an empty one is one empty piece."""
        for start in range(0, max(found.size, 1), size):
            yield self.read(found, start, min(size, found.size - start))

    def digest(self, found: S3Object, piece: int) -> str:
        """Read the whole object and give the SHA-256 of its bytes."""
        total = sha256()
        for data in self.pieces(found, piece):
            total.update(data)
        return total.hexdigest()

    def tags(self, found: S3Object) -> dict[str, str]:
        """Give the tags of an object or version."""
        named = self._named(found.key, found.asked)
        answer = self.ask("read the tags", lambda: self.client.get_object_tagging(**named))
        return {one["Key"]: one["Value"] for one in answer["TagSet"]}

    def put(self, key: str, data: bytes, about: About) -> str | None:
        """Write a new object whole, and say its version; a key that is taken is refused."""
        answer = self.ask(
            "write",
            lambda: self.client.put_object(
                Bucket=self.bucket,
                Key=key,
                Body=data,
                ContentMD5=content_md5(data),
                IfNoneMatch="*",
                **about.fields(),
            ),
        )
        return answer.get("VersionId")

    def remove_same(self, key: str, etag: str) -> DeleteResult:
        """Delete what is current if it is still this content: compared first, then on condition."""
        return self._deleter.delete([DeleteRequest(key, etag)])[0]

    def remove_version(self, key: str, version: str, etag: str = "") -> None:
        """Delete one version for good; with an etag on the condition that it still has it."""
        condition: Any = {"IfMatch": f'"{etag}"'} if etag else {}
        self.ask("delete", lambda: self.client.delete_object(**self._named(key, version), **condition))

    def _named(self, key: str, version: str | None) -> Any:
        named = {"Bucket": self.bucket, "Key": key}
        return named if version is None else {**named, "VersionId": version}


def content_md5(data: bytes) -> str:
    """Give the checksum by which the server sees that it got what was sent."""
    return b64encode(md5(data, usedforsecurity=False).digest()).decode()


def _described(key: str, asked: str | None, answer: Any) -> S3Object:
    until = answer.get("ObjectLockRetainUntilDate")
    headers = {name: answer[name] for name in _HEADERS if answer.get(name)}
    return S3Object(
        key=key,
        asked=asked,
        version=answer.get("VersionId"),
        etag=answer["ETag"].strip('"'),
        size=answer["ContentLength"],
        modified=answer["LastModified"].astimezone(UTC),
        storage_class=answer.get("StorageClass") or "STANDARD",
        headers=headers,
        metadata=dict(answer.get("Metadata", {})),
        legal_hold=answer.get("ObjectLockLegalHoldStatus") == "ON",
        retain_until=until.astimezone(UTC) if until else None,
        kept_as=_kept_as(answer),
        restored='ongoing-request="false"' in answer.get("Restore", ""),
    )


def _kept_as(answer: Any) -> dict[str, Any]:
    """Find what a copy must be asked for to be kept in the same way: a class, and a key of somebody's own."""
    storage_class = answer.get("StorageClass") or "STANDARD"
    found = {} if storage_class == "STANDARD" else {"StorageClass": storage_class}
    if answer.get(ENCRYPTION, "").startswith("aws:kms"):
        found |= {name: answer[name] for name in _ENCRYPTION if answer.get(name)}
    return found


_opened: dict[tuple[int, str, tuple[tuple[str, str], ...]], S3Objects] = {}
_lock = Lock()


def open_objects(spec: StoreSpec) -> S3Objects:
    """Open a bucket, or give back the one that this process has open already."""
    # The process is part of the key: Spark forks its workers, and a forked child must not share sockets.
    key = (os.getpid(), spec.url, tuple(sorted(spec.options.items())))
    with _lock:
        if key not in _opened:
            _opened[key] = S3Objects(spec)
        return _opened[key]
