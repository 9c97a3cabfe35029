"""Terms: what all the rules together say of one class of items, whatever their age."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from ebbtide.core.instant import MICROSECONDS_A_DAY, to_micros
from ebbtide.targets.s3.evaluation.places import NumberedRule, Place, TagSet
from ebbtide.targets.s3.rules.configuration import MinimumSize, Rule
from ebbtide.targets.s3.rules.storage_classes import least_size, may_go, preference


@dataclass(frozen=True)
class When:
    """When something is due: so many days after a row's own time, or at a date, whichever comes first."""

    days: int | None = None
    days_rule: int | None = None
    date: int | None = None
    """In days since 1970: a date begins at midnight UTC."""
    date_rule: int | None = None


@dataclass(frozen=True)
class Move:
    """A transition: where to, and when."""

    storage_class: str
    when: When


@dataclass(frozen=True)
class Terms:
    """What the rules say of a class: when its items end, and where they may go, the preferred way first."""

    ends: When = When()
    at_once: int | None = None
    """The rule that ends them at once: of delete markers that are all that is left."""
    moves: tuple[Move, ...] = ()


@dataclass
class _Earliest:
    """The earliest of several moments, days and dates apart; of equals the rule that comes first."""

    days: list[tuple[int, int]] = field(default_factory=list)
    dates: list[tuple[int, int]] = field(default_factory=list)

    def when(self) -> When:
        days, days_rule = min(self.days, default=(None, None))
        date, date_rule = min(self.dates, default=(None, None))
        return When(days, days_rule, date, date_rule)


def matching(place: Place, size: int | None, tags: Iterable[TagSet]) -> list[NumberedRule]:
    """Give the rules that match by size and tags; `tags` are those of the wanted sets that an item has."""
    has = set(tags)
    return [
        numbered
        for numbered in place.rules
        if _fits(numbered.rule, size) and (not numbered.rule.filter.tags or numbered.rule.filter.tags in has)
    ]


def _fits(rule: Rule, size: int | None) -> bool:
    low, high = rule.filter.larger_than, rule.filter.smaller_than
    if size is None:
        return not rule.filter.has_size
    return (low is None or size > low) and (high is None or size < high)


def current_terms(
    rules: Sequence[NumberedRule], size: int | None, source: str, minimum: MinimumSize
) -> Terms:
    """Add up what is said of current versions of a size and a class."""
    ends, moves = _Earliest(), dict[str, _Earliest]()
    for numbered in rules:
        rule, number = numbered.rule, numbered.number
        if rule.expiration:
            _note(ends, rule.expiration.days, rule.expiration.date, number)
        for move in rule.transitions:
            if _may_move(rule, size, source, move.storage_class, minimum):
                _note(moves.setdefault(move.storage_class, _Earliest()), move.days, move.date, number)
    return Terms(ends.when(), None, _ordered(moves))


def noncurrent_terms(
    rules: Sequence[NumberedRule], size: int | None, source: str, minimum: MinimumSize, newer: int
) -> Terms:
    """Add up what is said of noncurrent versions with so many newer noncurrent ones."""
    ends, moves = _Earliest(), dict[str, _Earliest]()
    for numbered in rules:
        rule, number = numbered.rule, numbered.number
        end = rule.noncurrent_expiration
        if end and newer >= end.newer:
            _note(ends, end.days, None, number)
        for move in rule.noncurrent_transitions:
            if newer >= move.newer and _may_move(rule, size, source, move.storage_class, minimum):
                _note(moves.setdefault(move.storage_class, _Earliest()), move.days, None, number)
    return Terms(ends.when(), None, _ordered(moves))


def noncurrent_marker_terms(place: Place, newer: int) -> Terms:
    """Add up what is said of noncurrent delete markers, which have no tags, no class and no size."""
    return Terms(noncurrent_terms(_without_tags(place), None, "", MinimumSize.ALL_128K, newer).ends)


def sole_marker_terms(place: Place) -> Terms:
    """Add up what is said of delete markers that are all that is left of their key."""
    ends, at_once = _Earliest(), []
    for numbered in _without_tags(place):
        expiration = numbered.rule.expiration
        if expiration is None:
            continue
        if expiration.expired_marker:
            at_once.append(numbered.number)
        _note(ends, expiration.days, expiration.date, numbered.number)
    return Terms(ends.when(), min(at_once, default=None))


def upload_terms(place: Place) -> Terms:
    """Add up what is said of open uploads; rules that ask for tags or sizes say nothing."""
    ends = _Earliest()
    for numbered in place.rules:
        rule = numbered.rule
        if rule.abort_days is not None and not rule.filter.tags and not rule.filter.has_size:
            _note(ends, rule.abort_days, None, numbered.number)
    return Terms(ends.when())


def _without_tags(place: Place) -> list[NumberedRule]:
    return [numbered for numbered in place.rules if not numbered.rule.filter.tags]


def _note(earliest: _Earliest, days: int | None, date: datetime | None, number: int) -> None:
    if days is not None:
        earliest.days.append((days, number))
    if date is not None:
        earliest.dates.append((to_micros(date) // MICROSECONDS_A_DAY, number))


def _may_move(rule: Rule, size: int | None, source: str, target: str, minimum: MinimumSize) -> bool:
    least = least_size(target, minimum, own_size_filter=rule.filter.has_size)
    return size is not None and size >= least and may_go(source, target)


def _ordered(moves: dict[str, _Earliest]) -> tuple[Move, ...]:
    preferred = sorted(moves, key=preference)
    return tuple(Move(target, moves[target].when()) for target in preferred)
