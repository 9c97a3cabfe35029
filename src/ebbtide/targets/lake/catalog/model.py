"""The nouns of the catalog, as frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True)
class Repository:
    """A versioned repository; its uid, not its name, is part of every physical address."""

    name: str
    uid: str
    namespace: str
    """Canonical URL of the folder or bucket prefix that holds its objects and metadata."""
    default_branch: str
    created: datetime
    range_keys: int = 10_000
    """About how many keys a range holds; fixed for ever, so that content alone decides the ranges."""


@dataclass(frozen=True)
class DeletedRepository:
    """A repository that was deleted, and whose objects are still to be collected."""

    name: str
    """Its name then; another repository may have it by now."""
    uid: str
    namespace: str
    deleted: datetime


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
class RangeInfo:
    """A metarange's row: one immutable, content-addressed slice of a commit's sorted keys."""

    id: str
    min_key: str
    max_key: str
    count: int


@dataclass(frozen=True)
class Commit:
    """An immutable version of the whole repository."""

    id: str
    metarange_id: str
    parents: tuple[str, ...]
    created: datetime
    message: str = ""
    committer: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class StagedRange:
    """
    The "GC commit" of one branch: its staged entries at the snapshot, as a metarange.

    A key may occur twice: an entry that was overwritten while a commit was under way is still needed by it.
    """

    branch: str
    metarange_id: str
    count: int
    branch_id: str = ""
    """Unlike the name it is never given twice, and it is part of the branch's physical addresses."""


@dataclass(frozen=True)
class Snapshot:
    """Everything that can reach an object, read in one transaction."""

    repository: Repository
    sequence: int
    """The repository's change counter; it grows with every operation that can make a reference."""
    taken_at: datetime
    branches: Mapping[str, str]
    """Branch name to head commit id."""
    tags: Mapping[str, str]
    commits: Mapping[str, Commit]
    staged: tuple[StagedRange, ...]
    branch_ids: Mapping[str, str] = field(default_factory=dict)
    """Branch name to branch id, of every branch."""


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


@dataclass(frozen=True)
class RemovedItem:
    """What is known of a deleted object: when it went, by which run and rules, and whether for good."""

    address: str
    since: datetime
    run_id: int
    rules: tuple[str, ...]
    restorable: bool
    until: datetime | None = None
    """Until when it lies in the recycle bin, if it does."""


class RemovedItems(Protocol):
    """Knows what runs have deleted; the ledger of runs is one."""

    def lookup(self, repository: str, address: str) -> RemovedItem | None:
        """Say what became of an address of the repository of this name; None if no run deleted it."""
