"""Open a store from its URL, once for each process: executors open the same store for every task."""

from __future__ import annotations

from os import getpid
from threading import Lock

from ebbtide.errors import BadInput
from ebbtide.store.address import locate
from ebbtide.store.base import Store, StoreSpec

_Key = tuple[int, str, tuple[tuple[str, str], ...]]
_opened: dict[_Key, Store] = {}
_lock = Lock()


def open_store(spec: StoreSpec | str) -> Store:
    """Open the store at a URL or a folder, or give back the one that this process has open already."""
    if isinstance(spec, str):
        spec = StoreSpec(spec)
    url = locate(spec.url).url
    # The process is part of the key: Spark forks its workers, and a forked child must not share sockets.
    key = (getpid(), url, tuple(sorted(spec.options.items())))
    with _lock:
        if key not in _opened:
            _opened[key] = _open(StoreSpec(url, dict(spec.options)))
        return _opened[key]


def _open(spec: StoreSpec) -> Store:
    """Import the store's own library only when it is wanted: boto3 takes a while to load."""
    scheme = spec.url.split(":", 1)[0]
    if scheme == "file":
        from ebbtide.store.local import LocalStore  # noqa: PLC0415 (see above)

        return LocalStore(spec)
    if scheme == "s3":
        from ebbtide.store.s3 import S3Store  # noqa: PLC0415 (see above)

        return S3Store(spec)
    raise BadInput(
        f"{scheme}:// is not supported yet",
        why="Ebbtide can read such addresses but not open such stores",
        fix="use s3:// (many stores speak S3 too) or a folder",
    )
