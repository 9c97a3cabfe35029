"""Warnings about valid configurations: what AWS refuses and other stores accept, and what is rarely meant."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from typing import Any

from ebbtide.core.instant import format_second
from ebbtide.targets.s3.rules.configuration import Configuration, Rule
from ebbtide.targets.s3.rules.storage_classes import SMALL
from ebbtide.targets.s3.rules.validation import shown

_LEAST_DAYS = {"STANDARD_IA": 30, "ONEZONE_IA": 30}


def configuration_warnings(configuration: Configuration, *, now: datetime | None = None) -> list[str]:
    """Return the warnings of a configuration; dates in the past are reported only if `now` is given."""
    found = [f"rule {shown(rule.id)} {words}" for rule in configuration.rules for words in _rule(rule, now)]
    if not configuration.enabled:
        found.append("no rule is enabled, so nothing happens")
    return found + list(_together(configuration.rules))


def _rule(rule: Rule, now: datetime | None) -> Iterator[str]:
    yield from _scope(rule)
    yield from _classes(rule)
    yield from _order(rule)
    if now is not None:
        yield from _past(rule, now)


def _scope(rule: Rule) -> Iterator[str]:
    given, expiration = rule.filter, rule.expiration
    if given.prefix.startswith("/"):
        yield f"has the prefix {shown(given.prefix)}: the slash counts, and most keys do not begin with one"
    if given.larger_than is not None and given.smaller_than == given.larger_than + 1:
        yield f"can never act: no size is above {given.larger_than} and below {given.smaller_than}"
    if expiration is not None and expiration.only_marker:
        if given.has_size:
            yield "has ExpiredObjectDeleteMarker with a size: AWS refuses it, and delete markers have no size"
        if not expiration.expired_marker:
            yield "has ExpiredObjectDeleteMarker false, which does nothing"


def _classes(rule: Rule) -> Iterator[str]:
    moves = [(part.storage_class, part.days) for part in rule.transitions]
    moves += [(part.storage_class, part.days) for part in rule.noncurrent_transitions]
    for storage_class, days in moves:
        least = _LEAST_DAYS.get(storage_class, 0)
        if days is not None and days < least:
            yield f"moves to {storage_class} after {days} days: AWS refuses fewer than {least}"
    if moves and rule.filter.has_size and (rule.filter.larger_than or 0) < SMALL - 1:
        yield "moves objects below 128 KB too: its size filter replaces the default minimum"


def _order(rule: Rule) -> Iterator[str]:
    pairs: tuple[tuple[str, Any, tuple[Any, ...]], ...] = (
        ("Expiration", rule.expiration, rule.transitions),
        ("NoncurrentVersionExpiration", rule.noncurrent_expiration, rule.noncurrent_transitions),
    )
    for name, expiration, transitions in pairs:
        late = [part for part in transitions if expiration is not None and not _before(part, expiration)]
        for part in late:
            yield f"moves to {part.storage_class} not before its {name}: AWS refuses it"


def _before(transition: Any, expiration: Any) -> bool:
    if transition.days is not None and expiration.days is not None:
        return bool(transition.days < expiration.days)
    ends, moves = getattr(expiration, "date", None), getattr(transition, "date", None)
    return ends is None or moves is None or moves < ends


def _past(rule: Rule, now: datetime) -> Iterator[str]:
    dates = [part.date for part in (rule.expiration, *rule.transitions) if part is not None]
    for moment in sorted({date for date in dates if date is not None and date <= now}):
        yield f"has the past date {format_second(moment)}: every match is due at once, also future objects"


def _together(rules: tuple[Rule, ...]) -> Iterator[str]:
    old = [rule for rule in rules if rule.legacy_prefix]
    if old and len(old) < len(rules):
        yield "some rules have a Filter and some a Prefix instead: AWS refuses the two together"
    for rule in old:
        if any(part.newer for part in (rule.noncurrent_expiration, *rule.noncurrent_transitions) if part):
            yield f"rule {shown(rule.id)} counts newer versions and has no Filter: AWS refuses it"
    for action in sorted({action for rule in old for action in _actions(rule)}):
        same = sorted((rule for rule in old if action in _actions(rule)), key=lambda rule: rule.filter.prefix)
        # If any of the sorted prefixes is a prefix of another, two neighbours are.
        for one, other in pairwise(same):
            if other.filter.prefix.startswith(one.filter.prefix):
                names = f"{shown(one.id)} and {shown(other.id)}"
                yield f"rules {names} have overlapping prefixes, no Filter, and both {action}: AWS refuses it"
                break


def _actions(rule: Rule) -> set[str]:
    given = {
        "Expiration": rule.expiration,
        "Transition": rule.transitions,
        "NoncurrentVersionExpiration": rule.noncurrent_expiration,
        "NoncurrentVersionTransition": rule.noncurrent_transitions,
        "AbortIncompleteMultipartUpload": rule.abort_days,
    }
    return {name for name, value in given.items() if value}
