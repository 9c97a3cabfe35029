"""
The oracle: what S3 lifecycle rules mean for a bucket, in plain Python, one item after the other.

This is the executable specification. It shares nothing with the Spark evaluation but the data classes and
the table of storage classes, and that evaluation must agree with it on every bucket. A rule asks for *steps*,
and each has a moment from which it is due. Of the steps that are due one is taken::

    1. permanent deletion      a noncurrent version; a current one where versioning is disabled
    2. transition              to the cheapest class
    3. a delete marker         on a current version where versioning is enabled or suspended

and of several alike the one that was due first, then the one whose rule comes first. Then a hold may keep
the item; nothing else takes the place of a step that is held. In doubt about time or place nothing is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from ebbtide.core.instant import NEVER, days_after, next_midnight
from ebbtide.targets.s3.model import Action, Hold, Protected, Upload, Verdict, Version, Versioning
from ebbtide.targets.s3.oracle_places import Place, find_places
from ebbtide.targets.s3.rules.configuration import Configuration, Expiration, Filter, MinimumSize, Rule
from ebbtide.targets.s3.rules.storage_classes import least_size, may_go, preference

_PRECEDENCE = {
    Action.DELETE_VERSION: 1,
    Action.TRANSITION: 2,
    Action.EXPIRE: 3,
    # These two have no rivals: nothing else is ever done to a lone delete marker or to an upload.
    Action.REMOVE_DELETE_MARKER: 1,
    Action.ABORT_UPLOAD: 1,
}
_REPLICATING = frozenset({"PENDING", "PROCESSING"})
_NULL = "null"


@dataclass(frozen=True)
class _Step:
    """What one rule wants done with one item, and from when."""

    action: Action
    due: datetime
    rule_id: str
    storage_class: str | None = None


def evaluate(
    configuration: Configuration,
    items: Sequence[Version | Upload],
    now: datetime,
    versioning: Versioning = Versioning.ENABLED,
    protected: Sequence[Protected] = (),
) -> list[Verdict]:
    """Say of each item, in their order, what the rules do with it now, or when next, or what keeps it."""
    places = find_places(items)
    verdicts = []
    for number, item in enumerate(items):
        if isinstance(item, Upload):
            steps = list(_upload_steps(configuration, item))
            doubt = Hold.UNKNOWN_TIME if item.initiated is None else None
        else:
            steps = list(_version_steps(configuration, item, places[number]))
            doubt = places[number].doubt
        verdict = _judge(item, steps, doubt, now, versioning)
        is_due = verdict.action is not Action.NONE or (verdict.held_by is not None and doubt is None)
        if is_due and any(item.key.startswith(place.prefix) for place in protected):
            # What a rule wants done is held, whatever else would hold it.
            verdict = Verdict(rule_id=verdict.rule_id, due=verdict.due, held_by=Hold.LAKE)
        verdicts.append(verdict)
    return verdicts


def _judge(
    item: Version | Upload, steps: Sequence[_Step], doubt: Hold | None, now: datetime, versioning: Versioning
) -> Verdict:
    """Choose among the steps of one item."""
    if steps and doubt is not None:
        return Verdict(held_by=doubt)
    coming = [step for step in steps if step.due < NEVER]
    due = [step for step in coming if step.due <= now]
    if due:
        # Steps come in the order of their rules and min keeps the first, so of equals the first rule wins.
        chosen = min(due, key=lambda step: _preference(step, versioning))
        hold = _hold(item, chosen, now, versioning)
        if hold is not None:
            return Verdict(rule_id=chosen.rule_id, due=chosen.due, held_by=hold)
        return Verdict(chosen.action, chosen.storage_class, chosen.rule_id, chosen.due)
    if coming:
        following = min(coming, key=lambda step: step.due)
        return Verdict(rule_id=following.rule_id, due=following.due)
    return Verdict()


def _preference(step: _Step, versioning: Versioning) -> tuple[int, tuple[int, str], datetime]:
    """Order steps that are due: by the table above, then the cheapest class, then the earliest moment."""
    permanent = step.action is Action.EXPIRE and versioning is Versioning.DISABLED
    kind = _PRECEDENCE[Action.DELETE_VERSION] if permanent else _PRECEDENCE[step.action]
    cost = (0, "") if step.storage_class is None else preference(step.storage_class)
    return kind, cost, step.due


def _version_steps(configuration: Configuration, version: Version, place: Place) -> Iterator[_Step]:
    """Name all that the rules want of a version; in doubt, all that they may want of it."""
    for rule in configuration.enabled:
        if not matches(rule.filter, version):
            continue
        if place.current:
            yield from _expiration_steps(rule, version, place)
        if place.noncurrent:
            yield from _noncurrent_expiration_steps(rule, place)
        if not version.is_delete_marker:
            yield from _transition_steps(rule, version, place, configuration.minimum_size)


def _expiration_steps(rule: Rule, version: Version, place: Place) -> Iterator[_Step]:
    """End a current version, or a delete marker if it is all that is left of its key."""
    if rule.expiration is None or (version.is_delete_marker and not place.alone):
        return
    action = Action.REMOVE_DELETE_MARKER if version.is_delete_marker else Action.EXPIRE
    for moment in _ends(rule.expiration, place.written, marker=version.is_delete_marker):
        yield _Step(action, moment, rule.id)


def _ends(expiration: Expiration, written: datetime | None, *, marker: bool) -> Iterator[datetime]:
    """Name the moments that an expiration gives: days after it was written, a date, or at once."""
    if expiration.days is not None:
        yield _after(written, expiration.days)
    if expiration.date is not None:
        yield expiration.date
    if expiration.expired_marker and marker:
        yield written or NEVER


def _noncurrent_expiration_steps(rule: Rule, place: Place) -> Iterator[_Step]:
    """Delete a noncurrent version, delete markers included, that is old enough and behind enough others."""
    wanted = rule.noncurrent_expiration
    if wanted is not None and _is_behind(place, wanted.newer):
        yield _Step(Action.DELETE_VERSION, _after(place.replaced, wanted.days), rule.id)


def _transition_steps(rule: Rule, version: Version, place: Place, minimum: MinimumSize) -> Iterator[_Step]:
    """Move a version to the classes that it may go to and is large enough for; an unknown size is not."""
    for target, moment in _moves(rule, place):
        least = least_size(target, minimum, own_size_filter=rule.filter.has_size)
        if may_go(version.storage_class, target) and version.size is not None and version.size >= least:
            yield _Step(Action.TRANSITION, moment, rule.id, target)


def _moves(rule: Rule, place: Place) -> Iterator[tuple[str, datetime]]:
    """Name the classes that a rule has for a version in this place, and when each is to be taken."""
    if place.current:
        for move in rule.transitions:
            yield move.storage_class, move.date or _after(place.written, move.days)
    if place.noncurrent:
        for later in rule.noncurrent_transitions:
            if _is_behind(place, later.newer):
                yield later.storage_class, _after(place.replaced, later.days)


def _upload_steps(configuration: Configuration, upload: Upload) -> Iterator[_Step]:
    """Abort an upload; it has no tags and no size yet, so a rule that asks for them is not about it."""
    for rule in configuration.enabled:
        plain = not rule.filter.tags and not rule.filter.has_size
        if rule.abort_days is not None and plain and upload.key.startswith(rule.filter.prefix):
            yield _Step(Action.ABORT_UPLOAD, _after(upload.initiated, rule.abort_days), rule.id)


def matches(wanted: Filter, version: Version) -> bool:
    """Tell whether a rule is about a version. A delete marker has no tags, and no size to ask for."""
    if not version.key.startswith(wanted.prefix):
        return False
    if version.is_delete_marker:
        return not wanted.tags
    return _has_tags(wanted, version) and _has_size(wanted, version)


def _has_tags(wanted: Filter, version: Version) -> bool:
    tags = version.tags or {}
    return all(key in tags and tags[key] == value for key, value in wanted.tags)


def _has_size(wanted: Filter, version: Version) -> bool:
    """Tell whether a version lies strictly between the bounds; an unknown size lies nowhere."""
    if version.size is None:
        return not wanted.has_size
    above = wanted.larger_than is None or version.size > wanted.larger_than
    below = wanted.smaller_than is None or version.size < wanted.smaller_than
    return above and below


def _is_behind(place: Place, newer: int) -> bool:
    """Tell whether so many noncurrent versions are newer; where nobody knows they may be."""
    return place.newer is None or place.newer >= newer


def _after(since: datetime | None, days: int | None) -> datetime:
    """Count days and round up to midnight UTC; from a time that is unknown it never comes."""
    return NEVER if since is None or days is None else next_midnight(days_after(since, days))


def _hold(item: Version | Upload, step: _Step, now: datetime, versioning: Versioning) -> Hold | None:
    """Name what keeps a version from a step that is due, the first of what does."""
    if isinstance(item, Upload):
        return None
    if (item.replication_status or "").upper() in _REPLICATING:
        return Hold.REPLICATION
    if item.restoring or (item.restored_until is not None and now < item.restored_until):
        return Hold.RESTORE if item.restoring else Hold.RESTORED
    if _destroys(item, step, versioning):
        if item.legal_hold:
            return Hold.LEGAL_HOLD
        if item.retain_until is not None and item.retain_until > now:
            return Hold.RETENTION
    return None


def _destroys(version: Version, step: _Step, versioning: Versioning) -> bool:
    """Tell whether a step makes an end of a version's data, which is what object lock is there to prevent."""
    if step.action is Action.EXPIRE:
        # With versioning suspended the new marker is the null version, and takes the place of the old one.
        replaces = versioning is Versioning.SUSPENDED and version.version_id == _NULL
        return versioning is Versioning.DISABLED or replaces
    return step.action is Action.DELETE_VERSION and not version.is_delete_marker
