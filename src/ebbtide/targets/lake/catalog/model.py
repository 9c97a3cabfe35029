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
    """About how many keys a range has; it never changes, so that equal content gives equal ranges."""


@dataclass(frozen=True)
class Entry:
    """The content of one key: where its bytes are, and when they were written."""

    key: str
    address: str
    """Relative to the namespace if inside it, a full URL otherwise; always canonical."""
    created: datetime
    size: int
    checksum: str = ""


@dataclass(frozen=True)
class PhysicalAddress:
    """An address to which a client uploads an object, and the token to link it afterwards."""

    address: str
    token: str
    expires: datetime


@dataclass(frozen=True)
class Change:
    """The difference of one key between two versions; None on a side that does not have it."""

    key: str
    before: Entry | None
    after: Entry | None

    @property
    def kind(self) -> str:
        """Return `added`, `removed` or `changed`."""
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed"


@dataclass(frozen=True)
class PolicyVersion:
    """One version of a repository's policy."""

    version: int
    text: str
    format: str
    created: datetime


class RemovedItems(Protocol):
    """Finds removed objects; implemented over the outcomes of runs."""

    def lookup(self, repository: str, address: str) -> RemovedObject | None:
        """Return what removed an address of a repository; None if no run did."""
