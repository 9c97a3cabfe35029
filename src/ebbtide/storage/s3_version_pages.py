"""
The pages of a listing of versions, read at several times boto3's usual speed.

As in :mod:`ebbtide.storage.s3_listing`, the rows are taken out of a page before boto3 turns XML into
dictionaries. Here their order matters too: boto3 gives versions and delete markers apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree as ET

from ebbtide.core.errors import StoreError
from ebbtide.core.instant import to_micros
from ebbtide.storage.backoff import Backoff
from ebbtide.storage.s3_client import FAILURES, call, fail
from ebbtide.storage.s3_names import NameReader, UntrustedName, page_root, stop_for

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

MOST = 1000
"""S3 gives no more rows a page, whatever it is asked for."""

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
    """What to list of a bucket: a prefix, the rows of a page, and with a delimiter one step below it only."""

    bucket: str
    prefix: str = ""
    delimiter: str = ""
    most: int = MOST

    def arguments(self) -> dict[str, Any]:
        """Say it as boto3 wants it; keys are encoded, because XML cannot hold every character."""
        asked: dict[str, Any] = {"Bucket": self.bucket, "Prefix": self.prefix, "MaxKeys": self.most}
        return {**asked, "EncodingType": "url", **({"Delimiter": self.delimiter} if self.delimiter else {})}


def speed_up_versions(client: S3Client) -> None:
    """Let this client hand over pages of versions as rows."""
    client.meta.events.register("before-parse.s3.ListObjectVersions", _take_versions)


def one_page(
    client: S3Client, asked: Question, backoff: Backoff, *, after: str = "", version: str = ""
) -> VersionPage:
    """Ask for one page, after a key or after one of its versions; what was not asked for raises."""
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
        raise nonsense(asked.bucket, f"a version without {error}") from None
    page: VersionPage | None = answer.get(_PAGE)
    if page is None or "IsTruncated" not in answer:
        raise nonsense(asked.bucket, "no listing of versions")
    if not all(name.startswith(asked.prefix) for name in (*(row.key for row in page.rows), *page.folders)):
        raise nonsense(asked.bucket, "keys that were not asked for")
    if page.folders and not asked.delimiter:
        raise nonsense(asked.bucket, "folders that were not asked for")
    return page


def version_pages(
    client: S3Client, asked: Question, backoff: Backoff, *, after: str = ""
) -> Iterator[VersionPage]:
    """Stream all pages from a key on; one that cannot be had, or that leads nowhere, raises."""
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
            raise nonsense(asked.bucket, "that there is more, but not where")
        seen.add(hash((key, version)))


def nonsense(bucket: str, said: str) -> StoreError:
    """Make the error for a server whose listing nobody can rely on."""
    return StoreError(
        f"the listing of {bucket} cannot be trusted",
        why=f"the server answered with {said}",
        fix="check that the endpoint is an S3 server",
    )


def _take_versions(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any) -> None:
    """Move the rows of a page out of boto3's sight; what is no whole page is left for boto3 to refuse."""
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
    """Read one version; a server that keeps none says no version id, or 'null'."""
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
