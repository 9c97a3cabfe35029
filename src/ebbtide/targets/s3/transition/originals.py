"""The version that is to be moved: whether it is still what was planned, and how it leaves its bucket."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ebbtide.core.decision import Outcome
from ebbtide.engine.layout import OnStep
from ebbtide.storage.s3_objects import NULL, Refusal, S3Object, S3Objects
from ebbtide.storage.store import DeleteResult
from ebbtide.targets.s3.model import Versioning

HIDDEN = "hidden"

_SAME_TIME = timedelta(seconds=1)
"""Servers tell the time of one object to the second here and more exactly there."""
_OTHER = "the content is another than was planned"
_UNCOVERS = (
    "versioning is suspended, and the delete marker that hides this version would destroy the null version"
    " below it; enable versioning, or delete one of the two"
)


@dataclass(frozen=True)
class Item:
    """A row of the plan that asks for a transition."""

    key: str
    version: str
    etag: str
    size: int | None
    created: datetime | None
    """When it was written, as it was listed."""
    latest: bool | None
    """Whether it must be the current version, or must not; None if that does not matter."""
    goal: str
    rules: tuple[str, ...]
    wave: int | None
    kept_because: str | None


@dataclass(frozen=True)
class Standing:
    """What became of a planned version."""

    found: S3Object | None
    """None if it is gone."""
    is_current: bool = False
    problem: str = ""
    """Why it is to be left alone."""
    outcome: Outcome = Outcome.CHANGED
    """What to say of it then."""


@dataclass(frozen=True)
class Originals:
    """The versions of the bucket that things are moved out of."""

    objects: S3Objects
    versioning: Versioning
    now: datetime

    def look(self, item: Item, *, may_be_hidden: bool = False) -> Standing:
        """See whether a version is still what was planned; our own delete marker may hide it already."""
        kept = self.versioning is not Versioning.DISABLED
        found = self.objects.describe(item.key, item.version if kept else None)
        if found is None:
            self.objects.check_bucket()
            return Standing(None, problem="it is gone", outcome=Outcome.ABSENT)
        if found.etag != item.etag or item.size not in (None, found.size):
            return Standing(found, problem=_OTHER)
        if item.version == NULL and item.created and found.modified - item.created > _SAME_TIME:
            return Standing(found, problem="it was written again since it was planned")
        if found.legal_hold or (found.retain_until and found.retain_until > self.now):
            return Standing(found, problem="it came under object lock")
        if not kept:
            return Standing(found, is_current=True)
        return self._among_versions(item, found, may_be_hidden=may_be_hidden)

    def remove(self, item: Item, standing: Standing, on_step: OnStep) -> DeleteResult:
        """
        Remove exactly this version, and uncover no older one.

        In a bucket with versions a delete marker takes the place of a current version first, on the condition
        that it is still current; only then the version itself is deleted by its id.
        """
        if self.versioning is Versioning.DISABLED:
            return self.objects.remove_same(item.key, item.etag)
        if standing.is_current:
            hidden = self._hide(item)
            if hidden.outcome is not Outcome.DELETED:
                return hidden
            on_step(HIDDEN)
            if self.versioning is Versioning.SUSPENDED and item.version == NULL:
                # The marker has the id of the null version, so it took its place.
                return self._confirmed(item)
        return self._remove_version(item)

    def is_gone(self, item: Item) -> bool:
        """Tell whether there is nothing any more under the name of a version."""
        kept = self.versioning is not Versioning.DISABLED
        return self.objects.describe(item.key, item.version if kept else None) is None

    def _among_versions(self, item: Item, found: S3Object, *, may_be_hidden: bool) -> Standing:
        current = self.objects.describe(item.key)
        is_current = current is not None and current.version == item.version
        if item.latest is False and is_current:
            return Standing(found, is_current, "it is the current version by now")
        if item.latest and not is_current and not (current is None and may_be_hidden):
            return Standing(found, is_current, "it is not the current version any more")
        suspended = self.versioning is Versioning.SUSPENDED
        if is_current and suspended and item.version != NULL and self.objects.describe(item.key, NULL):
            return Standing(found, is_current, _UNCOVERS, Outcome.DENIED)
        return Standing(found, is_current)

    def _hide(self, item: Item) -> DeleteResult:
        """Put a delete marker over a current version, if it is still that."""
        current = self.objects.describe(item.key)
        if current is None or current.version != item.version:
            return DeleteResult(item.key, Outcome.CHANGED, "it is not the current version any more")
        result = self.objects.remove_same(item.key, item.etag)
        # What shows nothing is hidden: by a request of ours whose answer was lost, or by somebody else.
        return replace(result, outcome=Outcome.DELETED) if result.outcome is Outcome.ABSENT else result

    def _remove_version(self, item: Item) -> DeleteResult:
        # Only the null version can be written again under its id, and only where versioning is suspended.
        rewritable = item.version == NULL and self.versioning is Versioning.SUSPENDED
        try:
            self.objects.remove_version(item.key, item.version, item.etag if rewritable else "")
        except Refusal as no:
            if not (rewritable and no.changed):
                raise
            found = self.objects.describe(item.key, item.version)
            if found is not None and found.etag != item.etag:
                return DeleteResult(item.key, Outcome.CHANGED, _OTHER)
            # AWS compares with the current version, whichever is named: then to have looked must do.
            self.objects.remove_version(item.key, item.version)
        return self._confirmed(item)

    def _confirmed(self, item: Item) -> DeleteResult:
        """Believe in a delete when the version is not found any more."""
        if not self.is_gone(item):
            return DeleteResult(item.key, Outcome.FAILED, "it is still there after its delete")
        return DeleteResult(item.key, Outcome.DELETED)
