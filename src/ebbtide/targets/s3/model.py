"""The items of a bucket (versions, delete markers, uploads), and what lifecycle rules do with them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from ebbtide.core.errors import BadInput
from ebbtide.targets.s3.rules.storage_classes import STANDARD

NULL = "null"
"""The id of a version that was written without versioning; only this one can be replaced."""


VERSION, MARKER, UPLOAD = "version", "marker", "upload"
"""The kinds of items in the inventory table."""


BIN_ROOT = "ebbtide-recycle/"
"""The prefix of a bucket's recycle bin, which no rule and no other run reaches."""


def is_in_bin(key: str) -> bool:
    """Return True if a key is in the recycle bin."""
    return key.startswith(BIN_ROOT)


class Versioning(StrEnum):
    """Whether a bucket keeps overwritten and deleted objects as noncurrent versions."""

    ENABLED = "Enabled"
    SUSPENDED = "Suspended"
    DISABLED = "Disabled"


class Action(StrEnum):
    """What lifecycle rules do with a version, delete marker or upload."""

    NONE = "none"
    EXPIRE = "expire"
    """A current version gets a delete marker, is replaced by one, or is deleted, depending on Versioning."""
    DELETE_VERSION = "delete_version"
    REMOVE_DELETE_MARKER = "remove_delete_marker"
    TRANSITION = "transition"
    ABORT_UPLOAD = "abort_upload"


class Hold(StrEnum):
    """Why an item is held although an action is due."""

    LEGAL_HOLD = "a legal hold"
    RETENTION = "object lock retention"
    REPLICATION = "its replication is pending"
    RESTORE = "it is being restored"
    RESTORED = "it was restored from the recycle bin"
    LAKE = "it belongs to a lake"
    UNKNOWN_TIME = "its time is unknown"
    UNKNOWN_RANK = "its place among the versions is unknown"


@dataclass(frozen=True)
class Version:
    """A version of an object or a delete marker, as a store lists it; None means unknown."""

    key: str
    version_id: str = "null"
    last_modified: datetime | None = None
    is_latest: bool | None = None
    """None: the newest version of the key is the latest."""
    is_delete_marker: bool = False
    size: int | None = None
    storage_class: str = STANDARD
    tags: Mapping[str, str] | None = field(default=None)
    """None: the tags were not read. Rules with tags then do not match."""
    etag: str | None = None
    legal_hold: bool = False
    retain_until: datetime | None = None
    replication_status: str | None = None
    restoring: bool = False
    restored_until: datetime | None = None
    """The end of its hold after it was restored from the recycle bin."""


@dataclass(frozen=True)
class Upload:
    """An incomplete multipart upload."""

    key: str
    upload_id: str
    initiated: datetime | None = None


@dataclass(frozen=True)
class Protected:
    """A prefix where everything is held, and its holder: a lake."""

    prefix: str
    holder: str


@dataclass(frozen=True)
class Verdict:
    """What the rules do with one item now, by which rule and since when, or why it is held."""

    action: Action = Action.NONE
    storage_class: str | None = None
    """The storage class or location that a transition goes to."""
    rule_id: str | None = None
    due: datetime | None = None
    """When the action was due; without an action, when the next one will be; None if there is none."""
    held_by: Hold | None = None


# Other stores allow more names than AWS does, but none allows a slash or a blank.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}")


def bucket_url(bucket: str) -> str:
    """
    Return the URL of a bucket, given its URL or its name.

    >>> bucket_url("logs")
    's3://logs'
    """
    name = bucket.removeprefix("s3://").removesuffix("/")
    if not _NAME.fullmatch(name):
        raise BadInput(
            f"{bucket!r} is not the name of a bucket",
            why="rules belong to a whole bucket; a prefix is part of a rule",
            fix="write s3://NAME",
        )
    return f"s3://{name}"


def bucket_name(url: str) -> str:
    """Return the name in the URL of a bucket."""
    return bucket_url(url).removeprefix("s3://")


def frees_bytes(versioning: Versioning, action: str = "action", version: str = "version") -> str:
    """
    Return a Spark expression that is true if an action frees the bytes of an item.

    Expiring an object deletes it if the bucket is not versioned. With versioning enabled it only adds a
    delete marker. With versioning suspended the marker is the null version and destroys an older one.
    """
    stays = f"{action} <> '{Action.TRANSITION}'"
    if versioning is Versioning.DISABLED:
        return stays
    replaces = f" or {version} = '{NULL}'" if versioning is Versioning.SUSPENDED else ""
    return f"{stays} and ({action} <> '{Action.EXPIRE}'{replaces})"
