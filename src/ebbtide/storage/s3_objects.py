"""Single objects and versions of a bucket: describe, read in pieces, write on condition, delete."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import md5, sha256
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

from botocore.exceptions import ClientError

from ebbtide.core.decision import Outcome
from ebbtide.core.errors import StoreError
from ebbtide.storage.address import locate
from ebbtide.storage.rate_limit import Backoff
from ebbtide.storage.s3_client import (
    ABSENT,
    BUSY,
    CHANGED,
    DENIED,
    FAILURES,
    TRANSIENT,
    S3Options,
    call,
    code_of,
    connect,
)
from ebbtide.storage.store import DeleteRequest, DeleteResult, StoreSpec, key_problem

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_THREADS = 8
_SILENT = "the store gave no answer for this key"


@dataclass(frozen=True)
class ObjectDeleter:
    """Deletes keys below one root of one bucket."""

    client: S3Client
    bucket: str
    root: str
    page: int
    backoff: Backoff

    def delete(self, requests: Sequence[DeleteRequest]) -> list[DeleteResult]:
        """Return one result per request, in their order; the failure of a single key does not raise."""
        safe = [request for request in requests if not key_problem(request.key)]
        plain = list(dict.fromkeys(request.key for request in safe if request.etag is None))
        results: dict[DeleteRequest, DeleteResult] = {}
        for start in range(0, len(plain), self.page):
            for result in self._delete_page(plain[start : start + self.page]):
                results[DeleteRequest(result.key)] = result
        careful = list(dict.fromkeys(request for request in safe if request.etag is not None))
        if careful:
            with ThreadPoolExecutor(min(_THREADS, len(careful))) as threads:
                results.update(zip(careful, threads.map(self._delete_if_same, careful), strict=True))
        return [
            results.get(request) or DeleteResult(request.key, Outcome.FAILED, key_problem(request.key))
            for request in requests
        ]

    def _delete_page(self, keys: Sequence[str]) -> Iterable[DeleteResult]:
        """Delete one page, and retry the keys that the store was too busy for."""
        results: dict[str, DeleteResult] = {}
        pending = list(keys)
        for _ in self.backoff.attempts():
            answers = self._ask(pending)
            results.update({key: result_of(key, *answers[key]) for key in pending})
            pending = [key for key in pending if answers[key][0] in BUSY]
            if not pending:
                break
        return results.values()

    def _ask(self, keys: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Send one bulk request and return each key's code and message; no code means deleted."""
        objects = [{"Key": self.root + key} for key in keys]
        try:
            answer = self.client.delete_objects(
                Bucket=self.bucket,
                Delete={"Objects": objects, "Quiet": False},  # type: ignore[typeddict-item]
            )
        except TRANSIENT as error:
            return dict.fromkeys(keys, ("RequestTimeout", code_of(error)))
        except FAILURES as error:
            return dict.fromkeys(keys, (code_of(error), ""))
        cut = len(self.root)
        said = {one.get("Key", "")[cut:]: ("", "") for one in answer.get("Deleted", [])}
        for one in answer.get("Errors", []):
            said[one.get("Key", "")[cut:]] = (one.get("Code") or "Unknown", one.get("Message", ""))
        return {key: said.get(key, ("InternalError", _SILENT)) for key in keys}

    def _delete_if_same(self, request: DeleteRequest) -> DeleteResult:
        """Compare first, then delete on condition, because some servers ignore the condition."""
        key, etag = request.key, (request.etag or "").strip('"')
        try:
            if self._etag(key) != etag:
                return DeleteResult(key, Outcome.CHANGED, "its content differs from the listing")
            call(
                self.backoff,
                lambda: self.client.delete_object(
                    Bucket=self.bucket, Key=self.root + key, IfMatch=f'"{etag}"'
                ),
            )
        except ClientError as error:
            refused = result_of(key, code_of(error), error.response.get("Error", {}).get("Message", ""))
            return self._look_again(refused, etag) if refused.outcome is Outcome.CHANGED else refused
        except FAILURES as error:
            return result_of(key, code_of(error), "")
        return DeleteResult(key, Outcome.DELETED)

    def _etag(self, key: str) -> str:
        """Return the object's current etag."""
        answer = call(self.backoff, lambda: self.client.head_object(Bucket=self.bucket, Key=self.root + key))
        return answer["ETag"].strip('"')

    def _look_again(self, refused: DeleteResult, etag: str) -> DeleteResult:
        """
        Find out why the condition failed: a server may also refuse it for a missing object.

        `changed` is final, so it is returned only if other content was seen; otherwise the delete is retried.
        """
        try:
            changed = self._etag(refused.key) != etag
        except FAILURES as error:
            return result_of(refused.key, code_of(error), "")
        return refused if changed else replace(refused, outcome=Outcome.FAILED)


def result_of(key: str, code: str, message: str) -> DeleteResult:
    """Return the outcome for the store's code for one key; no code means deleted."""
    if not code:
        return DeleteResult(key, Outcome.DELETED)
    if code in ABSENT:
        return DeleteResult(key, Outcome.ABSENT)
    outcome = Outcome.FAILED
    if code in DENIED:
        outcome = Outcome.DENIED
    elif code in CHANGED:
        outcome = Outcome.CHANGED
    return DeleteResult(key, outcome, f"{code}: {message}" if message else code)


T = TypeVar("T")

NULL = "null"
"""The id of a version that was written while the bucket kept no versions."""

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
"""Error codes for which a retry cannot help."""


class Refusal(StoreError):
    """The server refused one request; the code decides the outcome for the object."""

    def __init__(self, error: Exception, what: str) -> None:
        self.code = code_of(error)
        said = error.response.get("Error", {}).get("Message", "") if isinstance(error, ClientError) else ""
        super().__init__(f"{what}: {self.code}", why=said)

    @property
    def changed(self) -> bool:
        """Return True if a condition of the request failed."""
        return self.code in CHANGED

    @property
    def outcome(self) -> Outcome:
        """Return the outcome of an item whose request was refused this way."""
        if self.code in _NEVER_WILL:
            return Outcome.DENIED
        return Outcome.CHANGED if self.changed else Outcome.FAILED


@dataclass(frozen=True)
class S3Object:
    """The description of one object or version."""

    key: str
    asked: str | None
    """The version that was asked for; None for the current one."""
    version: str | None
    """The actual version id, if the server returns it."""
    etag: str
    size: int
    modified: datetime
    storage_class: str
    headers: Mapping[str, Any]
    """Content type and the like, under boto3's names."""
    metadata: Mapping[str, str]
    legal_hold: bool = False
    retain_until: datetime | None = None
    kept_as: Mapping[str, Any] = field(default_factory=dict)
    """Storage class and encryption key if they are not the default, under boto3's names."""
    restored: bool = False
    """True if it is archived and the store has made it readable for a while."""


@dataclass(frozen=True)
class About:
    """The headers, metadata and tags of an object."""

    headers: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)

    def fields(self) -> dict[str, Any]:
        """Return them as arguments of boto3."""
        tagging = {"Tagging": urlencode(self.tags)} if self.tags else {}
        return {**self.headers, "Metadata": dict(self.metadata), **tagging}


class S3Objects:
    """The objects of one bucket, by full keys; a refused request raises :class:`Refusal`."""

    def __init__(
        self, spec: StoreSpec, backoff: Backoff | None = None, client: S3Client | None = None
    ) -> None:
        place = locate(spec.url)
        options = S3Options.parse(spec.options)
        self.bucket = place.host
        self.root = f"{place.path}/" if place.parts else ""
        self.server = (options.endpoint.rstrip("/"), options.profile)
        """Endpoint and profile: between buckets that share both, the server can copy."""
        self.client = client or connect(options)
        self._backoff = backoff or Backoff(tries=options.retries)
        self._deleter = ObjectDeleter(self.client, self.bucket, "", options.delete_page, self._backoff)

    def ask(self, what: str, operation: Callable[[], T]) -> T:
        """Make one request, with retries while the server is busy."""
        try:
            return call(self._backoff, operation)
        except FAILURES as error:
            raise Refusal(error, what) from None

    def check_bucket(self) -> None:
        """Raise if the bucket does not exist: a server answers as for a missing object."""
        self.ask(f"find the bucket {self.bucket}", lambda: self.client.head_bucket(Bucket=self.bucket))

    def describe(self, key: str, version: str | None = None) -> S3Object | None:
        """Describe one version, or the current one; None if it is missing or hidden by a delete marker."""
        try:
            answer = self.ask("describe", lambda: self.client.head_object(**self._named(key, version)))
        except Refusal as no:
            if no.code in ABSENT:
                return None
            raise
        return _described(key, version, answer)

    def read(self, found: S3Object, start: int, length: int) -> bytes:
        """Read a piece of exactly this content; raise if the object has other content now."""
        if not length:
            return b""
        named = self._named(found.key, found.asked)
        asked = {**named, "IfMatch": f'"{found.etag}"', "Range": f"bytes={start}-{start + length - 1}"}

        def piece() -> bytes:
            return self.client.get_object(**asked)["Body"].read()

        data = self.ask("read", piece)
        if len(data) != length:
            raise StoreError(f"the store returned {len(data)} of {length} bytes", fix="try again later")
        return data

    def pieces(self, found: S3Object, size: int) -> Iterator[bytes]:
        """Stream an object in pieces; an empty one is one empty piece."""
        for start in range(0, max(found.size, 1), size):
            yield self.read(found, start, min(size, found.size - start))

    def digest(self, found: S3Object, piece: int) -> str:
        """Read the whole object and return the SHA-256 of its bytes."""
        total = sha256()
        for data in self.pieces(found, piece):
            total.update(data)
        return total.hexdigest()

    def tags(self, found: S3Object) -> dict[str, str]:
        """Return the tags of an object or version."""
        named = self._named(found.key, found.asked)
        answer = self.ask("read the tags", lambda: self.client.get_object_tagging(**named))
        return {one["Key"]: one["Value"] for one in answer["TagSet"]}

    def put(self, key: str, data: bytes, about: About) -> str | None:
        """Write a new object and return its version id; raise if the key is taken."""
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
        """Delete the current object if it still has this content: compared first, then on condition."""
        return self._deleter.delete([DeleteRequest(key, etag)])[0]

    def remove_version(self, key: str, version: str, etag: str = "") -> None:
        """Delete one version permanently; with an etag, on the condition that it still has it."""
        condition: Any = {"IfMatch": f'"{etag}"'} if etag else {}
        self.ask("delete", lambda: self.client.delete_object(**self._named(key, version), **condition))

    def _named(self, key: str, version: str | None) -> Any:
        named = {"Bucket": self.bucket, "Key": key}
        return named if version is None else {**named, "VersionId": version}


def content_md5(data: bytes) -> str:
    """Return the checksum with which the server verifies what it received."""
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
    """Return the storage class and the customer's encryption key, which a copy must request again."""
    storage_class = answer.get("StorageClass") or "STANDARD"
    found = {} if storage_class == "STANDARD" else {"StorageClass": storage_class}
    if answer.get(ENCRYPTION, "").startswith("aws:kms"):
        found |= {name: answer[name] for name in _ENCRYPTION if answer.get(name)}
    return found


_opened: dict[tuple[int, str, tuple[tuple[str, str], ...]], S3Objects] = {}
_lock = Lock()


def open_objects(spec: StoreSpec) -> S3Objects:
    """Open a bucket, or return the one that this process already has open."""
    # The process is part of the key: Spark forks its workers, and a forked child must not share sockets.
    key = (os.getpid(), spec.url, tuple(sorted(spec.options.items())))
    with _lock:
        if key not in _opened:
            _opened[key] = S3Objects(spec)
        return _opened[key]
