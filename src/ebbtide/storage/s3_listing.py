"""
List a bucket through boto3 at several times its usual speed, with every key exactly as it is stored.

boto3 spends most of a listing on turning XML into dictionaries. Its own event ``before-parse`` lets us take
the objects out of a page first; signing, proxies, certificates and errors stay with boto3.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from ebbtide.core.errors import StoreError
from ebbtide.core.instant import to_micros
from ebbtide.storage.backoff import Backoff
from ebbtide.storage.s3_client import FAILURES, call, fail
from ebbtide.storage.s3_names import NameReader, UntrustedName, page_root, stop_for

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_PAGE = "EbbtidePage"


@dataclass
class Page:
    """The columns of one page of a listing, with whole keys, and the folders that stand for more keys."""

    keys: list[str]
    sizes: list[int]
    micros: list[int]
    etags: list[str | None]
    folders: list[str]

    @property
    def names(self) -> list[str]:
        """The keys and the folders together, in key order; the server gives them apart."""
        return sorted({*self.keys, *self.folders}) if self.folders else self.keys


def speed_up(client: S3Client) -> None:
    """Let this client hand over listing pages as columns."""
    client.meta.events.register("before-parse.s3.ListObjectsV2", _take_objects)


def _take_objects(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any) -> None:
    """Move the objects of a page out of boto3's sight; what is no whole page is left for boto3 to refuse."""
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
    # SeaweedFS makes its tokens of keys: one that came garbled would go on at another place.
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
    Stream the pages of a listing; a page that cannot be had, or is not what was asked for, raises.

    With a delimiter, keys that have it after the prefix are given as the folder up to it.
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
            raise _nonsense(bucket, f"an object without {error}") from None
        page = answer.get(_PAGE)
        if page is None or "IsTruncated" not in answer:
            raise _nonsense(bucket, "no listing")
        if not _answers(page, prefix, delimiter):
            raise _nonsense(bucket, "keys that were not asked for")
        yield page
        after = page.names[-1] if page.names else after
        if not answer["IsTruncated"]:
            return
        token = answer.get("NextContinuationToken", "")
        # Their hashes are enough, and small: a bucket of 10^9 objects has a million tokens of up to 1 kB.
        if not token or hash(token) in tokens:
            raise _nonsense(bucket, "that there is more, but not where")
        tokens.add(hash(token))
        more = {"ContinuationToken": token}


def _answers(page: Page, prefix: str, delimiter: str) -> bool:
    """Tell whether all on a page lies below the prefix, and with a delimiter no deeper than one step."""
    if not all(key.startswith(prefix) for key in page.names):
        return False
    if not delimiter:
        return not page.folders
    # A folder's marker ends in the delimiter; it is an object, and some servers give it as one.
    shallow = all(delimiter not in key[len(prefix) : -1] for key in page.names)
    return shallow and all(folder.endswith(delimiter) and folder != prefix for folder in page.folders)


def check_order(keys: Sequence[str], last: str) -> str:
    """Make sure that keys only grow; else `start_after` and split listings would lose objects unseen."""
    if keys and (keys[0] <= last or not all(map(operator.lt, keys, keys[1:]))):
        raise StoreError(
            "the store does not list in key order",
            why="a listing that relies on the order would miss objects",
            fix="open the store with the option ordered=no",
        )
    return keys[-1] if keys else last


def _nonsense(bucket: str, said: str) -> StoreError:
    """Make the error for a server that does not speak sense."""
    return StoreError(
        f"the listing of {bucket} cannot be trusted",
        why=f"the server answered with {said}",
        fix="check that the endpoint is an S3 server",
    )
