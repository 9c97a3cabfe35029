"""Rows of a registry's tables as the model has them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ebbtide.targets.oci.model import Image, Quarantine, QuarantineState, Tag
from ebbtide.targets.oci.policies.policy import Assigned

Row = Mapping[str, Any]


def tag_of(row: Row) -> Tag:
    """Read a row of TAGS."""
    return Tag(
        row["tag"],
        _utc(row["moved_at"]),
        assigned_of(row),
        delete_requested=bool(row["delete_requested"]),
        seen_at=_utc(row["seen_at"]),
        copied=bool(row.get("copied")),
    )


def image_of(row: Row, tags: tuple[Tag, ...] = ()) -> Image:
    """Read a row of IMAGES; its size is that of the manifest with all its blobs."""
    state = row["quarantine"]
    return Image(
        row["repository"],
        row["digest"],
        tags=tags,
        children=tuple(row["children"] or ()),
        subject=row["subject"] or None,
        pushed_at=_utc(row["pushed_at"]),
        seen_at=_utc(row["seen_at"]),
        untagged_since=_utc(row["untagged_since"]),
        quarantine=Quarantine(QuarantineState(state), _utc(row["quarantine_since"])) if state else None,
        assigned=assigned_of(row),
        delete_requested=bool(row["delete_requested"]),
        media_type=row["media_type"],
        created_at=_utc(row.get("created_at")),
        size=(row["size"] or 0) + sum(blob["size"] or 0 for blob in row["blobs"] or ()),
    )


def assigned_of(row: Row) -> Assigned:
    """Read what was assigned to a tag or manifest."""
    return Assigned(row["policy"], _utc(row["expires_at"]), row["can_delete_prior"], row["recycle"])


def _utc(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.astimezone(UTC)
