"""
Objects that are gone: a version still lists a key after a run or the reaper removed its object.

`RemovedObjectLookup` finds the run that removed an object, for readers of the catalog. `with_states` adds to
each listed entry whether its object is stored, in the recycle bin, or gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ebbtide.engine.removed_table import RemovedTable
from ebbtide.engine.tables.digest import hash_addresses
from ebbtide.state.runs import Ledger
from ebbtide.targets.lake.bin import BIN_ROOT, lake_bin
from ebbtide.targets.lake.catalog.model import Entry, Repository
from ebbtide.targets.lake.context import LakeContext
from ebbtide.targets.lake.kind import SCHEME
from ebbtide.targets.repository.model import RemovedObject
from ebbtide.targets.repository.removed_objects import RemovedObjects

T = TypeVar("T")
_PAGE = 10_000


@dataclass(frozen=True)
class RemovedObjectLookup:
    """Looks up for the catalog what the runs of a ledger have removed."""

    root: Path
    ledger: Ledger
    store_options: Mapping[str, str] = field(default_factory=dict)

    def lookup(self, repository: str, address: str) -> RemovedObject | None:
        """Return what happened to an address of the repository of this name; None if no run removed it."""
        removed = RemovedObjects(self.root, self.ledger, BIN_ROOT, self.store_options)
        return removed.find(f"{SCHEME}{repository}", address)


class ObjectState(StrEnum):
    """Where the object of an entry is, as far as Ebbtide knows."""

    STORED = "stored"
    RECYCLED = "recycled"
    """In the recycle bin; it can be restored."""
    GONE = "gone"


@dataclass
class _Removed:
    """What was removed from a repository; the bin is read when the first removed entry is met."""

    lake: LakeContext
    repository: Repository

    @cached_property
    def gone(self) -> Any:
        """The hashes of the addresses that runs or the reaper removed, sorted."""
        found = RemovedTable(self.lake.root, self.lake.ledger, self.repository.uid).gone_hashes()
        reaped = self.lake.catalog.reaped(self.repository.uid)
        parts = [hash_addresses(page) for page in _pages(reaped)]
        return np.union1d(found, np.concatenate(parts)) if parts else found

    @cached_property
    def in_bin(self) -> frozenset[str]:
        """The addresses of the items in the bin."""
        contents = lake_bin(self.lake.catalog, self.repository.name)
        labels = contents.labels(lambda _broken: None)
        return frozenset(item.address for label in labels for item in contents.items(label))

    def state(self, address: str, *, is_gone: bool) -> ObjectState:
        """Return where an object is."""
        if not is_gone:
            return ObjectState.STORED
        return ObjectState.RECYCLED if address in self.in_bin else ObjectState.GONE


def with_states(
    lake: LakeContext, repo: str, entries: Iterator[Entry]
) -> Iterator[tuple[Entry, ObjectState]]:
    """Return each entry of a repository and where its object is; the entries are streamed."""
    removed = _Removed(lake, lake.catalog.repository(repo))
    for page in _pages(entries):
        hashes = hash_addresses([entry.address for entry in page])
        for entry, is_gone in zip(page, _among(removed.gone, hashes), strict=True):
            yield entry, removed.state(entry.address, is_gone=bool(is_gone))


def _among(ordered: Any, hashes: Any) -> Any:
    """Return for each hash whether it is among sorted ones."""
    return np.searchsorted(ordered, hashes, "right") > np.searchsorted(ordered, hashes, "left")


def _pages(things: Iterator[T]) -> Iterator[list[T]]:
    while page := list(islice(things, _PAGE)):
        yield page
