"""Open a store from its URL, once for each process: executors open the same store for every task."""

from __future__ import annotations

import socket
from os import getpid
from threading import Lock

from ebbtide.core.errors import BadInput, MetadataError, NotFound
from ebbtide.storage.address import locate
from ebbtide.storage.base import Store, StoreSpec
from ebbtide.storage.fitness import check_fitness

_Key = tuple[int, str, tuple[tuple[str, str], ...]]
_opened: dict[_Key, Store] = {}
_seen: set[tuple[_Key, str]] = set()
_lock = Lock()


def open_store(spec: StoreSpec | str) -> Store:
    """
    Open the store at a URL or a folder, or give back the one that this process has open already.

    A witness that is not seen stops whoever opens the store: it is not the one that was meant, or another
    disk, and would look empty.
    """
    if isinstance(spec, str):
        spec = StoreSpec(spec)
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
    """Import the store's own library only when it is wanted: boto3 takes a while to load."""
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
