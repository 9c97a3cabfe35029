"""Whether a planned item is still what it was, compared with what the store lists just before acting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ebbtide.core.decision import Outcome
from ebbtide.storage.s3_versions import VersionRow
from ebbtide.storage.store import DeleteResult
from ebbtide.targets.s3.actions.planned import Planned
from ebbtide.targets.s3.model import Action

_SECOND, _MILLISECOND = 1_000_000, 1_000

UNCLEAR = "the store does not say which version is the current one"
PROMOTED = "it is the current version now"
OVERTAKEN = "it is not the current version any more"
REWRITTEN = "the content is another than was planned"
RETIMED = "it was written at another time than was planned"


def judge(
    items: Iterable[Planned], siblings: Sequence[Planned], found: Sequence[VersionRow]
) -> dict[int, DeleteResult]:
    """
    Give results for those of a key's items that must not be touched; what has none may be.

    `siblings` are all the items of the key in this run: those that are not there any more were deleted by
    this run or one before it, and count as newer versions all the same. `found` is all that the store has of
    the key, the newest first.
    """
    places = {row.version_id: place for place, row in enumerate(found)}
    if found and sum(row.is_latest for row in found) != 1:
        return {item.number: DeleteResult(item.key, Outcome.FAILED, UNCLEAR) for item in items}
    gone = [
        item.micros
        for item in siblings
        if item.action == Action.DELETE_VERSION and item.version not in places and item.micros is not None
    ]
    results = {}
    for item in items:
        result = _judge(item, found, places.get(item.version), gone)
        if item.kept is not None and (result is None or result.outcome is Outcome.CHANGED):
            result = DeleteResult(item.key, Outcome.CHANGED, item.kept)
        if result is not None:
            results[item.number] = result
    return results


def _judge(
    item: Planned, found: Sequence[VersionRow], place: int | None, gone: Sequence[int]
) -> DeleteResult | None:
    if item.action == Action.EXPIRE and (not found or found[0].is_delete_marker):
        # A marker on a marker would say nothing new, and each pass would add one.
        return DeleteResult(item.key, Outcome.ABSENT)
    if place is None:
        outcome, why = (Outcome.CHANGED, OVERTAKEN) if item.action == Action.EXPIRE else (Outcome.ABSENT, "")
        return DeleteResult(item.key, outcome, why)
    why = _content_change(item, found[place]) or _place_change(item, found, place, gone)
    return DeleteResult(item.key, Outcome.CHANGED, why) if why else None


def _content_change(item: Planned, row: VersionRow) -> str:
    """Say how a version differs from the planned one in itself."""
    if item.action == Action.REMOVE_DELETE_MARKER and not row.is_delete_marker:
        return "it is a version now, and no delete marker"
    if row.is_delete_marker and (item.action == Action.EXPIRE or item.etag):
        return "it is a delete marker now"
    if item.etag and row.etag != item.etag:
        return REWRITTEN
    return "" if same_moment(item.micros, row.micros) else RETIMED


def _place_change(item: Planned, found: Sequence[VersionRow], place: int, gone: Sequence[int]) -> str:
    """Say how a version's place among the others differs from the planned one."""
    row = found[place]
    top = item.latest or item.action in {Action.EXPIRE, Action.REMOVE_DELETE_MARKER}
    if row.is_latest != top:
        return PROMOTED if row.is_latest else OVERTAKEN
    if item.action == Action.REMOVE_DELETE_MARKER and len(found) > 1:
        return "its key has other versions, which would come to light without it"
    if not top:
        # The first is the current one. Of those that are gone only what is newer for certain counts.
        newer = place - 1 + sum(micros > row.micros for micros in gone)
        if newer < item.newer:
            return f"only {newer} newer noncurrent versions are there, and {item.newer} must be"
    return ""


def same_moment(planned: int | None, seen: int | None) -> bool:
    """Compare two times in microseconds, at the coarser precision: some answers know only the second."""
    if planned is None or seen is None:
        return True
    for unit in (_SECOND, _MILLISECOND):
        if planned % unit == 0 or seen % unit == 0:
            return planned // unit == seen // unit
    return planned == seen
