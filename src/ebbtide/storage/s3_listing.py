"""
List the objects and the open multipart uploads of a bucket, with every key exactly as it is stored.

boto3 spends most of a listing on turning XML into dictionaries. Its own event ``before-parse`` lets us take
the objects out of a page first, which is several times faster; signing, proxies, certificates and errors stay
with boto3.

XML cannot hold every character of a key, so listings are requested with ``encoding-type=url``. A server that
supports this says so in its answer, and its names are decoded exactly once. A server that does not sends
names as they are, as far as it can: many replace what XML cannot hold by U+FFFD, and a parser reads a bare
carriage return as a newline. Such a name may belong to another object, or to none. It is never used: the
listing raises, so that no object is overlooked, deleted in place of another or taken for absent.

SeaweedFS says that the keys of uploads are encoded when they are not: decoding would turn ``a+b`` into
``a b``. So a page whose keys would change is requested a second time without the encoding. If the keys are
the same both times, the server encodes nothing.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote_to_bytes
from xml.etree import ElementTree as ET

from ebbtide.core.errors import GarbledName, StoreError
from ebbtide.core.instant import to_micros
from ebbtide.storage.rate_limit import Backoff
from ebbtide.storage.s3_client import FAILURES, call, fail

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_REPLACED = "\ufffd"
_ENCODED = re.compile(r"(?:[!-$&-~]|%[0-9A-Fa-f]{2})*")
"""Printable ASCII, in which a percent sign only begins an escape."""
_WHOLE = re.compile(rb"</List[A-Za-z]+Result>\s*\Z")


class UntrustedName(Exception):
    """A name on a page cannot be decoded reliably; the caller adds which page it was."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)
        self.name, self.why = name, why


def stop_for(problem: UntrustedName, bucket: str, prefix: str, after: str = "") -> GarbledName:
    """Return the error that stops the run and names the page."""
    page = f"s3://{bucket}/{prefix}" + (f" after {after!r}" if after else "")
    name = f": {problem.name!r}" if problem.name else ""
    return GarbledName(
        f"the listing of {page} has a name that cannot be trusted{name}",
        why=f"{problem.why}, so it may be the name of another object",
        fix="rename or remove the object with the server's own tools, or plan with rules for other prefixes",
    )


class NameReader:
    """Reads the names of one page."""

    def __init__(self, *, encoded: bool, body: bytes = b"") -> None:
        self._encoded = encoded
        self._has_returns = b"\r" in body

    def read(self, text: str) -> str:
        """Return the decoded name; raise UntrustedName if that is in doubt."""
        return self._decoded(text) if self._encoded else self.verbatim(text)

    def verbatim(self, text: str) -> str:
        """Return a text that is not encoded, such as a continuation token."""
        if _REPLACED in text:
            raise UntrustedName(
                text, "the server did not encode it and has characters in it replaced by U+FFFD"
            )
        if self._has_returns and "\n" in text:
            raise UntrustedName(text, "a newline in it may have been a carriage return")
        return text

    def _decoded(self, text: str) -> str:
        if "%" not in text and "+" not in text and is_printable(text):
            return text
        if not _ENCODED.fullmatch(text):
            raise UntrustedName(text, "the server says that it is URL-encoded, and it is not")
        try:
            return unquote_to_bytes(text.replace("+", " ")).decode("utf-8")
        except UnicodeDecodeError:
            raise UntrustedName(text, "it is not valid UTF-8") from None


def is_printable(text: str) -> bool:
    """Return True for printable ASCII without blanks, as all encoded names are."""
    return text.isascii() and text.isprintable() and " " not in text


def page_root(answer: dict[str, Any]) -> ET.Element | None:
    """
    Parse a page; return None for an incomplete page, which botocore refuses and requests again.

    A complete page that is not XML has a character that XML does not allow. A retry would not help, although
    botocore treats such a page as a temporary error of the server and changes its status to 500.
    """
    if answer["status_code"] not in (200, 500):
        return None
    body: bytes = answer["body"]
    try:
        root = ET.fromstring(body)  # noqa: S314 (ElementTree loads no entities)
    except ET.ParseError:
        if _WHOLE.search(body):
            raise UntrustedName("", "a page is not valid XML, as happens with control characters") from None
        return None
    return root if answer["status_code"] == 200 else None


_PAGE = "EbbtidePage"


@dataclass
class Page:
    """The columns of one page of a listing, with full keys, and its folders (common prefixes)."""

    keys: list[str]
    sizes: list[int]
    micros: list[int]
    etags: list[str | None]
    folders: list[str]

    @property
    def names(self) -> list[str]:
        """The keys and the folders together, in key order; the server returns them separately."""
        return sorted({*self.keys, *self.folders}) if self.folders else self.keys


def speed_up(client: S3Client) -> None:
    """Make this client return listing pages as columns."""
    client.meta.events.register("before-parse.s3.ListObjectsV2", _take_objects)


def _take_objects(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any) -> None:
    """Take the objects out of a page before boto3 parses it; boto3 refuses incomplete pages."""
    root = page_root(response_dict)
    if root is None:
        return
    space = root.tag.removesuffix("ListBucketResult")
    contents = root.findall(f"{space}Contents")
    encoded = root.findtext(f"{space}EncodingType") == "url"
    names = NameReader(encoded=encoded, body=response_dict["body"])
    page = _columns(contents, space, names)
    for element in root.iterfind(f"{space}CommonPrefixes/{space}Prefix"):
        page.folders.append(names.read(element.text or ""))
    # SeaweedFS makes its tokens from keys: a garbled one would continue at another place.
    names.verbatim(root.findtext(f"{space}NextContinuationToken") or "")
    customized_response_dict[_PAGE] = page
    for element in contents:
        root.remove(element)
    response_dict["body"] = ET.tostring(root)


def _columns(contents: list[ET.Element], space: str, names: NameReader) -> Page:
    """Read the objects of a page into columns."""
    page = Page([], [], [], [], [])
    for element in contents:
        said = {child.tag: child.text or "" for child in element}
        page.keys.append(names.read(said[f"{space}Key"]))
        page.sizes.append(int(said[f"{space}Size"]))
        page.micros.append(to_micros(datetime.fromisoformat(said[f"{space}LastModified"])))
        page.etags.append(said.get(f"{space}ETag", "").strip('"') or None)
    return page


def pages(
    client: S3Client,
    bucket: str,
    prefix: str,
    backoff: Backoff,
    *,
    start_after: str = "",
    delimiter: str = "",
) -> Iterator[Page]:
    """
    Stream the pages of a listing; a page that fails, or does not answer the request, raises.

    With a delimiter, keys that contain it after the prefix are returned as folders.
    """
    asked: dict[str, Any] = {"Bucket": bucket, "Prefix": prefix, "EncodingType": "url"}
    if delimiter:
        asked["Delimiter"] = delimiter
    more = {"StartAfter": start_after} if start_after else {}
    tokens: set[int] = set()
    after = start_after
    while True:
        try:
            answer: Any = call(
                backoff,
                lambda more=more: client.list_objects_v2(**asked, **more),  # type: ignore[misc]
            )
        except FAILURES as error:
            fail(error, f"the listing of {bucket}/{prefix}")
        except UntrustedName as problem:
            raise stop_for(problem, bucket, prefix, after) from None
        except (KeyError, ValueError) as error:
            raise untrusted_listing(bucket, f"an object without {error}") from None
        page = answer.get(_PAGE)
        if page is None or "IsTruncated" not in answer:
            raise untrusted_listing(bucket, "no listing")
        if not _answers(page, prefix, delimiter):
            raise untrusted_listing(bucket, "keys that were not asked for")
        yield page
        after = page.names[-1] if page.names else after
        if not answer["IsTruncated"]:
            return
        token = answer.get("NextContinuationToken", "")
        # Their hashes are enough, and small: a bucket of 10^9 objects has a million tokens of up to 1 kB.
        if not token or hash(token) in tokens:
            raise untrusted_listing(bucket, "that there is more, but not where")
        tokens.add(hash(token))
        more = {"ContinuationToken": token}


def _answers(page: Page, prefix: str, delimiter: str) -> bool:
    """Return True if a page is below the prefix, and with a delimiter at most one level deep."""
    if not all(key.startswith(prefix) for key in page.names):
        return False
    if not delimiter:
        return not page.folders
    # A folder's marker ends in the delimiter; it is an object, and some servers return it as one.
    shallow = all(delimiter not in key[len(prefix) : -1] for key in page.names)
    return shallow and all(folder.endswith(delimiter) and folder != prefix for folder in page.folders)


def check_order(keys: Sequence[str], last: str) -> str:
    """Raise unless keys ascend; otherwise `start_after` and split listings would silently lose objects."""
    if keys and (keys[0] <= last or not all(map(operator.lt, keys, keys[1:]))):
        raise StoreError(
            "the store does not list in key order",
            why="a listing that relies on the order would miss objects",
            fix="open the store with the option ordered=no",
        )
    return keys[-1] if keys else last


def untrusted_listing(bucket: str, said: str) -> StoreError:
    """Return the error for a server whose listing cannot be relied on."""
    return StoreError(
        f"the listing of {bucket} cannot be trusted",
        why=f"the server answered with {said}",
        fix="check that the endpoint is an S3 server",
    )


_BODY = "EbbtideBody"


class UploadRow(NamedTuple):
    """One multipart upload."""

    key: str
    upload_id: str
    micros: int


def watch_uploads(client: S3Client) -> None:
    """Make this client refuse pages of uploads with characters that XML does not allow."""
    client.meta.events.register("before-parse.s3.ListMultipartUploads", _check_page)


def _check_page(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any) -> None:
    if page_root(response_dict) is not None:
        customized_response_dict[_BODY] = response_dict["body"]


def upload_rows(client: S3Client, bucket: str, prefix: str, backoff: Backoff) -> Iterator[list[UploadRow]]:
    """Stream the pages of uploads below a prefix; a page that fails, or has no successor, raises."""
    markers: dict[str, str] = {}
    seen: set[tuple[str, ...]] = set()
    while True:
        asked = {"Bucket": bucket, "Prefix": prefix, **markers}
        try:
            answer = _page(client, asked, backoff)
        except UntrustedName as problem:
            raise stop_for(problem, bucket, prefix, markers.get("KeyMarker", "")) from None
        except FAILURES as error:
            fail(error, f"the uploads of {bucket}/{prefix}")
        if "IsTruncated" not in answer:
            raise untrusted_listing(bucket, "no listing of uploads")
        found = answer.get("Uploads", [])
        if not all(one["Key"].startswith(prefix) for one in found):
            raise untrusted_listing(bucket, "uploads that were not asked for")
        yield [UploadRow(one["Key"], one["UploadId"], to_micros(one["Initiated"])) for one in found]
        if not answer["IsTruncated"]:
            return
        names = {"KeyMarker": "NextKeyMarker", "UploadIdMarker": "NextUploadIdMarker"}
        # SeaweedFS orders uploads by their ids only and returns no key to continue from.
        markers = {name: answer[said] for name, said in names.items() if answer.get(said)}
        place = tuple(markers.values())
        if not place or place in seen:
            raise untrusted_listing(bucket, "that there are more uploads, but not where")
        seen.add(place)


def _page(client: S3Client, asked: dict[str, Any], backoff: Backoff) -> Any:
    """Request one page and decode its names."""
    answer: Any = call(backoff, lambda: client.list_multipart_uploads(**asked, EncodingType="url"))
    encoded = answer.get("EncodingType") == "url"
    doubtful = {upload: key for upload, key in _keys(answer).items() if _would_change(key)}
    if encoded and doubtful:
        encoded = not _are_same_without_encoding(client, asked, backoff, doubtful)
    names = NameReader(encoded=encoded, body=answer.get(_BODY, b""))
    for one in answer.get("Uploads", []):
        one["Key"] = names.read(one["Key"])
    if answer.get("NextKeyMarker"):
        answer["NextKeyMarker"] = names.read(answer["NextKeyMarker"])
    return answer


def _would_change(key: str) -> bool:
    """Return True if decoding changes a key, or fails."""
    return "%" in key or "+" in key or not is_printable(key)


def _are_same_without_encoding(
    client: S3Client, asked: dict[str, Any], backoff: Backoff, doubtful: dict[str, str]
) -> bool:
    """
    Return True if these keys are the same in a request without encoding.

    If XML cannot hold them as they are, they were encoded. Uploads that ended between the two requests do not
    count; if none is left to compare, raise.
    """
    try:
        plain = _keys(call(backoff, lambda: client.list_multipart_uploads(**asked)))
    except UntrustedName:
        return False
    both = [(key, plain[upload]) for upload, key in doubtful.items() if upload in plain]
    if not both:
        raise UntrustedName("", "the uploads changed while they were listed, and none could be compared")
    return all(key == other for key, other in both)


def _keys(answer: Any) -> dict[str, str]:
    return {one["UploadId"]: one["Key"] for one in answer.get("Uploads", [])}
