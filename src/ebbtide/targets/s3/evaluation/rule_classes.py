"""
Rule classes: the combinations of item properties that the rules distinguish, and what applies to each.

Within a key interval, the class of an item follows from its kind and, where they matter, its size, its tags,
its storage class, and the number of newer noncurrent versions of its key. The *terms* of a class are what all
rules together say of its items, whatever their age. They are computed once per class and not per item. The
classes of an interval are numbered without gaps, so that arithmetic finds the class of an item.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import product

from ebbtide.core.instant import MICROSECONDS_A_DAY, to_micros
from ebbtide.targets.s3.evaluation.key_intervals import BucketSetting, KeyInterval, NumberedRule, TagSet
from ebbtide.targets.s3.rules.configuration import MinimumSize, Rule
from ebbtide.targets.s3.rules.storage_classes import CHEAPEST_FIRST, STANDARD, least_size, may_go, preference


@dataclass(frozen=True)
class When:
    """When an action is due: some days after an item's own time or at a date, whichever comes first."""

    days: int | None = None
    days_rule: int | None = None
    date: int | None = None
    """Days since 1970; a date begins at midnight UTC."""
    date_rule: int | None = None


@dataclass(frozen=True)
class TransitionTerm:
    """A transition of a class: the storage class it goes to, and when."""

    storage_class: str
    when: When


@dataclass(frozen=True)
class RuleTerms:
    """When the items of a class end, and their transitions, the preferred one first."""

    ends: When = When()
    at_once: int | None = None
    """The rule that removes delete markers without versions at once."""
    moves: tuple[TransitionTerm, ...] = ()


@dataclass
class _Earliest:
    """The earliest of several times, days and dates apart. If two are equal, the first rule wins."""

    days: list[tuple[int, int]] = field(default_factory=list)
    dates: list[tuple[int, int]] = field(default_factory=list)

    def when(self) -> When:
        days, days_rule = min(self.days, default=(None, None))
        date, date_rule = min(self.dates, default=(None, None))
        return When(days, days_rule, date, date_rule)


def matching(interval: KeyInterval, size: int | None, tags: Iterable[TagSet]) -> list[NumberedRule]:
    """Return the rules that match by size and tags; `tags` are the required tag sets that the item has."""
    has = set(tags)
    return [
        numbered
        for numbered in interval.rules
        if _fits(numbered.rule, size) and (not numbered.rule.filter.tags or numbered.rule.filter.tags in has)
    ]


def _fits(rule: Rule, size: int | None) -> bool:
    low, high = rule.filter.larger_than, rule.filter.smaller_than
    if size is None:
        return not rule.filter.has_size
    return (low is None or size > low) and (high is None or size < high)


def current_terms(
    rules: Sequence[NumberedRule], size: int | None, source: str, minimum: MinimumSize
) -> RuleTerms:
    """Return the terms of current versions of a size and a storage class."""
    ends, moves = _Earliest(), dict[str, _Earliest]()
    for numbered in rules:
        rule, number = numbered.rule, numbered.number
        if rule.expiration:
            _note(ends, rule.expiration.days, rule.expiration.date, number)
        for move in rule.transitions:
            if _may_move(rule, size, source, move.storage_class, minimum):
                _note(moves.setdefault(move.storage_class, _Earliest()), move.days, move.date, number)
    return RuleTerms(ends.when(), None, _ordered(moves))


def noncurrent_terms(
    rules: Sequence[NumberedRule], size: int | None, source: str, minimum: MinimumSize, newer: int
) -> RuleTerms:
    """Return the terms of noncurrent versions with this number of newer noncurrent versions."""
    ends, moves = _Earliest(), dict[str, _Earliest]()
    for numbered in rules:
        rule, number = numbered.rule, numbered.number
        end = rule.noncurrent_expiration
        if end and newer >= end.newer:
            _note(ends, end.days, None, number)
        for move in rule.noncurrent_transitions:
            if newer >= move.newer and _may_move(rule, size, source, move.storage_class, minimum):
                _note(moves.setdefault(move.storage_class, _Earliest()), move.days, None, number)
    return RuleTerms(ends.when(), None, _ordered(moves))


def noncurrent_marker_terms(interval: KeyInterval, newer: int) -> RuleTerms:
    """Return the terms of noncurrent delete markers, which have no tags, storage class or size."""
    return RuleTerms(noncurrent_terms(_without_tags(interval), None, "", MinimumSize.ALL_128K, newer).ends)


def sole_marker_terms(interval: KeyInterval) -> RuleTerms:
    """Return the terms of delete markers whose key has no versions."""
    ends, at_once = _Earliest(), []
    for numbered in _without_tags(interval):
        expiration = numbered.rule.expiration
        if expiration is None:
            continue
        if expiration.expired_marker:
            at_once.append(numbered.number)
        _note(ends, expiration.days, expiration.date, numbered.number)
    return RuleTerms(ends.when(), min(at_once, default=None))


def upload_terms(interval: KeyInterval) -> RuleTerms:
    """Return the terms of incomplete uploads; rules with tags or sizes do not apply to them."""
    ends = _Earliest()
    for numbered in interval.rules:
        rule = numbered.rule
        if rule.abort_days is not None and not rule.filter.tags and not rule.filter.has_size:
            _note(ends, rule.abort_days, None, numbered.number)
    return RuleTerms(ends.when())


def _without_tags(interval: KeyInterval) -> list[NumberedRule]:
    return [numbered for numbered in interval.rules if not numbered.rule.filter.tags]


def _note(earliest: _Earliest, days: int | None, date: datetime | None, number: int) -> None:
    if days is not None:
        earliest.days.append((days, number))
    if date is not None:
        earliest.dates.append((to_micros(date) // MICROSECONDS_A_DAY, number))


def _may_move(rule: Rule, size: int | None, source: str, target: str, minimum: MinimumSize) -> bool:
    least = least_size(target, minimum, own_size_filter=rule.filter.has_size)
    return size is not None and size >= least and may_go(source, target)


def _ordered(moves: dict[str, _Earliest]) -> tuple[TransitionTerm, ...]:
    preferred = sorted(moves, key=preference)
    return tuple(TransitionTerm(target, moves[target].when()) for target in preferred)


SOURCES = (STANDARD, *CHEAPEST_FIRST)
"""The storage classes from which different transitions are allowed; any other is like the first."""

FEW_TAG_SETS = 6
"""Up to this number of tag sets all their combinations are listed; above it, only those that occur."""

Signature = tuple[int, ...]
"""Which tag sets of an interval an item has."""


@dataclass(frozen=True)
class ClassDimensions:
    """What distinguishes the classes of an interval, and so how their numbers are laid out."""

    sizes: tuple[int, ...]
    signatures: tuple[Signature, ...]
    sources: tuple[str, ...]
    ranks: tuple[int, ...]

    @property
    def widths(self) -> tuple[int, int, int, int]:
        """The numbers of sizes (the first is for unknown sizes), signatures, sources and ranks."""
        return len(self.sizes) + 2, len(self.signatures), len(self.sources), len(self.ranks) + 1

    @property
    def starts(self) -> tuple[int, int, int, int, int]:
        """The first numbers of current and noncurrent versions, sole and noncurrent markers, and uploads."""
        sizes, signatures, sources, ranks = self.widths
        noncurrent = sizes * signatures * sources
        sole = noncurrent + noncurrent * ranks
        return 0, noncurrent, sole, sole + 1, sole + 1 + ranks


@dataclass
class RuleClasses:
    """All intervals with their dimensions, and the terms of all their classes."""

    intervals: list[KeyInterval]
    dimensions: list[ClassDimensions]
    rows: list[list[int]] = field(default_factory=list)
    """For each interval, the terms of its classes as indexes into `terms`."""
    terms: list[RuleTerms] = field(default_factory=lambda: [RuleTerms()])
    """All different terms; the first has no action."""


def has_many_tag_sets(interval: KeyInterval) -> bool:
    """Return True if an interval has too many tag sets to list all their combinations."""
    return len(interval.tag_sets) > FEW_TAG_SETS


def rule_classes(
    settings: Sequence[BucketSetting], intervals: list[KeyInterval], seen: Mapping[int, Sequence[Signature]]
) -> RuleClasses:
    """Compute the terms of all classes; `seen` has the signatures that occur if there are many tag sets."""
    found = RuleClasses(intervals, _laid_out(intervals, seen))
    numbers: dict[RuleTerms, int] = {RuleTerms(): 0}
    for interval, dimensions in zip(found.intervals, found.dimensions, strict=True):
        minimum = settings[interval.world].configuration.minimum_size
        row = []
        for terms in _terms_of(interval, dimensions, minimum):
            if terms not in numbers:
                numbers[terms] = len(found.terms)
                found.terms.append(terms)
            row.append(numbers[terms])
        found.rows.append(row)
    return found


def _laid_out(
    intervals: Sequence[KeyInterval], seen: Mapping[int, Sequence[Signature]]
) -> list[ClassDimensions]:
    return [
        ClassDimensions(
            interval.sizes,
            tuple(seen.get(number, [()])) if has_many_tag_sets(interval) else signatures(interval),
            SOURCES if interval.has_transitions else SOURCES[:1],
            interval.ranks,
        )
        for number, interval in enumerate(intervals)
    ]


def signatures(interval: KeyInterval) -> tuple[Signature, ...]:
    """List all combinations of the tag sets of an interval, each at the index that its bits form."""
    count = len(interval.tag_sets)
    return tuple(tuple(i for i in range(count) if bits >> i & 1) for bits in range(2**count))


def _terms_of(
    interval: KeyInterval, dimensions: ClassDimensions, minimum: MinimumSize
) -> Iterator[RuleTerms]:
    """Yield the terms of the classes of an interval in the order of their numbers."""
    sizes: list[int | None] = [None, 0, *dimensions.sizes]
    ranks = [0, *dimensions.ranks]
    versions = [
        (matching(interval, size, _tag_sets(interval, signature)), size, source)
        for size, signature, source in product(sizes, dimensions.signatures, dimensions.sources)
    ]
    for rules, size, source in versions:
        yield current_terms(rules, size, source, minimum)
    for rules, size, source in versions:
        for rank in ranks:
            yield noncurrent_terms(rules, size, source, minimum, rank)
    yield sole_marker_terms(interval)
    for rank in ranks:
        yield noncurrent_marker_terms(interval, rank)
    yield upload_terms(interval)


def _tag_sets(interval: KeyInterval, signature: Signature) -> list[TagSet]:
    return [interval.tag_sets[i] for i in signature]
