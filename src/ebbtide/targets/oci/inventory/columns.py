"""The tables that the steps of a scan hand to each other, as Spark and Arrow have them."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as t

from ebbtide.engine.tables.contracts import Contract

LISTED = "repository string, tag string"
"""What the lists of tags say; a repository that has no list, because it is not there, has a null."""
LISTED_ARROW = pa.schema([("repository", pa.string()), ("tag", pa.string())])

RESOLVED = "repository string, tag string, listed boolean, digest string"
"""What tags stand for, and whether the list of tags has them."""
RESOLVED_ARROW = pa.schema(
    [("repository", pa.string()), ("tag", pa.string()), ("listed", pa.bool_()), ("digest", pa.string())]
)

WANTED = "repository string, digest string"
"""Manifests to look for."""
WANTED_ARROW = pa.schema([("repository", pa.string()), ("digest", pa.string())])

FOUND = (
    "repository string, digest string, media_type string, size bigint, children array<string>,"
    " subject string, blobs array<struct<digest: string, size: bigint>>, missing boolean, fresh boolean"
)
"""What was found of a manifest; `fresh` if it was asked for in this scan and not known from before."""
FOUND_ARROW = pa.schema(
    [
        ("repository", pa.string()),
        ("digest", pa.string()),
        ("media_type", pa.string()),
        ("size", pa.int64()),
        ("children", pa.list_(pa.string())),
        ("subject", pa.string()),
        ("blobs", pa.list_(pa.struct([("digest", pa.string()), ("size", pa.int64())]))),
        ("missing", pa.bool_()),
        ("fresh", pa.bool_()),
    ]
)

EVENTS = Contract(
    "image_events",
    t.StructType(
        [
            t.StructField("action", t.StringType()),
            t.StructField("repository", t.StringType()),
            t.StructField("tag", t.StringType()),
            t.StructField("digest", t.StringType()),
            t.StructField("at", t.TimestampType()),
        ]
    ),
)
"""What registries told: see :class:`ebbtide.targets.oci.inventory.events.Event`."""

UTC_TIME = pa.timestamp("us", tz="UTC")
ASSIGNED_ARROW = (
    ("policy", pa.string()),
    ("expires_at", UTC_TIME),
    ("can_delete_prior", pa.bool_()),
    ("recycle", pa.bool_()),
)
