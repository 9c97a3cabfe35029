"""Entries whose objects are gone: a version still lists a key after a run or the reaper took its object."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from ebbtide.engine.removed_table import RemovedTable
from ebbtide.engine.tables.digest import hash_addresses
from ebbtide.targets.lake.bin import lake_bin
from ebbtide.targets.lake.catalog.model import Entry, Repository
from ebbtide.targets.lake.workshop import Workshop

T = TypeVar("T")
_PAGE = 10_000


class ObjectState(StrEnum):
    """Where the object of an entry is, as far as Ebbtide knows."""

    STORED = "stored"
    RECYCLED = "recycled"
    """In the recycle bin; it can be restored."""
    GONE = "gone"


@dataclass
class _Removed:
    """What was taken away from a repository; the bin is read when the first entry is met that is gone."""

    shop: Workshop
    repository: Repository

    @cached_property
    def gone(self) -> Any:
        """The hashes of the addresses that runs or the reaper have taken, sorted."""
        found = RemovedTable(self.shop.root, self.shop.ledger, self.repository.uid).gone_hashes()
        reaped = self.shop.catalog.reaped(self.repository.uid)
        parts = [hash_addresses(page) for page in _pages(reaped)]
        return np.union1d(found, np.concatenate(parts)) if parts else found

    @cached_property
    def in_bin(self) -> frozenset[str]:
        """The addresses of the items in the bin."""
        contents = lake_bin(self.shop.catalog, self.repository.name)
        labels = contents.labels(lambda _broken: None)
        return frozenset(item.address for label in labels for item in contents.items(label))

    def state(self, address: str, *, is_gone: bool) -> ObjectState:
        """Tell where an object is."""
        if not is_gone:
            return ObjectState.STORED
        return ObjectState.RECYCLED if address in self.in_bin else ObjectState.GONE


def with_states(shop: Workshop, repo: str, entries: Iterator[Entry]) -> Iterator[tuple[Entry, ObjectState]]:
    """Say of each entry of a repository where its object is; the entries are streamed."""
    removed = _Removed(shop, shop.catalog.repository(repo))
    for page in _pages(entries):
        hashes = hash_addresses([entry.address for entry in page])
        for entry, is_gone in zip(page, _among(removed.gone, hashes), strict=True):
            yield entry, removed.state(entry.address, is_gone=bool(is_gone))


def _among(ordered: Any, hashes: Any) -> Any:
    """Tell of each hash whether it is among sorted ones."""
    return np.searchsorted(ordered, hashes, "right") > np.searchsorted(ordered, hashes, "left")


def _pages(things: Iterator[T]) -> Iterator[list[T]]:
    while page := list(islice(things, _PAGE)):
        yield page
