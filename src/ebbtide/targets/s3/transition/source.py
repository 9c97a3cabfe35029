"""
The version to be moved: whether it is still as planned, its removal, and a change of its class in place.

S3's own lifecycle changes the storage class of any version. A client can only copy an object onto itself,
which in a versioned bucket makes a new version with a new age. There this is refused with an explanation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from ebbtide.core.decision import Outcome
from ebbtide.engine.run_folder import OnStep
from ebbtide.storage.s3_copy import PartWriter, Sizes, copied_parts, copy_source, redirection
from ebbtide.storage.s3_objects import NULL, About, Refusal, S3Object, S3Objects
from ebbtide.storage.store import DeleteResult
from ebbtide.targets.s3.model import Versioning

HIDDEN = "hidden"

_SAME_TIME = timedelta(seconds=1)
"""Servers report the time of an object with different precision in different answers."""
_OTHER = "the content differs from the plan"
_UNCOVERS = (
    "versioning is suspended, and the delete marker over this version would destroy the null version below"
    " it; enable versioning, or delete one of the two"
)


@dataclass(frozen=True)
class TransitionItem:
    """A row of the plan with the action `transition`."""

    key: str
    version: str
    etag: str
    size: int | None
    created: datetime | None
    """When it was written, as the listing said."""
    latest: bool | None
    """Whether it must be the current version; None if that does not matter."""
    goal: str
    rules: tuple[str, ...]
    batch: int | None
    kept_because: str | None


@dataclass(frozen=True)
class SourceState:
    """The state of a planned version in the bucket now."""

    found: S3Object | None
    """None if it is gone."""
    is_current: bool = False
    problem: str = ""
    """Why it must be left alone."""
    outcome: Outcome = Outcome.CHANGED
    """The outcome in that case."""


@dataclass(frozen=True)
class SourceBucket:
    """The bucket that versions are moved out of."""

    objects: S3Objects
    versioning: Versioning
    now: datetime

    def look(self, item: TransitionItem, *, may_be_hidden: bool = False) -> SourceState:
        """Return the state of a version; our own delete marker may hide it already."""
        kept = self.versioning is not Versioning.DISABLED
        found = self.objects.describe(item.key, item.version if kept else None)
        if found is None:
            self.objects.check_bucket()
            return SourceState(None, problem="it is gone", outcome=Outcome.ABSENT)
        if found.etag != item.etag or item.size not in (None, found.size):
            return SourceState(found, problem=_OTHER)
        if item.version == NULL and item.created and found.modified - item.created > _SAME_TIME:
            return SourceState(found, problem="it was written again since the plan")
        if found.legal_hold or (found.retain_until and found.retain_until > self.now):
            return SourceState(found, problem="it is under object lock now")
        if not kept:
            return SourceState(found, is_current=True)
        return self._among_versions(item, found, may_be_hidden=may_be_hidden)

    def remove(self, item: TransitionItem, standing: SourceState, on_step: OnStep) -> DeleteResult:
        """
        Remove exactly this version, and make no older one current.

        In a versioned bucket a delete marker first hides a current version, on the condition that it is still
        current. Only then the version is deleted by its id.
        """
        if self.versioning is Versioning.DISABLED:
            return self.objects.remove_same(item.key, item.etag)
        if standing.is_current:
            hidden = self._hide(item)
            if hidden.outcome is not Outcome.DELETED:
                return hidden
            on_step(HIDDEN)
            if self.versioning is Versioning.SUSPENDED and item.version == NULL:
                # The marker has the id of the null version, so it replaced it.
                return self._confirmed(item)
        return self._remove_version(item)

    def is_gone(self, item: TransitionItem) -> bool:
        """Return True if a version is gone."""
        kept = self.versioning is not Versioning.DISABLED
        return self.objects.describe(item.key, item.version if kept else None) is None

    def _among_versions(self, item: TransitionItem, found: S3Object, *, may_be_hidden: bool) -> SourceState:
        current = self.objects.describe(item.key)
        is_current = current is not None and current.version == item.version
        if item.latest is False and is_current:
            return SourceState(found, is_current, "it is the current version now")
        if item.latest and not is_current and not (current is None and may_be_hidden):
            return SourceState(found, is_current, "it is no longer the current version")
        suspended = self.versioning is Versioning.SUSPENDED
        if is_current and suspended and item.version != NULL and self.objects.describe(item.key, NULL):
            return SourceState(found, is_current, _UNCOVERS, Outcome.DENIED)
        return SourceState(found, is_current)

    def _hide(self, item: TransitionItem) -> DeleteResult:
        """Put a delete marker over a version if it is still current."""
        current = self.objects.describe(item.key)
        if current is None or current.version != item.version:
            return DeleteResult(item.key, Outcome.CHANGED, "it is no longer the current version")
        result = self.objects.remove_same(item.key, item.etag)
        # A missing object is hidden: by our request whose answer was lost, or by another client.
        return replace(result, outcome=Outcome.DELETED) if result.outcome is Outcome.ABSENT else result

    def _remove_version(self, item: TransitionItem) -> DeleteResult:
        # Only the null version can be overwritten under its id, and only if versioning is suspended.
        rewritable = item.version == NULL and self.versioning is Versioning.SUSPENDED
        try:
            self.objects.remove_version(item.key, item.version, item.etag if rewritable else "")
        except Refusal as no:
            if not (rewritable and no.changed):
                raise
            found = self.objects.describe(item.key, item.version)
            if found is not None and found.etag != item.etag:
                return DeleteResult(item.key, Outcome.CHANGED, _OTHER)
            # AWS compares the ETag with the current version, not the named one. The check just made must do.
            self.objects.remove_version(item.key, item.version)
        return self._confirmed(item)

    def _confirmed(self, item: TransitionItem) -> DeleteResult:
        """Report a delete only if the version is no longer found."""
        if not self.is_gone(item):
            return DeleteResult(item.key, Outcome.FAILED, "it is still there after its delete")
        return DeleteResult(item.key, Outcome.DELETED)


CHANGED = "class changed"

_NEW_VERSION = (
    "only the store's own lifecycle can change the class of a version; a copy would be a new version with"
    " a new age. Use a location in the rule (bucket.locations in ebbtide.toml), or the store's lifecycle"
)


def change_class(
    originals: SourceBucket, item: TransitionItem, sizes: Sizes, on_step: OnStep, *, again: bool
) -> DeleteResult:
    """Copy an object onto itself with another storage class, if it is still the planned one."""
    if not _is_in_place(originals.versioning, item):
        return DeleteResult(item.key, Outcome.DENIED, _NEW_VERSION)
    now = originals.look(item)
    if now.found is None or now.problem:
        return DeleteResult(item.key, now.outcome, now.problem)
    if now.found.storage_class == item.goal:
        outcome = Outcome.DELETED if again else Outcome.ABSENT
        return DeleteResult(item.key, outcome, f"now {item.goal}" if again else f"it is {item.goal} already")
    return _copy_onto_itself(originals, item, now.found, sizes, on_step)


def _is_in_place(versioning: Versioning, item: TransitionItem) -> bool:
    """Return True if a copy onto itself replaces the object instead of adding a version."""
    if versioning is Versioning.DISABLED:
        return True
    return versioning is Versioning.SUSPENDED and item.version == NULL and item.latest is True


def _copy_onto_itself(
    originals: SourceBucket, item: TransitionItem, found: S3Object, sizes: Sizes, on_step: OnStep
) -> DeleteResult:
    objects = originals.objects
    try:
        if found.size <= sizes.one_copy:
            _in_one(objects, found, item.goal)
        else:
            _in_parts(objects, found, item.goal, sizes)
    except Refusal as no:
        if no.outcome is Outcome.DENIED:
            why = f"the store does not change the class of an object: {no.what}; {no.why}"
            return DeleteResult(item.key, Outcome.DENIED, why)
        raise
    on_step(CHANGED)
    after = objects.describe(item.key)
    if after is None or after.size != found.size or after.storage_class != item.goal:
        shown = "nothing" if after is None else f"{after.size} bytes, {after.storage_class}"
        return DeleteResult(item.key, Outcome.FAILED, f"after the change the store shows {shown}")
    return DeleteResult(item.key, Outcome.DELETED, f"now {item.goal}")


def _in_one(objects: S3Objects, found: S3Object, goal: str) -> None:
    """Copy in one request. The server copies metadata and tags, so that concurrent changes are kept."""
    more: Any = {**redirection(found), **_kept_in(found, goal)}
    objects.ask(
        "copy onto itself",
        lambda: objects.client.copy_object(
            Bucket=objects.bucket,
            Key=found.key,
            MetadataDirective="COPY",
            TaggingDirective="COPY",
            **copy_source(objects, found),
            **more,
        ),
    )


def _in_parts(objects: S3Objects, found: S3Object, goal: str, sizes: Sizes) -> None:
    """Copy in parts, above 5 GiB; complete only if the object is still the one that was copied."""
    kept = About(found.headers, found.metadata, objects.tags(found))
    condition = {"IfMatch": f'"{found.etag}"'}
    writer = PartWriter(objects, found.key, kept, condition, _kept_in(found, goal))
    writer.write(lambda: copied_parts(writer, copy_source(objects, found), found.size, sizes))


def _kept_in(found: S3Object, goal: str) -> dict[str, Any]:
    """Return the options for another class and the same encryption key, instead of the default one."""
    return {**found.kept_as, "StorageClass": goal}
