"""
The steps of a scan that work on tables, as a protocol with two implementations.

Spark scans any registry and runs some seventy jobs for it; the driver scans a small one in no time. What a
scan does, checks and reports is in :mod:`scan`, once for both. A property test compares their results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from ebbtide.targets.oci.inventory.snapshots import Snapshot
from ebbtide.targets.oci.inventory.timestamps import Timestamps

Table = TypeVar("Table")

KEY = ["repository", "digest"]


FEW = 5_000
"""Up to this many tags, manifests or events the driver is faster than starting Spark jobs."""


@dataclass(frozen=True)
class Limits:
    """How the queries of a scan are distributed."""

    tasks_a_core: int = 4
    threads: int = 8
    """How many queries a task runs at a time."""
    few: int = FEW
    """Up to this many rows the driver does the scan."""
    driver_threads: int = 16
    """How many queries the driver runs at a time."""


DEFAULT_LIMITS = Limits()


class TooMany(Exception):
    """Raised if there is more than the driver should hold: Spark starts from the beginning."""


@dataclass(frozen=True)
class Scope:
    """The repositories to scan."""

    listed: tuple[str, ...]
    """Those that the registry lists, or that were named."""
    known: tuple[str, ...] = ()
    """Those that an earlier scan knew and the registry no longer lists."""
    whole: bool = True
    """Whether this is the whole registry; otherwise other repositories stay as they are recorded."""

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.listed, *self.known)


@dataclass(frozen=True)
class History(Generic[Table]):
    """What was known about the repositories in scope, and the notifications since."""

    images: Table
    tags: Table
    events: Table
    image_count: int
    tag_count: int


@dataclass(frozen=True)
class TagListing(Generic[Table]):
    """The tags of a scan and what they stand for."""

    rows: Table
    """Columns repository, tag and digest."""
    count: int
    absent: frozenset[str]
    """The repositories without a list of tags."""
    listed: bool = True
    """Whether any list has a tag."""
    left_out: tuple[str, str] | None = None
    """The repository and name of a tag that exists but is missing from its list."""


@dataclass(frozen=True)
class Discovery:
    """How manifests are found besides those of tags and what they reference."""

    untagged_in: tuple[str, ...] = ()
    """The repositories that can list their untagged manifests."""
    referrers: bool = False
    """Whether the registry can list the referrers of a manifest."""

    @property
    def follow_odd_children(self) -> bool:
        """Whether to ask for children that their index does not call manifests; a folder lists all it has."""
        return not self.untagged_in


@dataclass(frozen=True)
class Findings(Generic[Table]):
    """What a scan has found."""

    tags: Table
    """Tags whose manifests exist."""
    manifests: Table
    """Manifests that exist."""
    lost: tuple[str, str] | None
    """The repository and name of a tag that exists while its manifest does not."""


@dataclass(frozen=True)
class ScanCounts:
    """What was found, in numbers and names."""

    images: int
    tags: int
    read: int
    """How many manifests had to be read, because no earlier scan knew them."""
    kinds: Mapping[tuple[str, str], int]
    """How many manifests of unknown kinds exist, by repository and media type."""
    without_tags: tuple[str, ...]
    """The repositories that had tags before and have none now, in order."""


class Scanner(Protocol[Table]):
    """Does the steps of one scan."""

    def history(self, scope: Scope) -> History[Table]:
        """Collect what is known about the repositories in scope."""

    def list_tags(self, scope: Scope, history: History[Table]) -> TagListing[Table]:
        """
        List the tags of each repository and ask what each stands for.

        Tags that were known and are not listed are asked for too.
        """

    def find_manifests(
        self, history: History[Table], listing: TagListing[Table], discovery: Discovery
    ) -> Findings[Table]:
        """Find the manifests of all tags, and all others that can be discovered."""

    def counts(self, history: History[Table], found: Findings[Table]) -> ScanCounts:
        """Count what was found."""

    def write(
        self,
        folder: Path,
        scope: Scope,
        history: History[Table],
        found: Findings[Table],
        timestamps: Timestamps,
        times: Mapping[str, datetime],
    ) -> Snapshot:
        """Add times to all that was found, add the rows of other repositories, and write the snapshot."""
