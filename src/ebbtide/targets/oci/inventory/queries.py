"""
Queries of a scan: each about one repository, tag or manifest, several at a time, on the driver or on
executors.

A query that cannot be answered raises and ends the scan: what could not be read must never look absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from ebbtide.core.errors import NotFound, Unsupported
from ebbtide.targets.oci.client.manifest import MEDIA_TYPES, Content, read_content
from ebbtide.targets.oci.client.registry import Registry, RegistrySpec, open_registry

LISTED_TAGS = "repository string, tag string"
"""The listed tags; a repository without a list, because it is absent, has a null."""
LISTED_TAGS_ARROW = pa.schema([("repository", pa.string()), ("tag", pa.string())])

RESOLVED_TAGS = "repository string, tag string, listed boolean, digest string"
"""What tags stand for, and whether the list of tags contains them."""
RESOLVED_TAGS_ARROW = pa.schema(
    [("repository", pa.string()), ("tag", pa.string()), ("listed", pa.bool_()), ("digest", pa.string())]
)

MANIFEST_NAMES = "repository string, digest string"
"""Manifests to look for."""
MANIFEST_NAMES_ARROW = pa.schema([("repository", pa.string()), ("digest", pa.string())])

MANIFESTS = (
    "repository string, digest string, media_type string, size bigint, children array<string>,"
    " subject string, blobs array<struct<digest: string, size: bigint>>, missing boolean, fresh boolean"
)
"""What was found about manifests; `fresh` if it was read in this scan and not known from before."""
MANIFESTS_ARROW = pa.schema(
    [
        ("repository", pa.string()),
        ("digest", pa.string()),
        ("media_type", pa.string()),
        ("size", pa.int64()),
        ("children", pa.list_(pa.string())),
        ("subject", pa.string()),
        ("blobs", pa.list_(pa.struct([("digest", pa.string()), ("size", pa.int64())]))),
        ("missing", pa.bool_()),
        ("fresh", pa.bool_()),
    ]
)

Row = Mapping[str, Any]
Query = Callable[[Registry, Row], Iterable[Row]]
"""Asks about one row, and yields the rows of the answer; none if it is absent."""

_ROWS_AT_A_TIME = 256
_NAMES_AT_A_TIME = 10_000


def run_queries(registry: Registry, query: Query, rows: Iterable[Row], threads: int) -> Iterator[list[Row]]:
    """Run one query for each row, and yield the answers in the order of the rows, in batches."""
    remaining = iter(rows)
    with _query_threads(threads) as asking:
        while some := list(islice(remaining, _ROWS_AT_A_TIME)):
            found = asking.map(lambda row: list(query(registry, row)), some)
            yield [answer for one in found for answer in one]


@contextmanager
def _query_threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Run threads that ask nothing more once a query has failed: a hanging registry is slow to answer."""
    with ThreadPoolExecutor(count) as threads:
        try:
            yield threads
        finally:
            threads.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True)
class QueryTask:
    """Runs one query for each row of a partition, on an executor."""

    spec: RegistrySpec
    query: Query
    schema: Any
    """The Arrow schema of the answers."""
    threads: int

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Run the queries, and yield the answers in batches."""
        rows = (row for batch in batches for row in batch.to_pylist())
        first = list(islice(rows, 1))
        if not first:
            return
        with closing(open_registry(self.spec)) as registry:
            for some in run_queries(registry, self.query, chain(first, rows), self.threads):
                yield pa.RecordBatch.from_pylist(some, schema=self.schema)


@dataclass(frozen=True)
class ListingTask:
    """Runs a listing query for each repository, without collecting a long list, on an executor."""

    spec: RegistrySpec
    query: Query
    schema: Any
    """The Arrow schema of the answers."""

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """List, and yield the names in batches."""
        for batch in batches:
            with closing(open_registry(self.spec)) as registry:
                for repository in batch.to_pylist():
                    names = iter(self.query(registry, repository))
                    while some := list(islice(names, _NAMES_AT_A_TIME)):
                        yield pa.RecordBatch.from_pylist(some, schema=self.schema)


_SCHEMA_1 = "application/vnd.docker.distribution.manifest.v1"
KINDS_WITHOUT_CHILDREN = frozenset(
    {f"{_SCHEMA_1}+json", f"{_SCHEMA_1}+prettyjws", "application/vnd.oci.artifact.manifest.v1+json"}
)
"""Kinds that Ebbtide does not parse and that are known to point at no other manifest."""


def list_tags(registry: Registry, row: Row) -> Iterator[Row]:
    """
    List the tags of a repository; one without a list yields a row without a tag.

    Registries answer that a repository is absent if it only has manifests without tags.
    """
    repository, listed = row["repository"], False
    try:
        for tag in registry.tags(repository):
            listed = True
            yield {"repository": repository, "tag": tag}
    except NotFound:
        if listed:
            raise  # the list ended too early
        yield {"repository": repository, "tag": None}


def list_untagged(registry: Registry, row: Row) -> Iterator[Row]:
    """List the manifests of a repository without a tag, if the registry supports it."""
    try:
        for digest in registry.untagged(row["repository"]):
            yield {"repository": row["repository"], "digest": digest}
    except NotFound:
        return  # known from an earlier scan, and gone


def resolve_tag(registry: Registry, row: Row) -> Iterator[Row]:
    """Ask what a tag stands for; yield nothing if it is gone."""
    try:
        found = registry.resolve(row["repository"], row["tag"])
    except NotFound:
        return
    yield {**row, "digest": found.digest}


def find_manifest(registry: Registry, row: Row) -> Iterator[Row]:
    """Ask for a manifest that existed once; yield nothing if it is gone."""
    try:
        registry.resolve(row["repository"], row["digest"])
    except NotFound:
        return
    yield row


def list_referrers(registry: Registry, row: Row) -> Iterator[Row]:
    """List the manifests with this one as their subject."""
    for found in registry.referrers(row["repository"], row["digest"]):
        yield {"repository": row["repository"], "digest": found.digest}


def read_manifest(registry: Registry, row: Row) -> Iterator[Row]:
    """
    Read a manifest.

    A missing one yields a row too, so that it is not asked for again: registries delete children of existing
    indexes. One of an unknown kind yields a row without content; a damaged one raises.
    """
    try:
        yield _parsed_manifest(registry, row)
    except NotFound:
        yield {**_manifest_row(row), "missing": True}


def _parsed_manifest(registry: Registry, row: Row) -> Row:
    try:
        manifest = registry.manifest(row["repository"], row["digest"])
        content = read_content(manifest)
    except Unsupported:
        return _unknown_manifest(registry, row)
    return {
        **_manifest_row(row, manifest.media_type, len(manifest.body)),
        "children": [child.digest for child in content.children],
        "subject": content.subject or None,
        "blobs": blobs_of(content),
    }


def _unknown_manifest(registry: Registry, row: Row) -> Row:
    """Record that a manifest of an unknown kind exists, and its kind."""
    found = registry.resolve(row["repository"], row["digest"])
    if found.media_type in MEDIA_TYPES:
        raise Unsupported(
            f"the manifest {row['repository']} {row['digest']} is of two kinds",
            why=f"once the registry calls it {found.media_type!r}, and once something else",
            fix="look at it with a registry tool, and push it again",
        )
    return _manifest_row(row, found.media_type, found.size)


def _manifest_row(row: Row, media_type: str = "", size: int | None = None) -> dict[str, object]:
    return {
        "repository": row["repository"],
        "digest": row["digest"],
        "media_type": media_type,
        "size": size,
        "children": [],
        "subject": None,
        "blobs": [],
        "missing": False,
        "fresh": True,
    }


def blobs_of(content: Content) -> list[dict[str, object]]:
    """Return the blobs of a manifest; build caches list layers as if they were manifests."""
    odd = [child for child in content.children if child.media_type and child.media_type not in MEDIA_TYPES]
    return [{"digest": blob.digest, "size": blob.size} for blob in (*content.blobs, *odd)]
