"""
The clocks that Ebbtide keeps itself, because registries keep none: pure rules from one scan to the next.

Of two moments between which something must have happened the later one counts, so that nothing goes earlier
than it should. What happened before the first scan, and was told by no notification, has no time at all.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime

from ebbtide.core.instant import NEVER
from ebbtide.targets.oci.policies.policy import UNTAGGED, Assigned, Policy, renewed, same_name

HELD = Assigned(policy=None, expires_at=NEVER, can_delete_prior=False)
"""Never delete: what is not understood, and what that may need."""


@dataclass(frozen=True)
class TagRecord:
    """What is recorded of a tag: what it stands for, since when, and what was copied onto it."""

    digest: str
    moved_at: datetime | None
    seen_at: datetime
    assigned: Assigned = field(default_factory=Assigned)


@dataclass(frozen=True)
class ManifestRecord:
    """What is recorded of a manifest."""

    pushed_at: datetime | None
    seen_at: datetime
    untagged_since: datetime | None
    assigned: Assigned = field(default_factory=Assigned)


@dataclass(frozen=True)
class Standing:
    """How a manifest stands in this scan, and whether it had a tag in the one before."""

    tagged: bool = False
    was_tagged: bool = False
    led: bool = False
    """An index lists it, or its subject is there."""
    held: bool = False
    """It is not understood, or something that is not understood may need it."""


def tag_record(
    digest: str,
    earlier: TagRecord | None,
    *,
    pushed: datetime | None,
    scanned: datetime | None,
    policy: Policy | None,
    now: datetime,
) -> TagRecord:
    """
    Date a tag that stands for a digest now.

    `pushed` is the time of the newest push under this tag that was told, if it was of this digest. `scanned`
    is when the repository was last scanned, None if never. `policy` is copied onto a tag that is new, has
    moved, or got none yet; a tag that follows another manifest gets none.
    """
    if earlier is not None and earlier.digest == digest:
        if policy is None or earlier.assigned != Assigned():
            return earlier
        # It was seen before its repository was adopted, or before a rule was about it.
        return replace(earlier, assigned=renewed(policy, earlier.moved_at or earlier.seen_at))
    moved = _moved(pushed, scanned, now)
    assigned = Assigned() if policy is None else renewed(policy, moved or now)
    return TagRecord(digest, moved, now, assigned)


def _moved(pushed: datetime | None, scanned: datetime | None, now: datetime) -> datetime | None:
    """Say when a tag moved; a push from before the last scan, which did not see it, was another one."""
    told = None if pushed is None else min(pushed, now)
    if scanned is None:
        return told
    return told if told is not None and told > scanned else now


def manifest_record(
    standing: Standing,
    earlier: ManifestRecord | None,
    *,
    pushed: datetime | None,
    untagged: Policy | None,
    now: datetime,
) -> ManifestRecord:
    """
    Date a manifest; `pushed` is the time of the newest push of it that was told.

    `untagged` is copied onto a manifest that has lost its tags; None before its repository was adopted.
    """
    times = [earlier.pushed_at] if earlier is not None and earlier.pushed_at is not None else []
    if pushed is not None:
        times.append(min(pushed, now))
    known = earlier or ManifestRecord(None, now, None)
    since = _untagged_since(standing, known.untagged_since, pushed, now)
    found = ManifestRecord(max(times, default=None), known.seen_at, since)
    if standing.held:
        return replace(found, assigned=HELD)
    if since is None or untagged is None:
        return found
    if since == known.untagged_since and known.assigned == Assigned():
        # Nothing was copied before its repository was adopted; the days count from when its last tag left.
        return replace(found, assigned=renewed(untagged, since))
    if since == known.untagged_since and _is_untagged(known.assigned):
        return replace(found, assigned=known.assigned)
    # Also what was held until now gets all its days, counted from now, so that somebody can notice.
    return replace(found, assigned=renewed(untagged, now))


def _untagged_since(
    standing: Standing, earlier: datetime | None, pushed: datetime | None, now: datetime
) -> datetime | None:
    """Say since when a manifest has no tag; None while it has one, or never had and follows others."""
    if standing.tagged:
        return None
    if earlier is not None:
        return now if pushed is not None and pushed > earlier else earlier
    return now if standing.was_tagged or not standing.led else None


def _is_untagged(assigned: Assigned) -> bool:
    return assigned.policy is not None and same_name(assigned.policy) == same_name(UNTAGGED.name)
