"""The base of the catalog: the database, the clock, and the stores of the repositories."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TypeVar

from sqlalchemy import Connection

from ebbtide.core.errors import BadInput, Refused
from ebbtide.core.instant import Clock, system_clock
from ebbtide.state.database import Database
from ebbtide.storage.store import Store, StoreSpec, open_store
from ebbtide.targets.lake.catalog import refs, schema
from ebbtide.targets.lake.catalog.model import RemovedItems, Repository
from ebbtide.targets.lake.catalog.partitions import Partitions
from ebbtide.targets.lake.catalog.range_writer import RANGE_KEYS
from ebbtide.targets.lake.catalog.ranges import CommittedContent
from ebbtide.targets.lake.catalog.refs import WriteTransaction

_Landed = TypeVar("_Landed")
_ATTEMPTS = 100
_OPEN_REPOSITORIES = 64
TOKEN_LIFE = timedelta(hours=24)
"""How long a client may upload to a physical address and link it."""
FENCE_POLL = timedelta(milliseconds=100)


class CatalogBase:
    """The base of the catalog's parts; `catalog.Catalog` is all of them."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock = system_clock,
        removed_items: RemovedItems | None = None,
        store_options: Mapping[str, str] | None = None,
        range_keys: int = RANGE_KEYS,
        partition_objects: int = 50_000,
        token_life: timedelta = TOKEN_LIFE,
        fence_wait: timedelta = timedelta(seconds=30),
        sleep: Callable[[float], None] = time.sleep,
        rehearsal: bool = False,
    ) -> None:
        if not 1 <= range_keys < 2**31 or partition_objects < 1 or token_life <= timedelta(0):
            raise BadInput(
                "range_keys, partition_objects and token_life must be positive",
                fix="leave them out to get the usual ones",
            )
        self._database = Database(url, schema.SCHEMA, rehearsal=rehearsal)
        self.rehearsal = rehearsal
        """Whether it belongs to a rehearsal root, whose clock can be advanced."""
        self._clock = clock
        self._removed_items = removed_items
        self._store_options = dict(store_options or {})
        self._range_keys = range_keys
        self._token_life = token_life
        self._fence_polls = max(0, fence_wait // FENCE_POLL)
        self._sleep = sleep
        self._partitions = Partitions(clock, partition_objects)
        self._content = lru_cache(_OPEN_REPOSITORIES)(self._open_content)

    def close(self) -> None:
        """Close the database's idle connections."""
        self._database.close()

    def now(self) -> datetime:
        """Return the time of the catalog's clock."""
        return self._clock()

    @property
    def token_life(self) -> timedelta:
        """How long a client may upload to a physical address and link it."""
        return self._token_life

    def repository(self, name: str) -> Repository:
        """Find a repository."""
        with self._reading(name) as (_, repo):
            return repo

    @contextmanager
    def _reading(self, repo: str) -> Iterator[tuple[Connection, Repository]]:
        """Open a read transaction and find the repository in it."""
        with self._database.reading() as connection:
            yield connection, refs.repository(connection, repo)

    @contextmanager
    def _writing(self, repo: str) -> Iterator[WriteTransaction]:
        """Open a write transaction that holds the repository locked."""
        with self._database.writing() as connection:
            yield WriteTransaction(connection, *refs.lock_repository(connection, repo), self._clock())

    def _store_at(self, url: str) -> Store:
        """Open a store with the catalog's options."""
        return open_store(StoreSpec(url, self._store_options))

    def _open_content(self, namespace: str) -> CommittedContent:
        """Open the committed content of a namespace."""
        return CommittedContent(self._store_at(namespace))

    def _until_landed(self, branch: str, attempt: Callable[[], _Landed | None]) -> _Landed:
        """Repeat a change that is prepared outside the lock until it lands on an unmoved head."""
        for _ in range(_ATTEMPTS):
            landed = attempt()
            if landed is not None:
                return landed
        raise Refused(
            f"branch {branch!r} moved {_ATTEMPTS} times while this waited to land on it",
            why="others change it faster than this change can be prepared",
            fix="try again when it is quieter",
        )
