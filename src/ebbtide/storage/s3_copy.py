"""
Copy and move S3 objects: on the server in one request or in parts, or through this process.

A move copies, proves that the copy has the same bytes, and only then deletes the source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import md5, sha256
from typing import Any

from ebbtide.core.decision import Outcome
from ebbtide.core.errors import EbbtideError, StoreError
from ebbtide.storage.s3_objects import ENCRYPTION, About, Refusal, S3Object, S3Objects, content_md5
from ebbtide.storage.store import DeleteResult, MoveRequest, key_problem

_MOST_PARTS = 10_000
_MEBIBYTE = 1024**2


@dataclass(frozen=True)
class Sizes:
    """How large requests may be; at most one part is held in memory."""

    one_copy: int = 5 * 1024**3
    """The largest object that is copied in one request; S3 allows 5 GiB."""
    part: int = 16 * _MEBIBYTE
    server_part: int = 512 * _MEBIBYTE

    def part_of(self, size: int, *, on_server: bool = False) -> int:
        """Return the length of an object's parts: S3 accepts at most ten thousand parts."""
        wanted = self.server_part if on_server else self.part
        return max(wanted, -(-size // _MOST_PARTS))


@dataclass(frozen=True)
class CopyProof:
    """What is known about a copy after it was made; unknown values are empty."""

    etag: str = ""
    sha256: str = ""
    version: str | None = None
    """The version id of the copy, if the target keeps versions."""


def copy_on_server(
    source: S3Objects, found: S3Object, target: S3Objects, key: str, about: About, sizes: Sizes
) -> CopyProof:
    """Let the server copy an object with exactly this content to a free key."""
    origin = copy_source(source, found)
    if found.size <= sizes.one_copy:
        answer = target.ask(
            "copy",
            lambda: target.client.copy_object(
                Bucket=target.bucket,
                Key=key,
                **origin,
                MetadataDirective="REPLACE",
                TaggingDirective="COPY",
                IfNoneMatch="*",
                **About(about.headers, about.metadata).fields(),
            ),
        )
        return CopyProof(etag=simple(found.etag), version=answer.get("VersionId"))
    with_parts = PartWriter(target, key, about, {"IfNoneMatch": "*"})
    version = with_parts.write(lambda: copied_parts(with_parts, origin, found.size, sizes))
    return CopyProof(version=version)


def copy_through_here(
    source: S3Objects, found: S3Object, target: S3Objects, key: str, about: About, sizes: Sizes
) -> CopyProof:
    """Read an object with exactly this content piece by piece and write it to a free key."""
    part = sizes.part_of(found.size)
    if found.size <= part:
        data = source.read(found, 0, found.size)
        version = target.put(key, data, about)
        return CopyProof(md5(data, usedforsecurity=False).hexdigest(), sha256(data).hexdigest(), version)
    whole, sums = sha256(), md5(usedforsecurity=False)
    writer = PartWriter(target, key, about, {"IfNoneMatch": "*"})

    def parts() -> Iterator[str]:
        for number, data in enumerate(source.pieces(found, part), 1):
            whole.update(data)
            sums.update(md5(data, usedforsecurity=False).digest())
            yield writer.upload(number, data)

    version = writer.write(parts)
    count = -(-found.size // part)
    return CopyProof(f"{sums.hexdigest()}-{count}", whole.hexdigest(), version)


def copy_source(source: S3Objects, found: S3Object) -> dict[str, Any]:
    """Return the source arguments of a copy, on the condition that it still has this content."""
    named = {"Bucket": source.bucket, "Key": found.key}
    if found.asked is not None:
        named["VersionId"] = found.asked
    return {"CopySource": named, "CopySourceIfMatch": f'"{found.etag}"'}


def simple(etag: str) -> str:
    """Return an etag that can be the MD5 of the bytes, or "" for an upload in parts."""
    return etag if len(etag) == 32 and "-" not in etag else ""


class PartWriter:
    """One multipart upload; it is completed on a condition, and aborted if anything fails."""

    def __init__(
        self,
        target: S3Objects,
        key: str,
        about: About,
        condition: Mapping[str, str],
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self._target = target
        self._condition: Any = condition
        self._named: Any = {"Bucket": target.bucket, "Key": key}
        self._start: Any = {**self._named, **about.fields(), **(extra or {})}

    def write(self, parts: Callable[[], Iterator[str]]) -> str | None:
        """Begin, send the parts, complete, and return the new version id."""
        client, ask = self._target.client, self._target.ask
        begun = ask("begin an upload", lambda: client.create_multipart_upload(**self._start))
        self._named["UploadId"] = begun["UploadId"]
        try:
            sent: Any = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(parts(), 1)]
            answer = ask(
                "complete an upload",
                lambda: client.complete_multipart_upload(
                    **self._named, MultipartUpload={"Parts": sent}, **self._condition
                ),
            )
        except BaseException:
            with suppress(Refusal):
                ask("abort an upload", lambda: client.abort_multipart_upload(**self._named))
            raise
        return answer.get("VersionId")

    def upload(self, number: int, data: bytes) -> str:
        """Send one part and return its etag."""
        client = self._target.client
        answer = self._target.ask(
            "write a part",
            lambda: client.upload_part(
                **self._named, PartNumber=number, Body=data, ContentMD5=content_md5(data)
            ),
        )
        return answer["ETag"]

    def copy(self, number: int, origin: Mapping[str, Any], start: int, end: int) -> str:
        """Let the server copy one part, up to but not including `end`, and return its etag."""
        client, span = self._target.client, f"bytes={start}-{end - 1}"
        answer = self._target.ask(
            "copy a part",
            lambda: client.upload_part_copy(**self._named, PartNumber=number, CopySourceRange=span, **origin),
        )
        return answer["CopyPartResult"]["ETag"]


def copied_parts(writer: PartWriter, origin: Mapping[str, Any], size: int, sizes: Sizes) -> Iterator[str]:
    """Let the server copy all parts of an object, and yield their etags."""
    part = sizes.part_of(size, on_server=True)
    for number, start in enumerate(range(0, size, part), 1):
        yield writer.copy(number, origin, start, min(start + part, size))


_AT_HAND = frozenset(
    {"STANDARD", "STANDARD_IA", "ONEZONE_IA", "GLACIER_IR", "REDUCED_REDUNDANCY", "EXPRESS_ONEZONE"}
)
"""Classes whose objects can be read at once. Others are tried, because names differ between stores."""
_ARCHIVES = frozenset({"GLACIER", "DEEP_ARCHIVE"})
_ARCHIVED = frozenset({"InvalidObjectState", "ObjectNotInActiveTierError"})
"""Error codes for an object that the store must restore before it can be read or copied."""
_REDIRECT = "WebsiteRedirectLocation"


def copy_to_key(objects: S3Objects, found: S3Object, key: str, sizes: Sizes) -> None:
    """Copy to a free key, with headers, metadata and tags, in the same storage class."""
    _check_provable(found, sizes)
    with _explained(found):
        if found.storage_class not in _AT_HAND:
            # A store that copies an object that it cannot read would copy the name without the bytes.
            objects.read(found, 0, min(found.size, 1))
        try:
            _copy(objects, found, key, sizes, found.kept_as)
        except Refusal as no:
            if no.code != "InvalidStorageClass":
                raise
            # Only the store itself uses this class. Keeping the bytes matters more than keeping the class.
            others = {name: value for name, value in found.kept_as.items() if name != "StorageClass"}
            _copy(objects, found, key, sizes, others)


def has_same_bytes(objects: S3Objects, found: S3Object, held: S3Object, sizes: Sizes) -> bool:
    """Prove that a copy has the bytes of its source: by the store's checksum, or by reading both."""
    if found.size != held.size:
        return False
    if simple(found.etag) and found.etag == held.etag:
        return True
    return _digest(objects, found, sizes) == _digest(objects, held, sizes)


def redirection(found: S3Object) -> dict[str, str]:
    """Return the one header that a server does not copy in a single request."""
    return {name: value for name, value in found.headers.items() if name == _REDIRECT}


def _digest(objects: S3Objects, found: S3Object, sizes: Sizes) -> str:
    with _explained(found):
        return objects.digest(found, sizes.part_of(found.size))


def _copy(objects: S3Objects, found: S3Object, key: str, sizes: Sizes, kept_as: Mapping[str, Any]) -> None:
    origin, free = copy_source(objects, found), {"IfNoneMatch": "*"}
    if found.size > sizes.one_copy:
        about = About(found.headers, found.metadata, objects.tags(found))
        writer = PartWriter(objects, key, about, free, kept_as)
        writer.write(lambda: copied_parts(writer, origin, found.size, sizes))
        return
    more: Any = {**origin, **free, **redirection(found), **kept_as}
    objects.ask(
        "copy",
        lambda: objects.client.copy_object(
            Bucket=objects.bucket, Key=key, MetadataDirective="COPY", TaggingDirective="COPY", **more
        ),
    )


def _check_provable(found: S3Object, sizes: Sizes) -> None:
    """Refuse an object whose copy could only be verified by reading it, and would be archived at once."""
    if not found.restored or found.storage_class not in _ARCHIVES:
        return
    by_etag = simple(found.etag) and found.size <= sizes.one_copy and ENCRYPTION not in found.kept_as
    if not by_etag:
        raise StoreError(
            f"{_name(found)} is of class {found.storage_class}, and a copy of it could not be verified",
            why="a copy is archived at once, and its etag is not a checksum of its bytes; it was not moved",
            fix="give the object another storage class first",
        )


@contextmanager
def _explained(found: S3Object) -> Iterator[None]:
    """Turn the refusal to read an archived object into an error that says what to do."""
    try:
        yield
    except Refusal as no:
        if no.code not in _ARCHIVED:
            raise
        raise StoreError(
            f"{_name(found)} is archived (class {found.storage_class})",
            why=f"the store neither reads nor copies it ({no.code}), so it was not moved",
            fix="ask the store to restore it (aws s3api restore-object), wait until it has, and try again",
        ) from None


def _name(found: S3Object) -> str:
    """Return the key, and the version if one was asked for, as a restore request needs them."""
    return found.key if found.asked is None else f"{found.key}, version {found.asked},"


_THREADS = 8
_TAKEN = "there is another content in its place"


@dataclass(frozen=True)
class ObjectMover:
    """Moves objects below one root of one bucket."""

    objects: S3Objects
    sizes: Sizes = field(default_factory=Sizes)

    def move(self, requests: Sequence[MoveRequest]) -> list[DeleteResult]:
        """Return one result per request, in their order; the failure of a single object does not raise."""
        if not requests:
            return []
        with ThreadPoolExecutor(min(_THREADS, len(requests))) as threads:
            return list(threads.map(self._move_one, requests))

    def _move_one(self, request: MoveRequest) -> DeleteResult:
        key = request.source
        problem = key_problem(key) or key_problem(request.target)
        if problem:
            return DeleteResult(key, Outcome.FAILED, problem)
        try:
            root = self.objects.root
            outcome, reason = self._move(root + key, root + request.target, request.etag)
        except Refusal as no:
            # A condition failed because another writer came first; the next attempt will see its content.
            return DeleteResult(key, Outcome.FAILED if no.changed else no.outcome, str(no))
        except EbbtideError as broken:
            return DeleteResult(key, Outcome.FAILED, str(broken))
        return DeleteResult(key, outcome, reason)

    def _move(self, source: str, target: str, etag: str | None) -> tuple[Outcome, str]:
        found, held = self.objects.describe(source), self.objects.describe(target)
        if found is None:
            # A server gives the same answer if the bucket does not exist.
            self.objects.check_bucket()
            return (Outcome.DELETED, "it was moved before") if held else (Outcome.ABSENT, "")
        if etag is not None and found.etag != etag.strip('"'):
            return Outcome.CHANGED, "its content differs from the listing"
        ours = held is None
        if held is None:
            copy_to_key(self.objects, found, target, self.sizes)
            held = self.objects.describe(target)
        if held is None:
            return Outcome.FAILED, "the copy vanished"
        if not has_same_bytes(self.objects, found, held, self.sizes):
            return self._give_up(held, ours=ours)
        removed = self.objects.remove_same(source, found.etag)
        if removed.outcome.is_gone:
            return Outcome.DELETED, ""
        if removed.outcome is Outcome.CHANGED and ours:
            self.objects.remove_same(target, held.etag)
        return removed.outcome, removed.reason

    def _give_up(self, held: S3Object, *, ours: bool) -> tuple[Outcome, str]:
        if not ours:
            return Outcome.TAKEN, _TAKEN
        self.objects.remove_same(held.key, held.etag)
        return Outcome.FAILED, "the copy was not whole and is removed"
