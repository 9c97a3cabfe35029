"""The nouns of the catalog, as frozen data."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ebbtide.targets.repository.model import RemovedObject, RepositoryInfo


@dataclass(frozen=True)
class Repository(RepositoryInfo):
    """A versioned repository; its uid, not its name, is part of every physical address."""

    created: datetime
    range_keys: int = 10_000
    """About how many keys a range holds; fixed for ever, so that content alone decides the ranges."""


@dataclass(frozen=True)
class Entry:
    """One key's content: where the bytes are and when they were written."""

    key: str
    address: str
    """Relative to the namespace if inside it, a full URL otherwise; always canonical."""
    created: datetime
    size: int
    checksum: str = ""


@dataclass(frozen=True)
class PhysicalAddress:
    """Where a client may write an object by itself, and the token that links it afterwards."""

    address: str
    token: str
    expires: datetime


@dataclass(frozen=True)
class Change:
    """One key's difference between two versions; None on the side that does not have it."""

    key: str
    before: Entry | None
    after: Entry | None

    @property
    def kind(self) -> str:
        """Say `added`, `removed` or `changed`."""
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed"


@dataclass(frozen=True)
class PolicyVersion:
    """One text that was a repository's policy, from its moment until the next one's."""

    version: int
    text: str
    format: str
    created: datetime


class RemovedItems(Protocol):
    """Knows what runs have deleted; the ledger of runs is one."""

    def lookup(self, repository: str, address: str) -> RemovedObject | None:
        """Say what became of an address of the repository of this name; None if no run deleted it."""
