"""Decisions, holds and outcomes of items, and the names of collectors and actions."""

from __future__ import annotations

from enum import StrEnum


class Decision(StrEnum):
    """What a plan decides about an item."""

    DUE = "due"
    HELD = "held"


class CollectorName(StrEnum):
    """The collectors of a repository, in the order in which they run."""

    LIFECYCLE = "lifecycle"
    UNCOMMITTED = "uncommitted"
    RETENTION = "retention"


DELETED_REPOSITORY = "deleted"
"""The collector of a repository that was deleted; it runs alone."""


EMPTY_BIN = "bin"
"""The collector of items that have expired in the recycle bin; it runs alone."""


RESTORE = "restore"
"""The collector that the ledger names for a run that restores items."""


DELETE = "delete"
"""The action of a collector that has only one."""


MOVED = "transition"
"""The action that moves an item to another storage class or location; nothing is lost."""


class HoldReason(StrEnum):
    """Why an item that a rule touched is kept."""

    NOT_YET = "not yet due"
    """Every reference will lapse; the last of them has not."""
    OTHER_PATH = "referenced by a path that no rule matches"
    STAGED = "staged, and no rule matches that path and branch"
    TAG = "a tag reaches it"
    BRANCH = "a branch that the rule does not cover reaches it"
    DANGLING = "a commit that no branch reaches holds it, and no default rule covers it"
    OUTSIDE = "its address lies outside the namespace"
    METADATA = "it is metadata of the repository, not data"
    COLLISION = "another address has the same hash, so the two cannot be told apart"
    HEAD = "the head of a branch needs it"
    STAGING = "it is staged on a branch"
    KEPT = "a commit needs it for which no retention is set"
    UPLOADING = "an upload token for it is still open"
    SPELLING = "its address is not spelled as Ebbtide would, so it may name another object"
    RESTORED = "it was restored from the recycle bin"
    FOREIGN = "it lies in the namespace, but Ebbtide did not write it"


class Outcome(StrEnum):
    """What really happened to a planned item."""

    DELETED = "deleted"
    RECYCLED = "recycled"
    """It is gone from its place and lies in the recycle bin."""
    HIDDEN = "hidden"
    """A delete marker hides it: all its bytes are still stored."""
    MOVED = "moved"
    """It is in another storage class or location now."""
    ABSENT = "absent"
    CHANGED = "changed"
    DENIED = "denied"
    FAILED = "failed"
    NOT_REACHED = "not reached"
    """It was not tried, because others had failed before it."""
    RESTORED = "restored"
    """It is back in its place, and no longer in the bin."""
    TAKEN = "taken"
    """Its place has another content now, so it was left in the bin."""

    @property
    def is_gone(self) -> bool:
        """Return True if the object is no longer in its place."""
        return self in {Outcome.DELETED, Outcome.RECYCLED, Outcome.ABSENT}

    @property
    def is_recorded(self) -> bool:
        """Return True if the table of removed items records this outcome."""
        return self.is_gone or self.is_done or self is Outcome.RESTORED

    @property
    def is_done(self) -> bool:
        """Return True if a run did what was planned; only `deleted` frees bytes."""
        return self in {Outcome.DELETED, Outcome.RECYCLED, Outcome.HIDDEN, Outcome.MOVED}

    @property
    def is_final(self) -> bool:
        """Return True if applying again would leave this item alone."""
        return self not in {Outcome.DENIED, Outcome.FAILED, Outcome.NOT_REACHED}
