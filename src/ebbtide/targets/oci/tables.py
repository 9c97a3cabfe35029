"""
The tables of a registry: what a scan has found, with the times that Ebbtide recorded, and what is decided.

A manifest or tag that nobody has assigned anything to has nulls for the assigned values. A date that never
comes is written as NEVER, so that null always means that nobody said anything.
"""

from __future__ import annotations

from pyspark.sql import types as t

from ebbtide.engine.tables.contracts import STRINGS, Contract

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
    optional=("quarantine", "quarantine_since", "delete_requested", "created_at"),
)
"""
One row for each manifest; (`repository`, `digest`) is its key.

`size` is that of the manifest itself. `pushed_at` is null unless somebody saw it happen; `seen_at` is when a
scan first saw the manifest, which is never before it was pushed. `created_at` is when the image says that it
was built, null where nobody had to know that; no scan writes it.
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
    optional=("delete_requested", "copied"),
)
"""
One row for each tag; (`repository`, `tag`) is its key.

`copied` says that a scan gave the assigned values, and no person; it is known when marks were laid over.

`moved_at` is when the tag came to stand for this digest, null unless that was witnessed: by a notification,
or by two scans between which it happened, whose second is its time then. `seen_at` is when a scan first saw
it stand for this digest, which is never before it did.
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
What people assigned, one row for each tag or manifest that they did so to.

An empty `tag` is the manifest itself; with a tag, `digest` is what it stood for at that time (`at`).
`by_system` says that the purge renewed what it found running, which is no choice of a person.
"""

CREATION_DATES = Contract(
    "image_creation_dates", _schema({"digest": t.StringType(), "created_at": t.TimestampType()})
)
"""When images say that they were built, for those that were asked; null where one does not say."""

VERDICTS = Contract(
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

`deadline` is null where nobody can say it, or where it never comes. `size` counts every blob once: for a
manifest that stays if there is one, else for one that is recycled, else for one that is deleted. `unmatched`
says that no assign rule matches it or something that keeps it: if it goes, it would stay with `keep`.
"""
