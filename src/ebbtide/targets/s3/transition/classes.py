"""
Changing the storage class of an object where it lies.

S3's own lifecycle changes the class of any version. A client can only copy an object onto itself, which in a
bucket that keeps versions is a new version with a new age: so there this refuses, and says what to do.
"""

from __future__ import annotations

from typing import Any

from ebbtide.core.decision import Outcome
from ebbtide.engine.layout import OnStep
from ebbtide.storage.s3_copy import PartWriter, Sizes, copied_parts, copy_source, redirection
from ebbtide.storage.s3_objects import NULL, About, Refusal, S3Object, S3Objects
from ebbtide.storage.store import DeleteResult
from ebbtide.targets.s3.model import Versioning
from ebbtide.targets.s3.transition.originals import Item, Originals

CHANGED = "class changed"

_NEW_VERSION = (
    "only the store's own lifecycle can change the class of a version; a copy would be a new version with"
    " a new age. Let the rule name a location (bucket.locations in ebbtide.toml), or leave it to the store"
)


def change_class(
    originals: Originals, item: Item, sizes: Sizes, on_step: OnStep, *, again: bool
) -> DeleteResult:
    """Copy an object onto itself with another class, on the condition that it is still the planned one."""
    if not _is_in_place(originals.versioning, item):
        return DeleteResult(item.key, Outcome.DENIED, _NEW_VERSION)
    now = originals.look(item)
    if now.found is None or now.problem:
        return DeleteResult(item.key, now.outcome, now.problem)
    if now.found.storage_class == item.goal:
        outcome = Outcome.DELETED if again else Outcome.ABSENT
        return DeleteResult(item.key, outcome, f"now {item.goal}" if again else f"it is {item.goal} already")
    return _copy_onto_itself(originals, item, now.found, sizes, on_step)


def _is_in_place(versioning: Versioning, item: Item) -> bool:
    """Tell whether a copy onto itself takes the object's place instead of being one more version."""
    if versioning is Versioning.DISABLED:
        return True
    return versioning is Versioning.SUSPENDED and item.version == NULL and item.latest is True


def _copy_onto_itself(
    originals: Originals, item: Item, found: S3Object, sizes: Sizes, on_step: OnStep
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
    """Let the server take metadata and tags along, so that what changes meanwhile is not set back."""
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
    """Above 5 GiB, in parts; it is completed only if the object is still the one that was copied."""
    kept = About(found.headers, found.metadata, objects.tags(found))
    condition = {"IfMatch": f'"{found.etag}"'}
    writer = PartWriter(objects, found.key, kept, condition, _kept_in(found, goal))
    writer.write(lambda: copied_parts(writer, copy_source(objects, found), found.size, sizes))


def _kept_in(found: S3Object, goal: str) -> dict[str, Any]:
    """Ask for another class, and for the same key: the server would take its usual one."""
    return {**found.kept_as, "StorageClass": goal}
