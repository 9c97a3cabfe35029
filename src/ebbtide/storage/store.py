"""
The store protocol, the keys that a store accepts, and opening a store from its URL.

A store is rooted: it knows one prefix (a folder, or ``s3://bucket/prefix``) and every key is relative to
it, with ``/`` between parts. Stores are opened from a URL on the driver and again on each executor, so
what crosses between them is the picklable :class:`StoreSpec`, never an open connection.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from os import getpid
from threading import Lock
from typing import Any, Protocol, runtime_checkable

from ebbtide.core.decision import Outcome
from ebbtide.core.errors import AddressError, BadInput, MetadataError, NotFound
from ebbtide.storage.executor_proof import check_fitness

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
    """An object that the driver has seen. An executor that does not see it has opened another store."""


@dataclass(frozen=True)
class ObjectInfo:
    """The key, size, time and etag of one object."""

    key: str
    size: int
    last_modified: datetime
    etag: str | None = None


@dataclass(frozen=True)
class DeleteRequest:
    """One object to delete; with an etag, only if its content is still the same."""

    key: str
    etag: str | None = None


@dataclass(frozen=True)
class DeleteResult:
    """The outcome for one key, with the reason that the store gave if it refused."""

    key: str
    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True)
class MoveRequest:
    """One object to move to another key; with an etag, only if its content is still the same."""

    source: str
    target: str
    etag: str | None = None


@runtime_checkable
class Store(Protocol):
    """An object store under one root."""

    @property
    def spec(self) -> StoreSpec:
        """Return how this store was opened, so that an executor can open it too."""

    @property
    def reports_absence(self) -> bool:
        """Return True if a delete can distinguish `deleted` from `absent` (S3's bulk delete cannot)."""

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[RecordBatch]:
        """
        Stream every object whose key starts with the prefix, in key order, as Arrow batches.

        A listing that fails half-way raises; it never just ends early.
        """

    def children(self, prefix: str) -> Iterator[str]:
        """
        Stream the names directly below a folder, in key order: objects as they are, folders with a slash.

        The prefix is empty or ends in a slash, and names are relative to it; a folder comes once, however
        much it holds. A missing folder has no children, and a folder that just lost its last object may still
        be returned for a while. Like a listing, this raises if it fails.
        """

    def stat(self, key: str) -> ObjectInfo:
        """Describe one object; NotFound if there is none."""

    def read(self, key: str) -> bytes:
        """Read one whole object; NotFound if there is none."""

    def write(self, key: str, data: bytes, *, unknown: bool = False) -> ObjectInfo:
        """
        Write one whole object, atomically: a reader sees the old or the new, never a part.

        A key that is `unknown` was just generated and no reader can know it yet, so a store may write it in
        place, which is several times faster on a disk; if the key exists nevertheless, that is an error.
        """

    def create(self, key: str, data: bytes) -> bool:
        """
        Write one whole object only if the key is free; return whether this call wrote it.

        Of several concurrent callers exactly one gets True. An existing object is left unchanged.
        """

    def copy(self, source: str, target: str) -> None:
        """Copy inside the store, on the server if possible."""

    def delete(self, requests: Sequence[DeleteRequest]) -> Sequence[DeleteResult]:
        """
        Delete many; one result for each request, in the order of the requests.

        Failures of single keys are results, not exceptions. Back-off on SlowDown happens inside.
        """

    def move(self, requests: Sequence[MoveRequest]) -> Sequence[DeleteResult]:
        """
        Move objects to other keys; return one result per request, under its source's key and in their order.

        `deleted` means that the source is gone and the target has its content, by this call or an earlier
        one. If the target has other content, the outcome is `taken` and nothing changes; if it has the same
        content, which is proven first, the source is deleted. If neither exists it is `absent`; a source with
        another etag than requested is `changed` and stays.
        After an interruption the content is under one of the two keys or under both, and the same call
        continues from there. Failures are results, as for a delete.
        """


def key_problem(key: str) -> str:
    """
    Return why a key is not safe to send to a store, or "" if it is.

    Web servers and file systems resolve ``.`` and ``..``, so such a key may reach another object than
    the one it names.
    """
    if not key:
        return "the key is empty"
    if "\0" in key:
        return "the key has a NUL character"
    if not key.isascii() and any("\ud800" <= c <= "\udfff" for c in key):
        return "the key is not valid Unicode"
    parts = key.split("/")
    return "the key has a '.' or '..' part" if "." in parts or ".." in parts else ""


def check_key(key: str) -> None:
    """Raise AddressError for a key that must not be sent to a store."""
    problem = key_problem(key)
    if problem:
        raise AddressError(
            f"{key!r} is not a usable key",
            why=problem,
            fix="name the object as the listing names it",
        )


def check_folder(prefix: str) -> None:
    """Raise BadInput for a prefix that is not a whole folder: names are cut off at its end."""
    if prefix and not prefix.endswith("/"):
        raise BadInput(
            f"{prefix!r} is not a folder",
            why="the children of a folder are named from its last slash on",
            fix=f"write {prefix + '/'!r}, or nothing for the root",
        )


_Key = tuple[int, str, tuple[tuple[str, str], ...]]
_opened: dict[_Key, Store] = {}
_seen: set[tuple[_Key, str]] = set()
_lock = Lock()


def open_store(spec: StoreSpec | str) -> Store:
    """
    Open the store at a URL or a folder, or return the one that this process already has open.

    Raise MetadataError if the witness is not in it: it is another store or disk, and would look empty.
    """
    if isinstance(spec, str):
        spec = StoreSpec(spec)
    from ebbtide.storage.address import locate  # noqa: PLC0415 (pyarrow takes a while to load)

    url = locate(spec.url).url
    # The process is part of the key: Spark forks its workers, and a forked child must not share sockets.
    key = (getpid(), url, tuple(sorted(spec.options.items())))
    with _lock:
        if key not in _opened:
            check_fitness()
            _opened[key] = _open(StoreSpec(url, dict(spec.options)))
        store = _opened[key]
    if spec.witness and (key, spec.witness) not in _seen:
        _check_witness(store, spec.witness)
        _seen.add((key, spec.witness))
    return store


def _check_witness(store: Store, witness: str) -> None:
    try:
        store.stat(witness)
    except NotFound:
        raise MetadataError(
            f"{socket.gethostname()} does not see {witness} in {store.spec.url}",
            why="the driver sees it there: this host has another disk under that path, or another store",
            fix="mount the folder at the same path on every host",
        ) from None


def _open(spec: StoreSpec) -> Store:
    """Open a store, and import its library only now: boto3 takes a while to load."""
    scheme = spec.url.split(":", 1)[0]
    if scheme == "file":
        from ebbtide.storage.local import LocalStore  # noqa: PLC0415 (see above)

        return LocalStore(spec)
    if scheme == "s3":
        from ebbtide.storage.s3 import S3Store  # noqa: PLC0415 (see above)

        return S3Store(spec)
    raise BadInput(
        f"{scheme}:// is not supported yet",
        why="Ebbtide can read such addresses but not open such stores",
        fix="use s3:// (many stores speak S3 too) or a folder",
    )
