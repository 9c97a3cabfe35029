"""
The times that Ebbtide records, because registries keep none: pure rules from one scan to the next.

If something must have happened between two moments the later one counts, so that nothing expires too early.
What happened before the first scan, without a notification, has no time at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import pyarrow as pa

from ebbtide.core.instant import NEVER
from ebbtide.targets.oci.client.manifest import MEDIA_TYPES
from ebbtide.targets.oci.client.names import follows_a_digest
from ebbtide.targets.oci.inventory.queries import MANIFESTS_ARROW
from ebbtide.targets.oci.policies.policy import UNTAGGED, Assigned, Policies, Policy, renewed, same_name

HELD = Assigned(policy=None, expires_at=NEVER, can_delete_prior=False)
"""Never delete: for manifests that are not understood, and those that such a manifest may need."""


@dataclass(frozen=True)
class TagRecord:
    """What is recorded about a tag: its digest, since when, and the assigned values."""

    digest: str
    moved_at: datetime | None
    seen_at: datetime
    assigned: Assigned = field(default_factory=Assigned)


@dataclass(frozen=True)
class ManifestRecord:
    """What is recorded about a manifest."""

    pushed_at: datetime | None
    seen_at: datetime
    untagged_since: datetime | None
    assigned: Assigned = field(default_factory=Assigned)


@dataclass(frozen=True)
class ManifestState:
    """The state of a manifest in this scan, and whether it had a tag in the previous one."""

    tagged: bool = False
    was_tagged: bool = False
    referenced: bool = False
    """An index lists it, or its subject exists."""
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
    Return the record of a tag that stands for a digest now.

    `pushed` is the time of the newest notified push under this tag, if it was of this digest. `scanned` is
    when the repository was last scanned, None if never. `policy` is assigned to a tag that is new, has moved,
    or has none yet; a tag that follows another manifest gets none.
    """
    if earlier is not None and earlier.digest == digest:
        if policy is None or earlier.assigned != Assigned():
            return earlier
        # It was seen before its repository was adopted, or before a rule matched it.
        return replace(earlier, assigned=renewed(policy, earlier.moved_at or earlier.seen_at))
    moved = _move_time(pushed, scanned, now)
    assigned = Assigned() if policy is None else renewed(policy, moved or now)
    return TagRecord(digest, moved, now, assigned)


def _move_time(pushed: datetime | None, scanned: datetime | None, now: datetime) -> datetime | None:
    """Return when a tag moved; a push from before the last scan, which did not see it, was another one."""
    told = None if pushed is None else min(pushed, now)
    if scanned is None:
        return told
    return told if told is not None and told > scanned else now


def manifest_record(
    state: ManifestState,
    earlier: ManifestRecord | None,
    *,
    pushed: datetime | None,
    untagged: Policy | None,
    now: datetime,
) -> ManifestRecord:
    """
    Return the record of a manifest; `pushed` is the time of its newest notified push.

    `untagged` is assigned to a manifest that has lost its tags; None before its repository was adopted.
    """
    times = [earlier.pushed_at] if earlier is not None and earlier.pushed_at is not None else []
    if pushed is not None:
        times.append(min(pushed, now))
    known = earlier or ManifestRecord(None, now, None)
    since = _untagged_since(state, known.untagged_since, pushed, now)
    found = ManifestRecord(max(times, default=None), known.seen_at, since)
    if state.held:
        return replace(found, assigned=HELD)
    if since is None or untagged is None:
        return found
    if since == known.untagged_since and known.assigned == Assigned():
        # Nothing was assigned before adoption; the days count from when its last tag was removed.
        return replace(found, assigned=renewed(untagged, since))
    if since == known.untagged_since and _is_untagged(known.assigned):
        return replace(found, assigned=known.assigned)
    # What was held until now also gets all its days, counted from now, so that its owner can react.
    return replace(found, assigned=renewed(untagged, now))


def _untagged_since(
    state: ManifestState, earlier: datetime | None, pushed: datetime | None, now: datetime
) -> datetime | None:
    """Return since when a manifest has no tag; None while it has one, or never had and is referenced."""
    if state.tagged:
        return None
    if earlier is not None:
        return now if pushed is not None and pushed > earlier else earlier
    return now if state.was_tagged or not state.referenced else None


def _is_untagged(assigned: Assigned) -> bool:
    return assigned.policy is not None and same_name(assigned.policy) == same_name(UNTAGGED.name)


UTC_TIME = pa.timestamp("us", tz="UTC")
ASSIGNED_ARROW = (
    ("policy", pa.string()),
    ("expires_at", UTC_TIME),
    ("can_delete_prior", pa.bool_()),
    ("recycle", pa.bool_()),
)


Row = Mapping[str, Any]

_ASSIGNED = [name for name, _ in ASSIGNED_ARROW]
_CONTENT = [field for field in MANIFESTS_ARROW if field.name not in ("missing", "fresh")]
TAG_HISTORY = ["digest", "moved_at", "seen_at", *_ASSIGNED]
"""The columns of a tag's row in the previous snapshot that its record is made from."""
IMAGE_HISTORY = ["pushed_at", "seen_at", "untagged_since", *_ASSIGNED]
"""The columns of a manifest's row in the previous snapshot that its record is made from."""
TAGS_ARROW = pa.schema(
    [
        ("repository", pa.string()),
        ("tag", pa.string()),
        ("digest", pa.string()),
        ("moved_at", UTC_TIME),
        ("seen_at", UTC_TIME),
        *ASSIGNED_ARROW,
    ]
)
IMAGES_ARROW = pa.schema(
    [
        *_CONTENT,
        ("pushed_at", UTC_TIME),
        ("seen_at", UTC_TIME),
        ("untagged_since", UTC_TIME),
        *ASSIGNED_ARROW,
    ]
)


@dataclass(frozen=True)
class Timestamps:
    """Adds times and policies to what a scan found; `before` of a row is its previous row, or None."""

    policies: Policies
    scanned: Mapping[str, datetime]
    """When each repository was last scanned."""
    held: frozenset[str]
    """Repositories in which a manifest that is not understood may need any other."""
    now: datetime
    adopted: frozenset[str] | None = None
    """The repositories in which policies are assigned; None means all."""

    def tags(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Add times to tags on an executor."""
        for batch in batches:
            rows = [self.tag(row) for row in batch.to_pylist()]
            yield pa.RecordBatch.from_pylist(rows, schema=TAGS_ARROW)

    def images(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Add times to manifests on an executor."""
        for batch in batches:
            rows = [self.image(row) for row in batch.to_pylist()]
            yield pa.RecordBatch.from_pylist(rows, schema=IMAGES_ARROW)

    def tag(self, row: Row) -> dict[str, Any]:
        """Return the row of a tag; `pushed` is when this digest was last pushed under it."""
        repository, tag, before = row["repository"], row["tag"], row["before"]
        found = tag_record(
            row["digest"],
            None
            if before is None
            else TagRecord(before["digest"], before["moved_at"], before["seen_at"], _assigned(before)),
            pushed=row["pushed"],
            scanned=self.scanned.get(repository),
            policy=self._policy(repository, tag),
            now=self.now,
        )
        return {
            "repository": repository,
            "tag": tag,
            "digest": found.digest,
            "moved_at": found.moved_at,
            "seen_at": found.seen_at,
            **_columns(found.assigned),
        }

    def image(self, row: Row) -> dict[str, Any]:
        """Return the row of a manifest, given its state and its newest push."""
        before = row["before"]
        held = row["repository"] in self.held or row["media_type"] not in MEDIA_TYPES
        found = manifest_record(
            ManifestState(bool(row["tagged"]), bool(row["was_tagged"]), bool(row["referenced"]), held),
            None
            if before is None
            else ManifestRecord(
                before["pushed_at"], before["seen_at"], before["untagged_since"], _assigned(before)
            ),
            pushed=row["pushed"],
            untagged=self.policies.the(UNTAGGED) if self._is_adopted(row["repository"]) else None,
            now=self.now,
        )
        return {
            **{field.name: row[field.name] for field in _CONTENT},
            "pushed_at": found.pushed_at,
            "seen_at": found.seen_at,
            "untagged_since": found.untagged_since,
            **_columns(found.assigned),
        }

    def _policy(self, repository: str, tag: str) -> Policy | None:
        """Return the policy that a tag is assigned, None if none."""
        if follows_a_digest(tag) or not self._is_adopted(repository):
            return None
        return self.policies.for_tag(repository, tag)

    def _is_adopted(self, repository: str) -> bool:
        return self.adopted is None or repository in self.adopted


def _assigned(row: Row) -> Assigned:
    return Assigned(*[row[name] for name in _ASSIGNED])


def _columns(assigned: Assigned) -> dict[str, Any]:
    return {name: getattr(assigned, name) for name in _ASSIGNED}
