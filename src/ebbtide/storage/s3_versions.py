"""
List the versions and delete markers of a bucket, all versions of a key together and newest first.

As in :mod:`ebbtide.storage.s3_listing`, the rows are taken out of a page before boto3 turns XML into
dictionaries. Here their order matters too: boto3 returns versions and delete markers separately.

A server without key order needs more care. SeaweedFS walks its folders in their own order, sorts each page by
itself and continues behind the page's last key. Keys that it would reach later, and that sort before that
key, never come: ``a.b`` and ``a`` beside a folder ``a/``. So a listing of more than one page is compared with
that of the current objects, and missing keys are requested one by one. A key is returned whole, or the
listing raises, or the key is not returned at all: a few whose newest version is a delete marker, or that are
beside a large folder of the same name. Nothing is known about such a key, so nothing is done to it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree as ET

from ebbtide.core.errors import StoreError
from ebbtide.core.instant import to_micros
from ebbtide.storage.rate_limit import Backoff
from ebbtide.storage.s3_client import FAILURES, call, fail
from ebbtide.storage.s3_listing import (
    NameReader,
    UntrustedName,
    page_root,
    pages,
    stop_for,
    untrusted_listing,
)

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

MOST = 1000
"""S3 returns at most this many rows per page."""

_PAGE = "EbbtideVersions"


class VersionRow(NamedTuple):
    """One version or delete marker as the server lists it; a marker has no size, etag and class."""

    key: str
    version_id: str
    is_latest: bool
    is_delete_marker: bool
    size: int | None
    micros: int
    etag: str | None
    storage_class: str | None


@dataclass
class VersionPage:
    """The rows of one page in the server's order, its folders, and where the next page begins."""

    rows: list[VersionRow] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    truncated: bool = False
    next_key: str = ""
    next_version: str = ""


@dataclass(frozen=True)
class Question:
    """What to list: a prefix, the rows per page, and with a delimiter only one level below it."""

    bucket: str
    prefix: str = ""
    delimiter: str = ""
    most: int = MOST

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of boto3; keys are encoded, because XML cannot hold every character."""
        asked: dict[str, Any] = {"Bucket": self.bucket, "Prefix": self.prefix, "MaxKeys": self.most}
        return {**asked, "EncodingType": "url", **({"Delimiter": self.delimiter} if self.delimiter else {})}


def speed_up_versions(client: S3Client) -> None:
    """Make this client return pages of versions as rows."""
    client.meta.events.register("before-parse.s3.ListObjectVersions", _take_versions)


def one_page(
    client: S3Client, asked: Question, backoff: Backoff, *, after: str = "", version: str = ""
) -> VersionPage:
    """Request one page, after a key or one of its versions; rows that were not asked for raise."""
    more: dict[str, Any] = {
        name: text for name, text in (("KeyMarker", after), ("VersionIdMarker", version)) if text
    }
    try:
        answer: Any = call(backoff, lambda: client.list_object_versions(**asked.arguments(), **more))
    except FAILURES as error:
        fail(error, f"the versions of {asked.bucket}/{asked.prefix}")
    except UntrustedName as problem:
        raise stop_for(problem, asked.bucket, asked.prefix, after) from None
    except (KeyError, ValueError) as error:
        raise untrusted_listing(asked.bucket, f"a version without {error}") from None
    page: VersionPage | None = answer.get(_PAGE)
    if page is None or "IsTruncated" not in answer:
        raise untrusted_listing(asked.bucket, "no listing of versions")
    if not all(name.startswith(asked.prefix) for name in (*(row.key for row in page.rows), *page.folders)):
        raise untrusted_listing(asked.bucket, "keys that were not asked for")
    if page.folders and not asked.delimiter:
        raise untrusted_listing(asked.bucket, "folders that were not asked for")
    return page


def version_pages(
    client: S3Client, asked: Question, backoff: Backoff, *, after: str = ""
) -> Iterator[VersionPage]:
    """Stream all pages after a key; a page that fails, or has no successor, raises."""
    key, version = after, ""
    seen: set[int] = set()
    while True:
        page = one_page(client, asked, backoff, after=key, version=version)
        yield page
        if not page.truncated:
            return
        key, version = page.next_key, page.next_version
        # Their hashes are enough, and small: a bucket of 10^9 versions has a million such places.
        if not key or hash((key, version)) in seen:
            raise untrusted_listing(asked.bucket, "that there is more, but not where")
        seen.add(hash((key, version)))


def _take_versions(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any) -> None:
    """Take the rows out of a page before boto3 parses it; boto3 refuses incomplete pages."""
    root = page_root(response_dict)
    if root is None:
        return
    space = root.tag.removesuffix("ListVersionsResult")
    encoded = root.findtext(f"{space}EncodingType") == "url"
    names = NameReader(encoded=encoded, body=response_dict["body"])
    page = VersionPage(
        truncated=root.findtext(f"{space}IsTruncated") == "true",
        next_key=names.read(root.findtext(f"{space}NextKeyMarker") or ""),
        next_version=root.findtext(f"{space}NextVersionIdMarker") or "",
    )
    kinds = {f"{space}Version": False, f"{space}DeleteMarker": True}
    for element in [child for child in root if child.tag in kinds]:
        page.rows.append(_row(element, space, names, is_marker=kinds[element.tag]))
        root.remove(element)
    for element in root.iterfind(f"{space}CommonPrefixes/{space}Prefix"):
        page.folders.append(names.read(element.text or ""))
    customized_response_dict[_PAGE] = page
    response_dict["body"] = ET.tostring(root)


def _row(element: ET.Element, space: str, names: NameReader, *, is_marker: bool) -> VersionRow:
    """Parse one version; without versioning a server sends no version id, or 'null'."""
    said = {child.tag: child.text or "" for child in element}
    return VersionRow(
        names.read(said[f"{space}Key"]),
        said.get(f"{space}VersionId") or "null",
        said[f"{space}IsLatest"] == "true",
        is_marker,
        None if is_marker else int(said[f"{space}Size"]),
        to_micros(datetime.fromisoformat(said[f"{space}LastModified"])),
        None if is_marker else said.get(f"{space}ETag", "").strip('"') or None,
        None if is_marker else said.get(f"{space}StorageClass") or "STANDARD",
    )


_key = attrgetter("key")


def grouped(
    pages: Iterable[Sequence[VersionRow]], *, after: str = "", up_to: str = ""
) -> Iterator[list[VersionRow]]:
    """
    Stream the rows of pages in key order, and hold back the last key of a page until the next page.

    So every list has all versions of its keys. Rows out of order raise: a range of keys would miss some.
    """
    held: list[VersionRow] = []
    last = ""
    for found in pages:
        # Some servers start with the marker itself; it belongs to the range before this one.
        page = [row for row in found if row.key != after]
        if not page:
            continue
        last = _check_order(page, last, after)
        if up_to and last > up_to:
            yield _settled([*held, *(row for row in page if row.key <= up_to)])
            return
        cut = bisect_left(page, last, key=_key)
        if not cut and held and held[0].key == last:
            held.extend(page)
            continue
        if held or cut:
            yield _settled([*held, *page[:cut]])
        held = page[cut:]
    if held:
        yield _settled(held)


def newest_first(rows: Iterable[VersionRow]) -> list[VersionRow]:
    """Order the versions of one key; those of the same second stay in the server's order."""
    return sorted(rows, key=lambda row: (not row.is_latest, -row.micros))


def numbered(rows: Sequence[VersionRow]) -> list[int]:
    """Count the versions of each key from 0."""
    numbers: list[int] = []
    key: str | None = None
    number = 0
    for row in rows:
        number = number + 1 if row.key == key else 0
        key = row.key
        numbers.append(number)
    return numbers


def _settled(rows: list[VersionRow]) -> list[VersionRow]:
    """
    Sort the versions of keys whose newest version does not come first; keep all others in the server's order.

    Times alone are not enough: that of a large object is when its upload began.
    """
    if not any(row.is_latest and number for row, number in zip(rows, numbered(rows), strict=True)):
        return rows
    settled: list[VersionRow] = []
    for _, found in groupby(rows, key=_key):
        group = list(found)
        settled += group if group[0].is_latest else newest_first(group)
    return settled


def _check_order(page: Sequence[VersionRow], last: str, after: str) -> str:
    """Raise unless keys ascend and come after the start."""
    keys = [row.key for row in page]
    if keys[0] < last or keys[0] < after or any(one > two for one, two in pairwise(keys)):
        raise _disorder()
    return keys[-1]


def _disorder() -> StoreError:
    return StoreError(
        "the store does not list in key order",
        why="a listing that relies on the order would miss versions",
        fix="open the bucket with the option ordered=no",
    )


_ROWS = 16_384

_Group = dict[str, VersionRow]


def unordered_versions(client: S3Client, asked: Question, backoff: Backoff) -> Iterator[list[VersionRow]]:
    """Stream all versions below a prefix in key order, each key whole; all are sorted in memory."""
    groups: dict[str, _Group] = {}
    edges: list[str] = []
    for page in version_pages(client, asked, backoff):
        for row in page.rows:
            groups.setdefault(row.key, {})[row.version_id] = row
        if page.truncated:
            edges.append(page.next_key)
    if edges:
        for key in _doubtful(client, asked, backoff, groups, edges):
            groups[key] = _asked_alone(client, asked, backoff, key)
    yield from _batched(groups)


def _doubtful(
    client: S3Client, asked: Question, backoff: Backoff, groups: dict[str, _Group], edges: list[str]
) -> set[str]:
    """Return the keys whose versions may have been lost."""
    current = {
        key
        for page in pages(client, asked.bucket, asked.prefix, backoff)
        for key in page.keys
        if not _has_current(groups.get(key, {}))
    }
    # The other versions of `a` are reached after `a.b` and lost if a page ends between them.
    torn = {edge[:end] for edge in edges for end in range(1, len(edge)) if edge[end - 1] != "/"}
    return current | (torn & groups.keys())


def _has_current(group: _Group) -> bool:
    return any(row.is_latest for row in group.values())


def _asked_alone(client: S3Client, asked: Question, backoff: Backoff, key: str) -> _Group:
    """Request one key again; a page with all keys that begin like it has lost none."""
    page = one_page(client, replace(asked, prefix=key, most=MOST), backoff)
    if page.truncated:
        raise StoreError(
            f"the store loses versions of {key!r} when it lists them",
            why="it keeps no key order, and too many keys begin like this one to be listed at once",
            fix="give the object a name that is not the beginning of others, or list another prefix",
        )
    return {row.version_id: row for row in page.rows if row.key == key}


def _batched(groups: dict[str, _Group]) -> Iterator[list[VersionRow]]:
    """Stream the keys in order, all versions of a key together, in larger batches."""
    rows: list[VersionRow] = []
    for key in sorted(groups):
        rows += newest_first(groups[key].values())
        if len(rows) >= _ROWS:
            yield rows
            rows = []
    if rows:
        yield rows
