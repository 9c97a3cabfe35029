"""
The store protocol: the few things that Ebbtide asks of an object store.

A store is rooted: it knows one prefix (a folder, or ``s3://bucket/prefix``) and every key is relative to
it, with ``/`` between parts. Stores are opened from a URL on the driver and again on each executor, so
what crosses between them is the picklable :class:`StoreSpec`, never an open connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from ebbtide.core.decision import Outcome

RecordBatch = Any
"""A pyarrow.RecordBatch with the columns of :data:`LISTING_COLUMNS`; pyarrow ships no types."""

LISTING_COLUMNS = ("key", "size", "last_modified", "etag")


@dataclass(frozen=True)
class StoreSpec:
    """Where a store is and how to reach it. Credentials are never in here: they come from the environment."""

    url: str
    options: Mapping[str, str] = field(default_factory=dict)
    """Settings that are no secret: endpoint, region, path style, retries."""
    witness: str = ""
    """An object that the driver has seen; who opens the store and does not see it has another one."""


@dataclass(frozen=True)
class ObjectInfo:
    """What a store says of one object."""

    key: str
    size: int
    last_modified: datetime
    etag: str | None = None


@dataclass(frozen=True)
class DeleteRequest:
    """One object to delete; with an etag only if it is still that very content."""

    key: str
    etag: str | None = None


@dataclass(frozen=True)
class DeleteResult:
    """The outcome for one key, with the store's own words where it refused."""

    key: str
    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True)
class MoveRequest:
    """One object that is to have another key; with an etag only if it is still that very content."""

    source: str
    target: str
    etag: str | None = None


@runtime_checkable
class Store(Protocol):
    """An object store under one root."""

    @property
    def spec(self) -> StoreSpec:
        """Say how this store was opened, so that an executor can open it too."""

    @property
    def reports_absence(self) -> bool:
        """Tell whether a delete can tell `deleted` from `absent` (S3's bulk delete cannot)."""

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[RecordBatch]:
        """
        Stream every object whose key starts with the prefix, in key order, as Arrow batches.

        A listing that fails half-way raises; it never just ends early.
        """

    def children(self, prefix: str) -> Iterator[str]:
        """
        Stream the names directly below a folder, in key order: objects as they are, folders with a slash.

        The prefix is empty or ends in a slash, and names are relative to it; a folder comes once, however
        much it holds. One that is not there has no children, and one that just lost its last object may be
        given for a while, without any. Like a listing, this raises where it fails.
        """

    def stat(self, key: str) -> ObjectInfo:
        """Describe one object; NotFound if there is none."""

    def read(self, key: str) -> bytes:
        """Read one whole object; NotFound if there is none."""

    def write(self, key: str, data: bytes, *, unknown: bool = False) -> ObjectInfo:
        """
        Write one whole object, atomically: a reader sees the old or the new, never a part.

        A key that is `unknown` was just made up and nobody can ask for it yet, so a store may write it in
        place, which on a disk is several times faster; if it exists all the same, that is an error.
        """

    def create(self, key: str, data: bytes) -> bool:
        """
        Write one whole object only if the key is free; return whether this call wrote it.

        Of several callers at once exactly one is told True. An object that is there stays as it is.
        """

    def copy(self, source: str, target: str) -> None:
        """Copy inside the store, on the server where it can."""

    def delete(self, requests: Sequence[DeleteRequest]) -> Sequence[DeleteResult]:
        """
        Delete many; one result for each request, in the order of the requests.

        Failures of single keys are results, not exceptions. Back-off on SlowDown happens inside.
        """

    def move(self, requests: Sequence[MoveRequest]) -> Sequence[DeleteResult]:
        """
        Give objects other keys; one result for each request, under its source's key and in their order.

        `deleted` means that the source is gone and the target has its content, whether it was this call that
        did it or an earlier one. A target that has another content is `taken`, and nothing is changed; one
        that has the same is proven to, and then the source goes. If neither is there it is `absent`; a source
        that has another etag than was asked for is `changed` and stays.
        Whatever is interrupted, the content is under one of the two keys or under both, and the same call
        goes on from there. Failures are results, as of a delete.
        """
