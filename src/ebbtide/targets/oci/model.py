"""What a registry holds, what runs, and what the purge makes of a tag or a manifest."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from ebbtide.targets.oci.policies.policy import Assigned

OLDEST_SCAN = timedelta(hours=24)
"""By default what ran longer ago than this says nothing about what runs now."""


class Decision(StrEnum):
    """What becomes of a tag or a manifest."""

    KEEP = "keep"
    RECYCLE = "recycle"
    """It goes into the recycle bin."""
    DELETE = "delete"
    REFUSE = "refuse"
    """Somebody asked to delete it, and it must not go."""


GOES = (str(Decision.RECYCLE), str(Decision.DELETE))
"""The decisions by which something goes."""


class QuarantineState(StrEnum):
    """How far the check of an image has come; an image that passed is in no quarantine."""

    PENDING = "pending"
    FAILED = "failed"


@dataclass(frozen=True)
class Quarantine:
    """An image is held back, or was found bad, since when if that is known."""

    state: QuarantineState
    since: datetime | None = None


@dataclass(frozen=True)
class Tag:
    """A name of a manifest, with what was assigned to it; None is what is not known."""

    name: str
    moved_at: datetime | None = None
    assigned: Assigned = field(default_factory=Assigned)
    delete_requested: bool = False
    seen_at: datetime | None = None
    """By when a scan saw the tag stand for this digest: it was moved then or before."""
    copied: bool = False
    """A scan gave it the values, by a rule or for want of one; nobody assigned them."""

    @property
    def clock(self) -> datetime | None:
        """Since when the tag counts: its move or, if nobody saw that, the first sight of it."""
        return self.moved_at or self.seen_at


@dataclass(frozen=True)
class Image:
    """A manifest and its tags; None is what is not known."""

    repository: str
    digest: str
    tags: tuple[Tag, ...] = ()
    children: tuple[str, ...] = ()
    """The manifests that an index lists."""
    subject: str | None = None
    """The manifest that this one is about: a signature names what it signs."""
    pushed_at: datetime | None = None
    untagged_since: datetime | None = None
    quarantine: Quarantine | None = None
    assigned: Assigned = field(default_factory=Assigned)
    delete_requested: bool = False
    media_type: str | None = None
    size: int | None = None
    seen_at: datetime | None = None
    """By when a scan saw the manifest: it was pushed then or before."""
    created_at: datetime | None = None
    """When the image says that it was built: it orders tags of which nothing better is known."""

    @property
    def clock(self) -> datetime | None:
        """Since when the manifest counts: its push or, if nobody saw that, the first sight of it."""
        return self.pushed_at or self.seen_at


@dataclass(frozen=True)
class Reference:
    """A name by which something runs; without a repository the digest alone is known."""

    repository: str | None
    tag: str | None = None
    digest: str | None = None

    def __str__(self) -> str:
        """Write it as people do."""
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest and self.repository else self.digest or ""
        return f"{self.repository or ''}{tag}{digest}"


@dataclass(frozen=True)
class Running:
    """What was found running, and when; a scan without a time was made for this very purge."""

    references: tuple[Reference, ...] = ()
    scanned_at: datetime | None = None
    failed: str = ""
    """Why the scan is not to be trusted; empty if it is."""


@dataclass(frozen=True)
class Judgement:
    """What becomes of one tag or, without one, of one manifest."""

    repository: str
    digest: str
    tag: str | None
    decision: Decision
    policy: str
    deadline: datetime | None
    """When it goes or would go but for what holds it; None is never, or nobody knows."""
    held_by: tuple[str, ...] = ()
    unmatched: bool = False
    """No assign rule matches it or something that keeps it, and nobody assigned anything there."""
