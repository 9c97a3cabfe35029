"""What is kept of a registry besides its policies: marks, roles, the log, notifications, the last scan."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from ebbtide.core.documents import nearest
from ebbtide.core.errors import BadInput
from ebbtide.core.instant import EPOCH, format_instant
from ebbtide.targets.oci.client.names import check_digest, check_repository, check_tag
from ebbtide.targets.oci.model import Quarantine
from ebbtide.targets.oci.policies.policy import Assigned

EVERYWHERE = "*"
"""In place of a registry's uid: all registries."""


class Role(StrEnum):
    """What a user may do (requirement 11.0)."""

    POLICY_WRITER = "purge-policy-writer"
    """Change policies, assign rules and roles."""
    IMAGE_WRITER = "image-purge-writer"
    """Change images: assign, pin, unpin, quarantine, delete, restore, empty the bin."""


def read_role(text: str) -> Role:
    """Read the name of a role; names with the prefix ``acr-``, as in the specification, are the same."""
    try:
        return Role(text.strip().casefold().removeprefix("acr-"))
    except ValueError:
        raise BadInput(f"{text!r} is not a role", fix=nearest(text, [str(role) for role in Role])) from None


@dataclass(frozen=True)
class Target:
    """A tag with its current digest, or a manifest: what can have a mark."""

    repository: str
    tag: str
    """Empty for a manifest."""
    digest: str

    def __str__(self) -> str:
        """Return it as in the log: a tag by its name, a manifest by its digest."""
        return f"{self.repository}:{self.tag}" if self.tag else f"{self.repository}@{self.digest}"

    @property
    def key(self) -> tuple[str, str, str]:
        """Return its key; the digest is part of it only for a manifest, because tags move."""
        return (self.repository, self.tag, "" if self.tag else self.digest)

    def checked(self) -> Target:
        """Return it, or raise BadInput: names go into tables that other machines read."""
        check_repository(self.repository)
        check_digest(self.digest)
        if self.tag:
            check_tag(self.tag)
        return self


@dataclass(frozen=True)
class Mark:
    """What users assigned to a tag or manifest, and the state of its quarantine."""

    target: Target
    assigned: Assigned = field(default_factory=Assigned)
    quarantine: Quarantine | None = None
    at: datetime = EPOCH
    """When it was last changed."""
    by: str = ""
    """Who changed it."""
    earlier: Assigned | None = None
    """The assignment from before a failed check; it is restored if the check passes later."""

    @property
    def is_empty(self) -> bool:
        """Return True if nothing is assigned."""
        return self == Mark(self.target, at=self.at, by=self.by)

    def is_pinned(self, now: datetime) -> bool:
        """Return True if a pin holds it now; a pin whose date has come does not."""
        date = self.assigned.expires_at
        return self.assigned.can_delete_prior is False and (date is None or date > now)

    def plain(self) -> dict[str, Any]:
        """Return it as plain data, for the log and for users."""
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
    """A mark before and after a change; None if there is none."""

    target: Target
    before: Mark | None
    after: Mark | None


class LogKind(StrEnum):
    """The subject of a log entry."""

    POLICY = "policy"
    IMAGE = "image"
    ROLE = "role"
    PURGE = "purge"


@dataclass(frozen=True)
class LogEntry:
    """Who did what and when, with the values before and after; or what was refused and why."""

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
    """Why it was refused; empty if it was done."""


@dataclass(frozen=True)
class Grant:
    """The role of a user in a registry or, if the uid is ``*``, in all."""

    uid: str
    member: str
    role: Role
    at: datetime
    by: str


class Action(StrEnum):
    """The action of a notification."""

    PUSH = "push"
    DELETE = "delete"


@dataclass(frozen=True)
class Event:
    """A notification of a registry; it gets a growing id when it is recorded."""

    action: Action
    repository: str
    tag: str
    """Empty if it is about the manifest alone."""
    digest: str
    """Empty if the registry did not send it, as for a deleted tag."""
    at: datetime
    id: int = 0


@dataclass(frozen=True)
class Snapshot:
    """The last scan of a registry: its folder and its contents."""

    folder: str
    scanned_at: datetime
    manifests: int
    tags: int
    last_event: int = 0
    """The id of the last notification that it includes."""


def _moment(at: datetime | None) -> str | None:
    return None if at is None else format_instant(at)
