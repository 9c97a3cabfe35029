"""
The steps of a scan that work on tables, as a protocol with two engines behind it.

Spark takes any registry, and some seventy jobs for it; the driver takes few images, and no time. What a scan
does, checks and says is in :mod:`scanning`, once for both. They find the same: that is a property test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from ebbtide.targets.oci.inventory.dater import Dater
from ebbtide.targets.oci.inventory.snapshots import Snapshot

Table = TypeVar("Table")

KEY = ["repository", "digest"]


class TooMany(Exception):
    """There is more than the driver should hold: Spark has to do it, from the beginning."""


@dataclass(frozen=True)
class Scope:
    """Which repositories are scanned."""

    listed: tuple[str, ...]
    """Those that the registry lists, or that were named."""
    known: tuple[str, ...] = ()
    """Those that an earlier scan knew and the registry does not list any more."""
    whole: bool = True
    """Whether it is all of the registry; what else is known of it stays as it is."""

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.listed, *self.known)


@dataclass(frozen=True)
class Before(Generic[Table]):
    """What was known before of the repositories that are scanned, and what was told of them since."""

    images: Table
    tags: Table
    events: Table
    image_count: int
    tag_count: int


@dataclass(frozen=True)
class Tagged(Generic[Table]):
    """The tags of a scan and what they stand for."""

    rows: Table
    """Columns repository, tag and digest."""
    count: int
    absent: frozenset[str]
    """The repositories that have no list of tags."""
    listed: bool = True
    """Whether any list has a tag."""
    left_out: tuple[str, str] | None = None
    """The repository and the name of a tag that is there and that its list does not have."""


@dataclass(frozen=True)
class Leads:
    """What manifests are looked for besides those of tags, and what they lead to."""

    untagged_in: tuple[str, ...] = ()
    """The repositories that can list their manifests without a tag."""
    referrers: bool = False
    """Whether the registry can be asked what refers to a manifest."""

    @property
    def odd_children(self) -> bool:
        """Tell whether to ask for children that their index calls no manifest; a folder lists all it has."""
        return not self.untagged_in


@dataclass(frozen=True)
class Found(Generic[Table]):
    """What a scan has found."""

    tags: Table
    """Those whose manifests are there."""
    manifests: Table
    """Those that are there."""
    lost: tuple[str, str] | None
    """The repository and the name of a tag that is there while its manifest is not."""


@dataclass(frozen=True)
class Counts:
    """What there is to say of what was found, in numbers and names."""

    images: int
    tags: int
    read: int
    """How many manifests had to be read, because no earlier scan knew them."""
    kinds: Mapping[tuple[str, str], int]
    """How many manifests that are not understood there are, by repository and media type."""
    without_tags: tuple[str, ...]
    """The repositories that had tags before and have none now, in order."""


class Engine(Protocol[Table]):
    """Does the steps of one scan."""

    def before(self, scope: Scope) -> Before[Table]:
        """Gather what is known of the repositories in scope."""

    def tagged(self, scope: Scope, before: Before[Table]) -> Tagged[Table]:
        """
        List the tags of each repository and ask what each stands for.

        Tags that were known and are not listed are asked for too.
        """

    def found(self, before: Before[Table], tagged: Tagged[Table], leads: Leads) -> Found[Table]:
        """Find the manifests of all tags, and all others that can be known of."""

    def counts(self, before: Before[Table], found: Found[Table]) -> Counts:
        """Count what was found."""

    def write(
        self,
        folder: Path,
        scope: Scope,
        before: Before[Table],
        found: Found[Table],
        dater: Dater,
        times: Mapping[str, datetime],
    ) -> Snapshot:
        """Date all that was found, add what is known of other repositories, and write the snapshot."""
