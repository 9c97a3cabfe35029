"""The clocks applied to rows: what was found is dated by what was known and told of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from ebbtide.targets.oci.documents import MEDIA_TYPES
from ebbtide.targets.oci.graph import follows_a_digest
from ebbtide.targets.oci.inventory.clocks import (
    ManifestRecord,
    Standing,
    TagRecord,
    manifest_record,
    tag_record,
)
from ebbtide.targets.oci.inventory.columns import ASSIGNED_ARROW, FOUND_ARROW, UTC_TIME
from ebbtide.targets.oci.policies.policy import UNTAGGED, Assigned, Policies, Policy

Row = Mapping[str, Any]

_ASSIGNED = [name for name, _ in ASSIGNED_ARROW]
_CONTENT = [field for field in FOUND_ARROW if field.name not in ("missing", "fresh")]
TAG_MEMORY = ["digest", "moved_at", "seen_at", *_ASSIGNED]
"""What is asked of a tag's row in the snapshot before."""
IMAGE_MEMORY = ["pushed_at", "seen_at", "untagged_since", *_ASSIGNED]
"""What is asked of a manifest's row in the snapshot before."""
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
class Dater:
    """Dates what a scan has found; `before` of a row is what the snapshot before says of it, or None."""

    policies: Policies
    scanned: Mapping[str, datetime]
    """When each repository was last scanned."""
    held: frozenset[str]
    """Repositories in which something may need any manifest."""
    now: datetime
    adopted: frozenset[str] | None = None
    """The repositories in which policies are assigned; None is all."""

    def tags(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Date tags on an executor."""
        for batch in batches:
            rows = [self.tag(row) for row in batch.to_pylist()]
            yield pa.RecordBatch.from_pylist(rows, schema=TAGS_ARROW)

    def images(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Date manifests on an executor."""
        for batch in batches:
            rows = [self.image(row) for row in batch.to_pylist()]
            yield pa.RecordBatch.from_pylist(rows, schema=IMAGES_ARROW)

    def tag(self, row: Row) -> dict[str, Any]:
        """Date a tag; `pushed` is when this digest was pushed under it, if that was the last push of it."""
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
        """Date a manifest: whether it is tagged, was tagged, is led to, and when it was pushed is with it."""
        before = row["before"]
        held = row["repository"] in self.held or row["media_type"] not in MEDIA_TYPES
        found = manifest_record(
            Standing(bool(row["tagged"]), bool(row["was_tagged"]), bool(row["led"]), held),
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
        """Give the policy that a tag gets, None if it gets none."""
        if follows_a_digest(tag) or not self._is_adopted(repository):
            return None
        return self.policies.for_tag(repository, tag)

    def _is_adopted(self, repository: str) -> bool:
        return self.adopted is None or repository in self.adopted


def _assigned(row: Row) -> Assigned:
    return Assigned(*[row[name] for name in _ASSIGNED])


def _columns(assigned: Assigned) -> dict[str, Any]:
    return {name: getattr(assigned, name) for name in _ASSIGNED}
