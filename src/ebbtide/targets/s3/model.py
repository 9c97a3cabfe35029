"""What a bucket holds, and what a rule can make of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from ebbtide.targets.s3.rules.storage_classes import STANDARD


class Versioning(StrEnum):
    """Whether a bucket keeps what was overwritten."""

    ENABLED = "Enabled"
    SUSPENDED = "Suspended"
    DISABLED = "Disabled"


class Action(StrEnum):
    """What lifecycle does to one version, delete marker or upload."""

    NONE = "none"
    EXPIRE = "expire"
    """Of a current version: a delete marker is added, or replaces it, or it is deleted; see Versioning."""
    DELETE_VERSION = "delete_version"
    REMOVE_DELETE_MARKER = "remove_delete_marker"
    TRANSITION = "transition"
    ABORT_UPLOAD = "abort_upload"


class Hold(StrEnum):
    """What keeps an item though a rule says that its time has come."""

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
    """One version of an object, or a delete marker, as a store lists it; None is what is not known."""

    key: str
    version_id: str = "null"
    last_modified: datetime | None = None
    is_latest: bool | None = None
    """None: the newest of its key is."""
    is_delete_marker: bool = False
    size: int | None = None
    storage_class: str = STANDARD
    tags: Mapping[str, str] | None = field(default=None)
    """None: nobody asked. Then a rule that wants tags does not match."""
    etag: str | None = None
    legal_hold: bool = False
    retain_until: datetime | None = None
    replication_status: str | None = None
    restoring: bool = False
    restored_until: datetime | None = None
    """Until when it is held because it was restored from the recycle bin."""


@dataclass(frozen=True)
class Upload:
    """A multipart upload that was begun and not completed."""

    key: str
    upload_id: str
    initiated: datetime | None = None


@dataclass(frozen=True)
class Protected:
    """A prefix that no rule reaches, and what is there: a lake."""

    prefix: str
    holder: str


@dataclass(frozen=True)
class Verdict:
    """What is to be done with one item now, by which rule, since when, or what keeps it."""

    action: Action = Action.NONE
    storage_class: str | None = None
    """Where a transition goes."""
    rule_id: str | None = None
    due: datetime | None = None
    """When the action was or, for none, the next one will be due; None if no rule says so."""
    held_by: Hold | None = None
