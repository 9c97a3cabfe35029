"""The data that collectors read from a versioned repository, whatever stores it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

METADATA = "_lakefs/"
"""The folder of a namespace that holds metadata. Nothing in it is ever treated as a data object."""
COMMITTED = f"{METADATA}committed"
"""The source of the ranges of commits. Plans record it, so its spelling must not change."""
STAGED = f"{METADATA}staged"
"""The source of the ranges of staged entries."""


@dataclass(frozen=True)
class RepositoryInfo:
    """Which repository it is, and where its objects are."""

    name: str
    uid: str
    """Unlike the name it is never used twice."""
    namespace: str
    """Canonical URL of the folder or bucket prefix that holds its objects and metadata."""
    default_branch: str


@dataclass(frozen=True)
class DeletedRepository:
    """A repository that was deleted and whose objects are still in its namespace."""

    name: str
    """Its name before it was deleted; another repository may have it now."""
    uid: str
    namespace: str
    deleted: datetime


@dataclass(frozen=True)
class RangeInfo:
    """One immutable slice of the sorted entries of a metarange."""

    id: str
    """Identifies the content: two ranges with one id have the same entries."""
    min_key: str
    max_key: str
    count: int


@dataclass(frozen=True)
class Commit:
    """An immutable version of a whole repository."""

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
    The staged entries of one branch at a snapshot, as a metarange (seed 001 calls it a "GC commit").

    A key may occur twice: a commit under way still needs an entry that was overwritten since it began.
    """

    branch: str
    metarange_id: str
    count: int
    branch_id: str = ""
    """Unlike the name it is never used twice, and it is part of the addresses of the branch's objects."""


@dataclass(frozen=True)
class Snapshot:
    """Everything that can reach an object, read at one moment."""

    repository: RepositoryInfo
    sequence: int
    """The repository's change counter at that moment; see `VersionedRepository.sequence`."""
    taken_at: datetime
    branches: Mapping[str, str]
    """Branch name to head commit id."""
    tags: Mapping[str, str]
    commits: Mapping[str, Commit]
    """All commits, also those that no branch or tag reaches."""
    staged: tuple[StagedRange, ...]
    branch_ids: Mapping[str, str] = field(default_factory=dict)
    """Branch name to branch id, for every branch."""


@dataclass(frozen=True)
class RemovedObject:
    """What is known of an object that a run removed."""

    address: str
    since: datetime
    run_id: int
    rules: tuple[str, ...]
    restorable: bool
    until: datetime | None = None
    """Until when it is in the recycle bin, if it is there."""
