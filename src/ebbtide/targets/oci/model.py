"""The model of a registry: images, running images, verdicts, and adoption. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from ebbtide.targets.oci.policies.policy import Assigned, KeepNewest

OLDEST_SCAN = timedelta(hours=24)
"""By default an older list of running images says nothing about what runs now."""


class ImageDecision(StrEnum):
    """What becomes of a tag or a manifest."""

    KEEP = "keep"
    RECYCLE = "recycle"
    """It goes into the recycle bin."""
    DELETE = "delete"
    REFUSE = "refuse"
    """Its delete was requested, and it must not go."""


GOES = (str(ImageDecision.RECYCLE), str(ImageDecision.DELETE))
"""The decisions by which an item goes."""


class QuarantineState(StrEnum):
    """The state of the check of an image; an image that passed is not in quarantine."""

    PENDING = "pending"
    FAILED = "failed"


@dataclass(frozen=True)
class Quarantine:
    """An image is held back, or failed its check, since when if that is known."""

    state: QuarantineState
    since: datetime | None = None


@dataclass(frozen=True)
class Tag:
    """A name of a manifest, with its assigned values; None means unknown."""

    name: str
    moved_at: datetime | None = None
    assigned: Assigned = field(default_factory=Assigned)
    delete_requested: bool = False
    seen_at: datetime | None = None
    """When a scan first saw the tag stand for this digest: it was moved then or before."""
    copied: bool = False
    """A scan assigned the values, by a rule or because none matched; no person did."""

    @property
    def clock(self) -> datetime | None:
        """Since when the tag counts: its move or, if that is unknown, the first sight of it."""
        return self.moved_at or self.seen_at


@dataclass(frozen=True)
class Image:
    """A manifest and its tags; None means unknown."""

    repository: str
    digest: str
    tags: tuple[Tag, ...] = ()
    children: tuple[str, ...] = ()
    """The manifests that an index lists."""
    subject: str | None = None
    """The manifest that this one refers to: a signature names what it signs."""
    pushed_at: datetime | None = None
    untagged_since: datetime | None = None
    quarantine: Quarantine | None = None
    assigned: Assigned = field(default_factory=Assigned)
    delete_requested: bool = False
    media_type: str | None = None
    size: int | None = None
    seen_at: datetime | None = None
    """When a scan first saw the manifest: it was pushed then or before."""
    created_at: datetime | None = None
    """When the image was built, according to its configuration: orders tags without better times."""

    @property
    def clock(self) -> datetime | None:
        """Since when the manifest counts: its push or, if that is unknown, the first sight of it."""
        return self.pushed_at or self.seen_at


@dataclass(frozen=True)
class RunningReference:
    """A name by which an image runs; without a repository only the digest is known."""

    repository: str | None
    tag: str | None = None
    digest: str | None = None

    def __str__(self) -> str:
        """Write it as people do."""
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest and self.repository else self.digest or ""
        return f"{self.repository or ''}{tag}{digest}"


@dataclass(frozen=True)
class RunningImages:
    """The running images that were found, and when; a scan without a time was made for this very purge."""

    references: tuple[RunningReference, ...] = ()
    scanned_at: datetime | None = None
    failed: str = ""
    """Why the scan cannot be trusted; empty if it can."""


@dataclass(frozen=True)
class ImageVerdict:
    """What becomes of one tag or, without one, of one manifest."""

    repository: str
    digest: str
    tag: str | None
    decision: ImageDecision
    policy: str
    deadline: datetime | None
    """When it goes, or would go if nothing held it; None if never or unknown."""
    held_by: tuple[str, ...] = ()
    unmatched: bool = False
    """No assign rule matches it or something that keeps it, and no user assigned anything there."""


WHOLE = ""
"""Instead of a repository: the whole registry, including later repositories."""


@dataclass(frozen=True)
class Confirmation:
    """Who confirmed what the policies do, and when."""

    at: datetime
    by: str


@dataclass(frozen=True)
class Adoption:
    """
    What of a registry was confirmed, by repository; WHOLE is all of it.

    A registry that Ebbtide has never purged stores images for which no rule was written. So the first plan
    shows which policies would apply to what, and a person confirms that. Until then scans record what exists
    and since when, and assign no policy: what is confirmed is what the policies say on that day.
    """

    confirmed: Mapping[str, Confirmation]

    def covers(self, repository: str) -> bool:
        """Return True if a repository or, for WHOLE, the registry may be purged."""
        return WHOLE in self.confirmed or repository in self.confirmed


# The texts of holds, as verdicts, plans and explanations show them. The oracle and the Spark evaluation
# decide independently what holds an image, and use the same texts, so that a property test can compare them.
UNKNOWN_TIME = "unknown time"
UNKNOWN_POLICY = "unknown policy"
NO_DATE = "no expiration date"
NEVER_DELETE = "pinned: never delete"
UNMATCHED = "unmatched: no rule matches"
NO_SUBJECT = "unknown subject"
NO_TERMS = "nothing says when it may go"
PENDING = "quarantine pending"
ORDER_UNKNOWN = "; the order is unknown: no creation date, or equal ones"
NO_POLICY = "(none)"
"""The policy of assigned values without a name."""


def newest_words(rule: KeepNewest, *, in_doubt: bool = False) -> str:
    """Return the hold of a keep_newest rule on a tag; `in_doubt` if only because the order is unknown."""
    return f"keep_newest: {rule}{ORDER_UNKNOWN if in_doubt else ''}"
