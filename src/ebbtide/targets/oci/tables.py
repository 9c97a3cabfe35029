"""
The tables of a registry: what a scan has found, with the times that Ebbtide recorded, and the verdicts.

A manifest or tag without assigned values has nulls for them. A date that never comes is written as NEVER, so
that null always means that nothing was assigned.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import types as t

from ebbtide.engine.tables.contracts import STRINGS, Contract
from ebbtide.targets.oci.model import Image, Quarantine, QuarantineState, Tag
from ebbtide.targets.oci.policies.policy import Assigned

BLOBS = t.ArrayType(
    t.StructType([t.StructField("digest", t.StringType()), t.StructField("size", t.LongType())]),
    containsNull=False,
)

_ASSIGNED = {
    "policy": t.StringType(),
    "expires_at": t.TimestampType(),
    "can_delete_prior": t.BooleanType(),
    "recycle": t.BooleanType(),
}


def _schema(columns: dict[str, t.DataType]) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in columns.items()])


IMAGES = Contract(
    "images",
    _schema(
        {
            "repository": t.StringType(),
            "digest": t.StringType(),
            "media_type": t.StringType(),
            "size": t.LongType(),
            "children": STRINGS,
            "subject": t.StringType(),
            "blobs": BLOBS,
            "pushed_at": t.TimestampType(),
            "seen_at": t.TimestampType(),
            "untagged_since": t.TimestampType(),
            "quarantine": t.StringType(),
            "quarantine_since": t.TimestampType(),
            **_ASSIGNED,
            "delete_requested": t.BooleanType(),
            "created_at": t.TimestampType(),
        }
    ),
    optional=dict.fromkeys(("quarantine", "quarantine_since", "delete_requested", "created_at"), "null"),
)
"""
One row per manifest; (`repository`, `digest`) is its key.

`size` is that of the manifest itself. `pushed_at` is null unless the push was witnessed; `seen_at` is when a
scan first saw the manifest, which is never before it was pushed. `created_at` is when the image was built
according to its configuration, null if it was not needed; scans do not write it.
"""

TAGS = Contract(
    "image_tags",
    _schema(
        {
            "repository": t.StringType(),
            "tag": t.StringType(),
            "digest": t.StringType(),
            "moved_at": t.TimestampType(),
            "seen_at": t.TimestampType(),
            **_ASSIGNED,
            "delete_requested": t.BooleanType(),
            "copied": t.BooleanType(),
        }
    ),
    optional=dict.fromkeys(("delete_requested", "copied"), "null"),
)
"""
One row per tag; (`repository`, `tag`) is its key.

`copied` is true if a scan assigned the values, and not a person; it is known once marks are applied.

`moved_at` is when the tag came to stand for this digest, null unless that was witnessed: by a notification,
or by two scans between which it happened, and then it is the time of the second. `seen_at` is when a scan
first saw it stand for this digest, which is never before it did.
"""

MARKS = Contract(
    "image_marks",
    _schema(
        {
            "repository": t.StringType(),
            "tag": t.StringType(),
            "digest": t.StringType(),
            **_ASSIGNED,
            "quarantine": t.StringType(),
            "quarantine_since": t.TimestampType(),
            "at": t.TimestampType(),
            "by_system": t.BooleanType(),
        }
    ),
)
"""
What people assigned, one row per marked tag or manifest.

An empty `tag` is the manifest itself; with a tag, `digest` is what it stood for at that time (`at`).
`by_system` is true if the purge renewed what it found running, which is not the choice of a person.
"""

CREATION_DATES = Contract(
    "image_creation_dates", _schema({"digest": t.StringType(), "created_at": t.TimestampType()})
)
"""When images were built, for those whose configuration was read; null if it has no date."""

EVENTS = Contract(
    "image_events",
    _schema(
        {
            "action": t.StringType(),
            "repository": t.StringType(),
            "tag": t.StringType(),
            "digest": t.StringType(),
            "at": t.TimestampType(),
        }
    ),
)
"""What registries notified: see :class:`ebbtide.targets.oci.inventory.events.Event`."""

IMAGE_VERDICTS = Contract(
    "image_verdicts",
    _schema(
        {
            "repository": t.StringType(),
            "digest": t.StringType(),
            "tag": t.StringType(),
            "decision": t.StringType(),
            "policy": t.StringType(),
            "deadline": t.TimestampType(),
            "held_by": STRINGS,
            "size": t.LongType(),
            "created": t.TimestampType(),
            "unmatched": t.BooleanType(),
        }
    ),
)
"""
What becomes of each tag and, with an empty `tag`, of each manifest.

`deadline` is null if it is unknown or never comes. `size` counts every blob once: for a manifest that stays
if there is one, else for one that is recycled, else for one that is deleted. `unmatched` is true if no assign
rule matches it or something that keeps it: it would stay with `keep`.
"""


Row = Mapping[str, Any]


def tag_of(row: Row) -> Tag:
    """Return a row of TAGS as a Tag."""
    return Tag(
        row["tag"],
        _utc(row["moved_at"]),
        assigned_of(row),
        delete_requested=bool(row["delete_requested"]),
        seen_at=_utc(row["seen_at"]),
        copied=bool(row.get("copied")),
    )


def image_of(row: Row, tags: tuple[Tag, ...] = ()) -> Image:
    """Return a row of IMAGES as an Image; its size is that of the manifest with all its blobs."""
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
    """Return what was assigned to a tag or manifest."""
    return Assigned(row["policy"], _utc(row["expires_at"]), row["can_delete_prior"], row["recycle"])


def _utc(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.astimezone(UTC)
