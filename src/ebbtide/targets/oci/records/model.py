"""What is kept of a registry besides its policies: marks, roles, the log, notifications, the last scan."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from ebbtide.core.documents import nearest
from ebbtide.core.errors import BadInput
from ebbtide.core.instant import EPOCH, format_instant
from ebbtide.targets.oci.model import Quarantine
from ebbtide.targets.oci.names import check_digest, check_repository, check_tag
from ebbtide.targets.oci.policies.policy import Assigned

EVERYWHERE = "*"
"""In place of a registry's uid: all registries."""


class Role(StrEnum):
    """What somebody may do (requirement 11.0)."""

    POLICY_WRITER = "purge-policy-writer"
    """Change policies, assign rules and roles."""
    IMAGE_WRITER = "image-purge-writer"
    """Change images: assign, pin, unpin, quarantine, delete, restore, empty the bin."""


def read_role(text: str) -> Role:
    """Read the name of a role; the seed's own names, with ``acr-`` before them, are the same."""
    try:
        return Role(text.strip().casefold().removeprefix("acr-"))
    except ValueError:
        raise BadInput(f"{text!r} is no role", fix=nearest(text, [str(role) for role in Role])) from None


@dataclass(frozen=True)
class Target:
    """What can be marked: a tag, with the digest that it stands for now, or a manifest."""

    repository: str
    tag: str
    """Empty: the manifest itself."""
    digest: str

    def __str__(self) -> str:
        """Write it as the log does: a tag by its name, a manifest by its digest."""
        return f"{self.repository}:{self.tag}" if self.tag else f"{self.repository}@{self.digest}"

    @property
    def key(self) -> tuple[str, str, str]:
        """Give what makes it one thing: the digest counts for a manifest alone, as tags move."""
        return (self.repository, self.tag, "" if self.tag else self.digest)

    def checked(self) -> Target:
        """Give it back, or raise BadInput: names go into tables that other machines read."""
        check_repository(self.repository)
        check_digest(self.digest)
        if self.tag:
            check_tag(self.tag)
        return self


@dataclass(frozen=True)
class Mark:
    """What people assigned to a tag or manifest, and the state of its quarantine, since when."""

    target: Target
    assigned: Assigned = field(default_factory=Assigned)
    quarantine: Quarantine | None = None
    at: datetime = EPOCH
    """When it was last changed."""
    by: str = ""
    """Who changed it."""
    earlier: Assigned | None = None
    """What had been assigned when it failed its check; it comes back if it passes after all."""

    @property
    def is_empty(self) -> bool:
        """Tell that it says nothing."""
        return self == Mark(self.target, at=self.at, by=self.by)

    def is_pinned(self, now: datetime) -> bool:
        """Tell that it must not go now: a pin whose date has come holds nothing any more."""
        date = self.assigned.expires_at
        return self.assigned.can_delete_prior is False and (date is None or date > now)

    def plain(self) -> dict[str, Any]:
        """Write what it says as plain data, for the log and for people."""
        state = self.quarantine
        return {
            "digest": self.target.digest,
            "policy": self.assigned.policy,
            "expires_at": _moment(self.assigned.expires_at),
            "can_delete_prior": self.assigned.can_delete_prior,
            "recycle": self.assigned.recycle,
            "quarantine": None if state is None else str(state.state),
            "quarantine_since": None if state is None else _moment(state.since),
        }


@dataclass(frozen=True)
class Change:
    """A mark before and after; before it there may have been none, and after it none may be left."""

    target: Target
    before: Mark | None
    after: Mark | None


class LogKind(StrEnum):
    """What an entry of the log is about."""

    POLICY = "policy"
    IMAGE = "image"
    ROLE = "role"
    PURGE = "purge"


@dataclass(frozen=True)
class LogEntry:
    """Who did what and when, with the values before and after; or what was refused, and why."""

    id: int
    at: datetime
    by: str
    kind: LogKind
    subject: str
    """The policy, the image (``repository:tag`` or ``repository@digest``), the user, or the run."""
    what: str
    before: Any = None
    after: Any = None
    refused: str = ""
    """Why it was not done; empty if it was."""


@dataclass(frozen=True)
class Grant:
    """Somebody has a role in a registry or, where the uid is ``*``, in all."""

    uid: str
    member: str
    role: Role
    at: datetime
    by: str


class Action(StrEnum):
    """What a registry notified of."""

    PUSH = "push"
    DELETE = "delete"


@dataclass(frozen=True)
class Event:
    """A notification of a registry; its id is given when it is recorded, and grows."""

    action: Action
    repository: str
    tag: str
    """Empty if it is about the manifest alone."""
    digest: str
    """Empty where the registry did not say it, as of a tag that was deleted."""
    at: datetime
    id: int = 0


@dataclass(frozen=True)
class Snapshot:
    """Where the last scan of a registry is, and what is in it."""

    folder: str
    scanned_at: datetime
    manifests: int
    tags: int
    last_event: int = 0
    """The id of the last notification that is folded in."""


def _moment(at: datetime | None) -> str | None:
    return None if at is None else format_instant(at)
