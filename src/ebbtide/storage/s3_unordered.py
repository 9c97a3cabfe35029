"""
List the versions of a server that keeps no key order, and find those that it loses between its pages.

SeaweedFS walks its folders in their own order, sorts each page by itself and goes on behind the page's last
key. What it would have walked to later, and sorts before that key, never comes: ``a.b`` and ``a`` beside a
folder ``a/``. So a listing of more than one page is compared with that of the current objects, and what is
missing is asked for by itself. A key is there whole, or the listing raises, or it is not there at all: a few
whose newest version is a delete marker, or that are beside a large folder of their own name. About such a key
nothing is known, so nothing is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ebbtide.core.errors import StoreError
from ebbtide.storage.backoff import Backoff
from ebbtide.storage.s3_groups import newest_first
from ebbtide.storage.s3_listing import pages
from ebbtide.storage.s3_version_pages import MOST, Question, VersionRow, one_page, version_pages

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

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
    """Name the keys of which versions may have been lost."""
    current = {
        key
        for page in pages(client, asked.bucket, asked.prefix, backoff)
        for key in page.keys
        if not _has_current(groups.get(key, {}))
    }
    # The other versions of `a` are walked to after `a.b` and lost if a page ends between them.
    torn = {edge[:end] for edge in edges for end in range(1, len(edge)) if edge[end - 1] != "/"}
    return current | (torn & groups.keys())


def _has_current(group: _Group) -> bool:
    return any(row.is_latest for row in group.values())


def _asked_alone(client: S3Client, asked: Question, backoff: Backoff, key: str) -> _Group:
    """Ask for one key again; a page that has all keys which begin like it has lost none."""
    page = one_page(client, replace(asked, prefix=key, most=MOST), backoff)
    if page.truncated:
        raise StoreError(
            f"the store loses versions of {key!r} when it lists them",
            why="it keeps no key order, and too many keys begin like this one to be listed at once",
            fix="give the object a name that is not the beginning of others, or list another prefix",
        )
    return {row.version_id: row for row in page.rows if row.key == key}


def _batched(groups: dict[str, _Group]) -> Iterator[list[VersionRow]]:
    """Give whole keys in order, in batches worth sending on."""
    rows: list[VersionRow] = []
    for key in sorted(groups):
        rows += newest_first(groups[key].values())
        if len(rows) >= _ROWS:
            yield rows
            rows = []
    if rows:
        yield rows
