"""Copying one S3 object to a new key: on the server in one request or in parts, or through this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import md5, sha256
from typing import Any

from ebbtide.storage.s3_objects import About, Refusal, S3Object, S3Objects, content_md5

_MOST_PARTS = 10_000
_MEBIBYTE = 1024**2


@dataclass(frozen=True)
class Sizes:
    """How large requests may be; what is held in memory at once is one part."""

    one_copy: int = 5 * 1024**3
    """The largest object that the server is asked to copy in one request; S3 allows 5 GiB."""
    part: int = 16 * _MEBIBYTE
    server_part: int = 512 * _MEBIBYTE

    def part_of(self, size: int, *, on_server: bool = False) -> int:
        """Give the length of an object's parts: S3 takes no more than ten thousand."""
        wanted = self.server_part if on_server else self.part
        return max(wanted, -(-size // _MOST_PARTS))


@dataclass(frozen=True)
class Proof:
    """What a copy must turn out to be, as far as copying it has shown; empty is what is not known."""

    etag: str = ""
    sha256: str = ""
    version: str | None = None
    """Which version the copy is, where the target keeps versions."""


def copy_on_server(
    source: S3Objects, found: S3Object, target: S3Objects, key: str, about: About, sizes: Sizes
) -> Proof:
    """Let the server copy an object of this very content to a key that is not taken."""
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
        return Proof(etag=simple(found.etag), version=answer.get("VersionId"))
    with_parts = PartWriter(target, key, about, {"IfNoneMatch": "*"})
    version = with_parts.write(lambda: copied_parts(with_parts, origin, found.size, sizes))
    return Proof(version=version)


def copy_through_here(
    source: S3Objects, found: S3Object, target: S3Objects, key: str, about: About, sizes: Sizes
) -> Proof:
    """Read an object of this very content piece by piece and write it to a key that is not taken."""
    part = sizes.part_of(found.size)
    if found.size <= part:
        data = source.read(found, 0, found.size)
        version = target.put(key, data, about)
        return Proof(md5(data, usedforsecurity=False).hexdigest(), sha256(data).hexdigest(), version)
    whole, sums = sha256(), md5(usedforsecurity=False)
    writer = PartWriter(target, key, about, {"IfNoneMatch": "*"})

    def parts() -> Iterator[str]:
        for number, data in enumerate(source.pieces(found, part), 1):
            whole.update(data)
            sums.update(md5(data, usedforsecurity=False).digest())
            yield writer.upload(number, data)

    version = writer.write(parts)
    count = -(-found.size // part)
    return Proof(f"{sums.hexdigest()}-{count}", whole.hexdigest(), version)


def copy_source(source: S3Objects, found: S3Object) -> dict[str, Any]:
    """Name what is to be copied, on the condition that it is still this content."""
    named = {"Bucket": source.bucket, "Key": found.key}
    if found.asked is not None:
        named["VersionId"] = found.asked
    return {"CopySource": named, "CopySourceIfMatch": f'"{found.etag}"'}


def simple(etag: str) -> str:
    """Give an etag that can be the MD5 of the bytes; that of an object in parts depends on the parts."""
    return etag if len(etag) == 32 and "-" not in etag else ""


class PartWriter:
    """One multipart upload; it is completed on a condition, and aborted if anything goes wrong."""

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
        """Begin, send the parts, which give their etags, complete, and say the new version."""
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
        """Send one part and give its etag."""
        client = self._target.client
        answer = self._target.ask(
            "write a part",
            lambda: client.upload_part(
                **self._named, PartNumber=number, Body=data, ContentMD5=content_md5(data)
            ),
        )
        return answer["ETag"]

    def copy(self, number: int, origin: Mapping[str, Any], start: int, end: int) -> str:
        """Let the server copy one part, up to but not including `end`, and give its etag."""
        client, span = self._target.client, f"bytes={start}-{end - 1}"
        answer = self._target.ask(
            "copy a part",
            lambda: client.upload_part_copy(**self._named, PartNumber=number, CopySourceRange=span, **origin),
        )
        return answer["CopyPartResult"]["ETag"]


def copied_parts(writer: PartWriter, origin: Mapping[str, Any], size: int, sizes: Sizes) -> Iterator[str]:
    """Let the server copy all parts of an object, and give their etags."""
    part = sizes.part_of(size, on_server=True)
    for number, start in enumerate(range(0, size, part), 1):
        yield writer.copy(number, origin, start, min(start + part, size))
