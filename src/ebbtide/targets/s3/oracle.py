"""
The oracle: what S3 lifecycle rules mean for a bucket, in plain Python, one item after the other.

This is the executable specification. It shares only the data classes and the table of storage classes with
the Spark evaluation, which must agree with it on every bucket. A rule asks for *steps*, and each has a time
from which on it is due. Of the steps that are due one is taken::

    1. permanent deletion      a noncurrent version; a current one where versioning is disabled
    2. transition              to the cheapest class
    3. a delete marker         on a current version where versioning is enabled or suspended

If several are of the same kind, the one that was due first is taken, then the one of the first rule. A hold
may keep the item then; no other step replaces a step that is held. If the time of an item or its position
among the versions of its key is unknown, nothing is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from ebbtide.core.instant import NEVER, days_after, next_midnight
from ebbtide.targets.s3.model import NULL, Action, Hold, Protected, Upload, Verdict, Version, Versioning
from ebbtide.targets.s3.rules.configuration import Configuration, Expiration, Filter, MinimumSize, Rule
from ebbtide.targets.s3.rules.storage_classes import least_size, may_go, preference

_PRECEDENCE = {
    Action.DELETE_VERSION: 1,
    Action.TRANSITION: 2,
    Action.EXPIRE: 3,
    # No other step applies to a delete marker without versions or to an upload.
    Action.REMOVE_DELETE_MARKER: 1,
    Action.ABORT_UPLOAD: 1,
}
_REPLICATING = frozenset({"PENDING", "PROCESSING"})


@dataclass(frozen=True)
class _Step:
    """What one rule asks for one item, and from when on it is due."""

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
    """Return a verdict per item, in their order: what the rules do now, or when next, or what holds it."""
    positions = find_positions(items)
    verdicts = []
    for number, item in enumerate(items):
        if isinstance(item, Upload):
            steps = list(_upload_steps(configuration, item))
            doubt = Hold.UNKNOWN_TIME if item.initiated is None else None
        else:
            steps = list(_version_steps(configuration, item, positions[number]))
            doubt = positions[number].doubt
        verdict = _judge(item, steps, doubt, now, versioning)
        is_due = verdict.action is not Action.NONE or (verdict.held_by is not None and doubt is None)
        if is_due and any(item.key.startswith(one.prefix) for one in protected):
            # In a lake every due step is held, whatever else would hold it.
            verdict = Verdict(rule_id=verdict.rule_id, due=verdict.due, held_by=Hold.LAKE)
        verdicts.append(verdict)
    return verdicts


def _judge(
    item: Version | Upload, steps: Sequence[_Step], doubt: Hold | None, now: datetime, versioning: Versioning
) -> Verdict:
    """Choose one of the steps of an item."""
    if steps and doubt is not None:
        return Verdict(held_by=doubt)
    coming = [step for step in steps if step.due < NEVER]
    due = [step for step in coming if step.due <= now]
    if due:
        # Steps are in the order of their rules and min keeps the first, so among equals the first rule wins.
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
    """Return the sort key of a due step: the table above, then the cheapest class, then the earliest time."""
    permanent = step.action is Action.EXPIRE and versioning is Versioning.DISABLED
    kind = _PRECEDENCE[Action.DELETE_VERSION] if permanent else _PRECEDENCE[step.action]
    cost = (0, "") if step.storage_class is None else preference(step.storage_class)
    return kind, cost, step.due


def _version_steps(configuration: Configuration, version: Version, position: Position) -> Iterator[_Step]:
    """Yield the steps for a version; if its position is unknown, all steps that are possible."""
    for rule in configuration.enabled:
        if not matches(rule.filter, version):
            continue
        if position.current:
            yield from _expiration_steps(rule, version, position)
        if position.noncurrent:
            yield from _noncurrent_expiration_steps(rule, position)
        if not version.is_delete_marker:
            yield from _transition_steps(rule, version, position, configuration.minimum_size)


def _expiration_steps(rule: Rule, version: Version, position: Position) -> Iterator[_Step]:
    """Yield the steps that expire a current version or remove a delete marker without versions."""
    if rule.expiration is None or (version.is_delete_marker and not position.alone):
        return
    action = Action.REMOVE_DELETE_MARKER if version.is_delete_marker else Action.EXPIRE
    for moment in _ends(rule.expiration, position.written, marker=version.is_delete_marker):
        yield _Step(action, moment, rule.id)


def _ends(expiration: Expiration, written: datetime | None, *, marker: bool) -> Iterator[datetime]:
    """Yield the times of an expiration: days after the item was written, a date, or at once."""
    if expiration.days is not None:
        yield _after(written, expiration.days)
    if expiration.date is not None:
        yield expiration.date
    if expiration.expired_marker and marker:
        yield written or NEVER


def _noncurrent_expiration_steps(rule: Rule, position: Position) -> Iterator[_Step]:
    """Yield the deletion of a noncurrent version or delete marker that has enough newer versions."""
    wanted = rule.noncurrent_expiration
    if wanted is not None and _is_behind(position, wanted.newer):
        yield _Step(Action.DELETE_VERSION, _after(position.replaced, wanted.days), rule.id)


def _transition_steps(
    rule: Rule, version: Version, position: Position, minimum: MinimumSize
) -> Iterator[_Step]:
    """Yield the transitions that are allowed for the class and size of a version; its size must be known."""
    for target, moment in _moves(rule, position):
        least = least_size(target, minimum, own_size_filter=rule.filter.has_size)
        if may_go(version.storage_class, target) and version.size is not None and version.size >= least:
            yield _Step(Action.TRANSITION, moment, rule.id, target)


def _moves(rule: Rule, position: Position) -> Iterator[tuple[str, datetime]]:
    """Yield the storage classes that a rule has for a version at this position, and when."""
    if position.current:
        for move in rule.transitions:
            yield move.storage_class, move.date or _after(position.written, move.days)
    if position.noncurrent:
        for later in rule.noncurrent_transitions:
            if _is_behind(position, later.newer):
                yield later.storage_class, _after(position.replaced, later.days)


def _upload_steps(configuration: Configuration, upload: Upload) -> Iterator[_Step]:
    """Yield the aborts of an upload; it has no tags and no size, so rules with these do not match."""
    for rule in configuration.enabled:
        plain = not rule.filter.tags and not rule.filter.has_size
        if rule.abort_days is not None and plain and upload.key.startswith(rule.filter.prefix):
            yield _Step(Action.ABORT_UPLOAD, _after(upload.initiated, rule.abort_days), rule.id)


def matches(wanted: Filter, version: Version) -> bool:
    """Return True if a filter matches a version. Delete markers have no tags, and size bounds ignore them."""
    if not version.key.startswith(wanted.prefix):
        return False
    if version.is_delete_marker:
        return not wanted.tags
    return _has_tags(wanted, version) and _has_size(wanted, version)


def _has_tags(wanted: Filter, version: Version) -> bool:
    tags = version.tags or {}
    return all(key in tags and tags[key] == value for key, value in wanted.tags)


def _has_size(wanted: Filter, version: Version) -> bool:
    """Return True if the size is strictly between the bounds; an unknown size matches no bounds."""
    if version.size is None:
        return not wanted.has_size
    above = wanted.larger_than is None or version.size > wanted.larger_than
    below = wanted.smaller_than is None or version.size < wanted.smaller_than
    return above and below


def _is_behind(position: Position, newer: int) -> bool:
    """Return True if this many noncurrent versions are newer, or may be because their number is unknown."""
    return position.newer is None or position.newer >= newer


def _after(since: datetime | None, days: int | None) -> datetime:
    """Add days and round up to midnight UTC; NEVER if the time is unknown."""
    return NEVER if since is None or days is None else next_midnight(days_after(since, days))


def _hold(item: Version | Upload, step: _Step, now: datetime, versioning: Versioning) -> Hold | None:
    """Return the first hold that keeps a version from a due step."""
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
    """Return True if a step destroys the data of a version, which object lock prevents."""
    if step.action is Action.EXPIRE:
        # With versioning suspended the new marker is the null version and replaces the old one.
        replaces = versioning is Versioning.SUSPENDED and version.version_id == NULL
        return versioning is Versioning.DISABLED or replaces
    return step.action is Action.DELETE_VERSION and not version.is_delete_marker


@dataclass(frozen=True)
class Position:
    """The position of a version among those of its key; with a doubt, what the version may be."""

    current: bool
    noncurrent: bool
    alone: bool = False
    """The key has no other version."""
    written: datetime | None = None
    replaced: datetime | None = None
    """When its successor was written; it is noncurrent since then."""
    newer: int | None = None
    """The number of newer noncurrent versions of the key; None if unknown."""
    doubt: Hold | None = None


def find_positions(items: Sequence[Version | Upload]) -> dict[int, Position]:
    """Return the position of each version among the given versions of its key, by index in the sequence."""
    keys: dict[str, list[int]] = {}
    for number, item in enumerate(items):
        if isinstance(item, Version):
            keys.setdefault(item.key, []).append(number)
    found: dict[int, Position] = {}
    for numbers in keys.values():
        versions = [item for item in (items[number] for number in numbers) if isinstance(item, Version)]
        found.update(zip(numbers, _positions_of_key(versions), strict=True))
    return found


def _positions_of_key(versions: Sequence[Version]) -> list[Position]:
    """Return the positions of the versions of one key, in the order in which they are given."""
    latest = [number for number, version in enumerate(versions) if version.is_latest]
    if len(latest) > 1:
        return [Position(bool(version.is_latest), True, doubt=Hold.UNKNOWN_RANK) for version in versions]
    if not latest and any(version.is_latest is False for version in versions):
        # The current version is missing, so the successor of the first of these is missing too.
        return [Position(False, True, doubt=Hold.UNKNOWN_RANK) for _ in versions]
    if not latest and len(versions) > 1 and any(version.last_modified is None for version in versions):
        return [Position(True, True, doubt=_own_doubt(version)) for version in versions]
    current = latest[0] if latest else _newest_first(versions, range(len(versions)))[0]
    return _positions_behind(versions, current)


def _positions_behind(versions: Sequence[Version], current: int) -> list[Position]:
    """Return the positions of the versions of a key whose current version is known."""
    written = versions[current].last_modified
    doubt = Hold.UNKNOWN_TIME if written is None else None
    positions = {current: Position(True, False, len(versions) == 1, written, doubt=doubt)}
    rest = [number for number in range(len(versions)) if number != current]
    if any(versions[number].last_modified is None for number in rest):
        # Any of them may be newer than any other, and its successor.
        positions.update(
            {number: Position(False, True, doubt=_own_doubt(versions[number])) for number in rest}
        )
    else:
        order = [current, *_newest_first(versions, rest)]
        positions.update(_positions_in_order(versions, order))
    return [positions[number] for number in range(len(versions))]


def _positions_in_order(versions: Sequence[Version], order: Sequence[int]) -> Iterator[tuple[int, Position]]:
    """Yield the positions of all but the first of an order: each was replaced by the one before it."""
    for newer, number in enumerate(order[1:]):
        replaced = versions[order[newer]].last_modified
        doubt = Hold.UNKNOWN_TIME if replaced is None else None
        written = versions[number].last_modified
        yield number, Position(False, True, written=written, replaced=replaced, newer=newer, doubt=doubt)


def _newest_first(versions: Sequence[Version], numbers: Sequence[int]) -> list[int]:
    """Sort by time, newest first; equal times keep their order, which is how S3 lists them."""
    return sorted(numbers, key=lambda number: versions[number].last_modified or NEVER, reverse=True)


def _own_doubt(version: Version) -> Hold:
    """Return why a version of a key without a known order is held: its own time, or another version's."""
    return Hold.UNKNOWN_TIME if version.last_modified is None else Hold.UNKNOWN_RANK
